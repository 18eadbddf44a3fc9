"""Limits on what may be active at once, for every holder that a run counts for. Pure.

A run counts for several *holders*: its campaign, that campaign's ancestors, its class, … Each may
limit the number of runs, the nodes and seats they take, their outstanding time, and so on; a run
must be within every limit of every holder. A limit is soft (while the pool is busy) or hard (if
room is left nevertheless).

One holder may override: its limits of nodes, seats, and time replace those of all others of that
kind. An override of the number of runs is only a limit of its own: it does not change how many runs
others may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Candidate, LimitView

RUNS: Final = "runs"
NODES: Final = "nodes"
SEATS: Final = "seats"
SEAT_TIME: Final = "seat_time"
"""Outstanding seat-µs: seats times the remaining time."""
TIME: Final = "time"
"""Outstanding µs of runs, however many seats each has."""
AT_ONCE: Final = (RUNS, NODES, SEATS)
"""The kinds that count at an instant."""

OVER = RefusalRule(
    Axis.THROTTLE,
    "active limit",
    "{holder} would have {wanted} {kind} at once, of at most {limit} ({level})",
    "number",
)


class LimitLevel(StrEnum):
    """The two levels of a limit: soft first, then hard with what is left."""

    SOFT = "soft"
    HARD = "hard"


OVER_TIME = RefusalRule(
    Axis.THROTTLE,
    "active limit",
    "{holder} would have {wanted:duration} of {kind:words} booked, of at most {limit:duration} "
    "({level})",
    "time",
)


def refusal_over(
    holder: str, kind: str, wanted: int, limit: int, level: LimitLevel
) -> PolicyRefusal:
    """Return the refusal of what would exceed a limit: a number, or booked time (µs)."""
    rule = OVER_TIME if kind in {TIME, SEAT_TIME} else OVER
    return rule.refuse(holder=holder, wanted=wanted, kind=kind, limit=limit, level=level.value)


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder that a run counts for: its limits and its current usage, both by kind."""

    name: str
    limits: Mapping[str, LimitView]
    in_use: Mapping[str, int] = field(default_factory=dict)


def limit_at(limit: LimitView, level: LimitLevel) -> int | None:
    """Return the limit at a level; a soft limit that is missing or looser than the hard is hard."""
    if level is LimitLevel.HARD or limit.soft is None:
        return limit.hard
    return limit.soft if limit.hard is None else min(limit.soft, limit.hard)


def find_limit_refusal(
    request: Mapping[str, int],
    holders: Iterable[Holder],
    level: LimitLevel,
    overrides: Mapping[str, LimitView] | None = None,
) -> PolicyRefusal | None:
    """Return a refusal for the first limit exceeded, in the order of holders and their limits."""
    replacements = {k: limit for k, limit in (overrides or {}).items() if k != RUNS}
    for holder in holders:
        for kind, limit in holder.limits.items():
            most = limit_at(replacements.get(kind, limit), level)
            wanted = holder.in_use.get(kind, 0) + request.get(kind, 0)
            if most is not None and wanted > most:
                return refusal_over(holder.name, kind, wanted, most, level)
    return None


def outstanding_time(runs: Sequence[tuple[int, int]], after: int = 0) -> int:
    """Return what is left of these runs (seats, µs left) ``after`` µs from now, in seat-µs."""
    return sum(seats * max(0, remaining - after) for seats, remaining in runs)


def request_of(candidate: Candidate) -> dict[str, int]:
    """Return what a candidate will book, by kind: runs, nodes, and seats at once, all its time.

    Nodes that do not act together have runs of their own.
    """
    nodes, time = candidate.k, sum(end - start for start, end in candidate.spans)
    runs = nodes if candidate.apart else 1
    return {RUNS: runs, NODES: nodes, SEATS: nodes, SEAT_TIME: nodes * time, TIME: runs * time}
