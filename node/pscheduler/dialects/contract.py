"""The contract of a dialect: what two ends of one run tell each other, in both directions. Pure.

A dialect stands for one tool of pScheduler and one of ours that measure the same, so that one end
of a run can be a node of pScheduler and the other one this node::

    our hold's data ─ data ─▶ participant data as pScheduler writes it
    theirs ─ command_data ─▶ the data that a command of ours needs of the other end
    our part ─ told_part ─▶ a part that a lead of pScheduler can merge
    theirs ─ heard_part ─▶ a part that our test can merge, or why it is none

What comes from another host may be anything. The functions here return, or raise
:class:`~node.pscheduler.refusals.Refusal` or, for a part, give the reason why it is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from node.pscheduler.tests.contract import Document, PartOutcome


@dataclass(frozen=True)
class HeardPart:
    """The part of a node of pScheduler in the form of our test; the reason if it is none."""

    result: dict[str, Any] | None
    reason: str | None = None


class Dialect(Protocol):
    """One tool of pScheduler, spoken by one of ours.

    ``tool`` is its name there, ``own`` the name of ours; ``tests`` are the tests of pScheduler.
    """

    tool: str
    own: str
    tests: tuple[str, ...]
    description: str

    def obstacle(self, spec: Document) -> str | None:
        """Return why the tool cannot measure a valid spec of pScheduler; None if it can."""
        ...

    def adapted_spec(self, spec: Document) -> Document:
        """Return the spec of our test, changed where a run with a node of pScheduler differs."""
        ...

    def data(self, place: int, held: Mapping[str, int], version: str | None) -> Document:
        """Return the participant data of this node at its place (from 0).

        ``held`` is what its hold has assigned, such as a port; ``version`` that of the program.
        """
        ...

    def command_data(self, place: int, data: Document) -> dict[str, int]:
        """Return another participant's data as commands of ours need it, such as its port.

        :raises Refusal: 422, if something is missing without which nothing can be measured.
        """
        ...

    def told_part(self, place: int, spec: Document, part: PartOutcome) -> Document:
        """Return this node's part of a run of that spec in the form of pScheduler's tool."""
        ...

    def heard_part(self, place: int, spec: Mapping[str, Any], part: Document | None) -> HeardPart:
        """Return another participant's part in the form of our tool, for the spec of our test."""
        ...


def diagnostics(part: PartOutcome) -> str:
    """Return what a part tells for people: the program that was called, and what it printed."""
    called = " ".join(part.command or ())
    return f"{called}\n\n{part.output or ''}".strip()


def failed_part(part: PartOutcome) -> Document:
    """Return the part in pScheduler's form of a run that failed here, with its reason."""
    return {
        "succeeded": False,
        "diags": diagnostics(part),
        "error": part.reason or "The run has no result.",
        "result": None,
    }


def failure_of(part: Document | None) -> str | None:
    """Return why another participant's part has no figures; None if it says that it succeeded."""
    if part is None:
        return "it has no result"
    if part.get("succeeded") is True:
        return None
    said = part.get("error") or part.get("diags")
    return str(said).strip()[:300] if said else "it failed and gave no reason"
