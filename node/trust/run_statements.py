"""The statements of a participant about a run: on its part, and on its share of each interval.

The claims bind both to the run, so that they are of no other: run and task with the revision of the
task, lead, place among the participants, test, tool, and booked time, with the digests of the spec
and of the participants. Values have the form that they have in a bundle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.model.times import format_instant
from node.trust.statements import (
    InvalidStatementError,
    Statement,
    StatementKind,
    digests,
    read_statement,
)

PART_VALUES = (
    "result",
    "reason",
    "started_at",
    "finished_at",
    "command",
    "output",
    "circumstances",
)
"""The members of a part whose digests are signed."""

SHARE_VALUES = ("result", "reason")
"""The members of a participant's share of an interval whose digests are signed."""


@dataclass(frozen=True)
class SignedRun:
    """The facts of a run that participants sign; instants are RFC 3339.

    ``participants`` are ``[identity, context]`` in their order.
    """

    run: str
    task: str
    revision: int
    lead: str
    test: str
    tool: str | None
    starts_at: str
    ends_at: str
    spec: Mapping[str, Any]
    participants: Sequence[Sequence[str | None]]

    @classmethod
    def of(  # noqa: PLR0913 - the facts of a run, by name
        cls,
        run: UUID,
        task: UUID,
        *,
        revision: int,
        lead: str,
        test: str,
        tool: str | None,
        span: tuple[int, int],
        spec: Mapping[str, Any],
        participants: Sequence[Sequence[str | None]],
    ) -> SignedRun:
        """Return the facts of a run from start to end (µs)."""
        starts_at, ends_at = map(format_instant, span)
        return cls(
            str(run), str(task), revision, lead, test, tool, starts_at, ends_at, spec, participants
        )

    def claims(
        self, participant: int, values: Mapping[str, Any], signed_at: int, number: int | None = None
    ) -> dict[str, Any]:
        """Return the claims of a participant about its part, or its share of an interval.

        :raises ValueError: a value is not JSON.
        """
        claims = {
            "run": self.run,
            "task": self.task,
            "revision": self.revision,
            "lead": self.lead,
            "participant": participant,
            "test": self.test,
            "tool": self.tool,
            "starts_at": self.starts_at,
            "ends_at": self.ends_at,
            "signed_at": format_instant(signed_at),
            "terms": self._terms(),
            "sha256": digests(values),
        }
        return claims if number is None else {**claims, "interval": number}

    def unlike(self, statement: Statement) -> list[str]:
        """Return what a participant signed of the terms that is otherwise here.

        A node may have signed under an earlier revision of the task, so that is not compared.
        """
        claims = statement.claims
        names = ("task", "test", "tool", "starts_at", "ends_at")
        plain = [name for name in names if claims.get(name) != getattr(self, name)]
        terms = claims.get("terms")
        signed = terms if isinstance(terms, dict) else {}
        return plain + [name for name, one in self._terms().items() if signed.get(name) != one]

    def _terms(self) -> dict[str, str]:
        return digests({"spec": self.spec, "participants": self.participants})


def check_signed(  # noqa: PLR0913 - what was signed, and about what
    text: str,
    values: Mapping[str, Any],
    *,
    run: str,
    lead: str,
    participant: int,
    node: str | None = None,
    interval: int | None = None,
) -> Statement:
    """Return what a participant signed, about these values of this run or interval.

    ``node`` is its identity, None if any key will do.

    :raises InvalidStatementError: it is about something else, or by another node; says what.
    """
    kind = StatementKind.PART if interval is None else StatementKind.INTERVAL
    statement = read_statement(text, kind)
    if node is not None and statement.identity != node:
        raise InvalidStatementError(f"it is signed with {statement.identity}, not with {node}")
    about = {"run": run, "lead": lead, "participant": participant}
    if interval is not None:
        about["interval"] = interval
    for name, expected in about.items():
        if statement.claims.get(name) != expected:
            claimed = statement.claims.get(name)
            raise InvalidStatementError(f"it is signed for {name} {claimed}, not {expected}")
    if changed := statement.changed_names(values):
        are = "is" if len(changed) == 1 else "are"
        raise InvalidStatementError(f"{' and '.join(changed)} {are} not what was signed")
    return statement
