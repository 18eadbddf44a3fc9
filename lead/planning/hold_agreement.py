"""What came of asking all participants to hold: all or nothing, run by run. Pure.

A run is kept if every participant says that it holds it. Who says nothing of a run holds none; who
gives no answer may hold it all the same, but is not taken at half its word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model.errors import ParleyError
from node.model.outcomes import PlanningOutcome
from node.model.wire.participants import HoldAnswer


@dataclass(frozen=True)
class Agreement:
    """The runs that all hold; every other run with who stood in its way and why.

    ``failed`` are the participants that gave no answer, each with its error.
    """

    held: tuple[UUID, ...]
    refused: dict[UUID, str]
    failed: dict[str, str]

    @property
    def outcome(self) -> PlanningOutcome:
        """In two words: a conflict is another run in the way, no answer is a fault of a node."""
        if not self.refused:
            return PlanningOutcome.BOOKED
        if self.held:
            return PlanningOutcome.PARTLY_BOOKED
        return PlanningOutcome.NO_ANSWER if self.failed else PlanningOutcome.CONFLICT


def agree(
    runs: Sequence[UUID], answers: Sequence[tuple[str, HoldAnswer | ParleyError]]
) -> Agreement:
    """What these participants (name and answer, in their order) agreed on."""
    refused: dict[UUID, str] = {}
    failed: dict[str, str] = {}
    for name, answered in answers:
        if isinstance(answered, ParleyError):
            failed[name] = answered.detail
            why = dict.fromkeys(runs, answered.detail)
        else:
            said = {refusal.run: refusal.reason for refusal in answered.refused}
            held_here = set(answered.held)
            silent = "it does not say that it holds it"
            why = {run: said.get(run, silent) for run in runs if run not in held_here}
        refused |= {run: f"{name}: {reason}" for run, reason in why.items()}
    held = tuple(run for run in runs if run not in refused)
    return Agreement(held, refused, failed)
