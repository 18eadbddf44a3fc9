"""A dialect: what two ends of one run tell each other, in both directions. Pure.

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

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from node.model.errors import ToolOutputError
from node.model.wire.fields import Document as OurDocument
from node.pscheduler.refusals import impossible
from node.pscheduler.tests.contract import Document, PartOutcome

_PORTS = range(1, 65_536)


@dataclass(frozen=True)
class HeardPart:
    """The part of a node of pScheduler in the form of our test; the reason if it is none."""

    result: dict[str, Any] | None
    reason: str | None = None


_LISTENER = 1
"""The place of the participant that listens at a port, in tests of two."""


class Dialect(ABC):
    """One tool of pScheduler, spoken by one of ours.

    ``tool`` is its name there, ``own`` the name of ours; ``tests`` are the tests of pScheduler.
    ``port_member`` is the member of a listener's data that has its port, empty if nobody listens;
    ``port_usual`` is the port without it.
    """

    tool: str
    own: str
    tests: tuple[str, ...]
    description: str
    port_member: ClassVar[str] = ""
    port_usual: ClassVar[int | None] = None

    def obstacle(self, spec: Document) -> str | None:
        """Return why the tool cannot measure a valid spec of pScheduler; None if it can."""
        return None

    def adapted_spec(self, spec: Document) -> Document:
        """Return the spec of our test, changed where a run with a node of pScheduler differs."""
        return spec

    def data(self, place: int, held: Mapping[str, int], version: str | None) -> Document:
        """Return the participant data of this node at its place (from 0).

        ``held`` is what its hold has assigned, such as a port; ``version`` that of the program.
        """
        return {self.port_member: held["port"]} if self._listens(place) else {}

    def command_data(self, place: int, data: Document) -> dict[str, int]:
        """Return another participant's data as commands of ours need it, such as its port.

        :raises Refusal: 422, if something is missing without which nothing can be measured.
        """
        if not self._listens(place):
            return {}
        port = data.get(self.port_member, self.port_usual)
        if isinstance(port, bool) or not isinstance(port, int) or port not in _PORTS:
            raise impossible(f"Participant data has no valid {self.port_member} for {self.tool}.")
        return {"port": port}

    def _listens(self, place: int) -> bool:
        return bool(self.port_member) and place == _LISTENER

    @abstractmethod
    def told_part(self, place: int, spec: Document, part: PartOutcome) -> Document:
        """Return this node's part of a run of that spec in the form of pScheduler's tool."""

    def heard_part(self, place: int, spec: Mapping[str, Any], part: Document | None) -> HeardPart:
        """Return another participant's part in the form of our tool, for the spec of our test."""
        reason = failure_of(part)
        result = (part or {}).get("result")
        if reason is not None or not isinstance(result, dict):
            return HeardPart(None, reason or "its result is no object")
        try:
            return HeardPart(self.our_part(place, result).model_dump(mode="json"))
        except ToolOutputError as fault:
            return HeardPart(None, fault.detail)
        except ValueError as fault:
            return HeardPart(None, f"its result is not understood: {fault}")

    def our_part(self, place: int, result: Document) -> OurDocument:
        """Return the result of another participant's part as the part of our tool.

        :raises ToolOutputError: it is none, and why.
        :raises ValueError: a figure of it is not understood.
        """
        raise NotImplementedError


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
