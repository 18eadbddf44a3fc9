"""The audit of this node: which requests are recorded, with what, and how many of a flood. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from node.model.loopback import network_of
from node.model.permissions import Access
from node.model.principals import Principal, PrincipalKind
from node.model.rates import RateLimit
from node.model.times import MINUTE, SECOND

LEFT_OUT = "left_out"
"""The verb of a row that counts requests without rows of their own."""

TEXT_MAX = 200
"""Maximum number of characters of what a caller has written, such as a name in a path."""

_CHANGES_OF_NODES = frozenset({"PUT /v1/participant/tasks/{id}", "POST /v1/participant/tasks/ends"})
"""The changes by other nodes, but for bookings, which the tables of exchanges and runs have."""

_UNCHANGING = frozenset(
    {"POST /v1/plans", "POST /v1/limits/trials", "POST /v1/checks", "POST /v1/meshes/trials"}
)
"""The requests other than GET that change nothing."""

_READS = frozenset({"GET /v1/tokens"})
"""The readings that are recorded even if they succeed."""

_FORBIDDEN = frozenset({401, 403, 429})
"""The statuses of what the caller may not do, or not so often."""

_REFUSED_MIN, _FAILED_MIN = 400, 500

_KNOWN_INTERVAL, _KNOWN_BURST = SECOND, 2000
"""The rate at which rows of one user or node are written, but for what users have changed."""

_STRANGERS_INTERVAL, _STRANGERS_BURST = 10 * MINUTE, 20
_GROUPS = 64
"""The addresses of strangers, or their IPv6 /64, are in so many groups, each with a rate of its
own: one that floods hides few others, and neither memory nor disk depends on their number."""


class AuditOutcome(StrEnum):
    """The end of a request."""

    DONE = "done"
    REFUSED = "refused"
    """The caller may not, or asked for what cannot be."""
    FAILED = "failed"
    """This node or another one could not do it."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row of the audit: who, from where, what, on what, and how it ended.

    ``at`` is in microseconds. ``status`` is that of the answer, and ``problem`` the code of the
    error; both are None for what was done without a request. ``count`` is the number of requests
    that the row stands for.
    """

    at: int
    principal: Principal
    verb: str
    outcome: AuditOutcome
    thing: str | None = None
    origin: str | None = None
    status: int | None = None
    problem: str | None = None
    count: int = 1

    @property
    def is_change_of_user(self) -> bool:
        """Return whether a user has changed something, so that the row must not be lost."""
        return self.outcome is AuditOutcome.DONE and self.principal.kind is PrincipalKind.TOKEN


def outcome_of(status: int, problem: str | None) -> AuditOutcome:
    """Return how a request ended, by the status of its answer and the code of the error."""
    if status >= _FAILED_MIN:
        return AuditOutcome.FAILED
    refused = status >= _REFUSED_MIN or problem is not None
    return AuditOutcome.REFUSED if refused else AuditOutcome.DONE


def is_recorded(operation: str, access: Access, status: int, *, trial: bool = False) -> bool:
    """Return whether a request is recorded.

    ``operation`` is its method and the path of its route, ``trial`` tells that it was to change
    nothing. Recorded are changes, whatever their outcome, and all that the caller may not do. Of
    the requests of other nodes, only those that begin or end tasks count as changes.
    """
    if status in _FORBIDDEN:
        return True
    if access is Access.PEER:
        return operation in _CHANGES_OF_NODES
    if operation.startswith("GET "):
        return operation in _READS
    return operation not in _UNCHANGING and not trial


def storable_text(text: str | None) -> str | None:
    """Return what a caller wrote in a form that can be stored: not too long, and no NUL."""
    if text is None:
        return None
    shown = text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
    return shown if len(shown) <= TEXT_MAX else f"{shown[: TEXT_MAX - 1]}…"


class AuditBudget:
    """The rate at which rows are written that callers can cause without changing anything."""

    def __init__(self) -> None:
        """Begin with the whole budget, and no request left out."""
        self._known = RateLimit(_KNOWN_INTERVAL, _KNOWN_BURST)
        self._strangers = RateLimit(_STRANGERS_INTERVAL, _STRANGERS_BURST)
        self._left_out: Counter[Principal] = Counter()

    def admits(self, entry: AuditEntry, now: int) -> bool:
        """Return whether a row may be written; if not, count it as left out.

        ``now`` is monotonic time in microseconds.
        """
        principal = entry.principal
        if principal.key is not None:
            wait = self._known.wait(principal.key, now)
        else:
            network, _ = network_of(entry.origin or "")
            wait = self._strangers.wait(str(hash(network) % _GROUPS), now)
        if wait:
            self.leave_out(entry)
        return not wait

    def leave_out(self, entry: AuditEntry) -> None:
        """Count an entry that gets no row."""
        self._left_out[entry.principal] += entry.count

    def take_left_out(self, at: int) -> list[AuditEntry]:
        """Return one row for each caller of whom something was left out since the last time."""
        counted, self._left_out = self._left_out, Counter()
        return [
            AuditEntry(at, principal, LEFT_OUT, AuditOutcome.REFUSED, count=count)
            for principal, count in counted.items()
        ]
