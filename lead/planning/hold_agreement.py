"""The result of asking all participants for holds: all or nothing, run by run. Pure.

A run is kept only if every participant states that it holds it. A participant that does not mention
a run does not hold it. One that does not answer may hold it after all, but that is not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from lead.model.reasons import hold_not_stated
from node.model.errors import Conflict, ParleyError
from node.model.outcomes import PlanningOutcome
from node.model.reason import Reason
from node.model.reasons import told
from node.model.times import LATEST
from node.model.wire.participants import HoldAnswer


@dataclass(frozen=True)
class Agreement:
    """The runs that all hold, and for every other run the participant that refused and why.

    ``failed`` are the participants that gave no answer, each with its error.
    """

    held: tuple[UUID, ...]
    refused: dict[UUID, Reason]
    failed: dict[str, Reason]

    @property
    def outcome(self) -> PlanningOutcome:
        """Return the outcome: a conflict is another run in the way, no answer a failure."""
        if not self.refused:
            return PlanningOutcome.BOOKED
        if self.held:
            return PlanningOutcome.PARTLY_BOOKED
        return PlanningOutcome.NO_ANSWER if self.failed else PlanningOutcome.CONFLICT


def agree(
    runs: Sequence[UUID], answers: Sequence[tuple[str, HoldAnswer | ParleyError]]
) -> Agreement:
    """Combine the answers of the participants (name and answer, in their order)."""
    refused: dict[UUID, Reason] = {}
    failed: dict[str, Reason] = {}
    for name, answer in answers:
        if isinstance(answer, ParleyError):
            failed[name] = answer.reason
            reasons = dict.fromkeys(runs, answer.reason)
        else:
            given_reasons = {refusal.run: told(refusal.reason) for refusal in answer.refused}
            held_by_node = set(answer.held)
            reasons = {
                run: given_reasons.get(run) or hold_not_stated()
                for run in runs
                if run not in held_by_node
            }
        refused |= {run: why.at(name) for run, why in reasons.items()}
    held = tuple(run for run in runs if run not in refused)
    return Agreement(held, refused, failed)


def newest_epoch(answers: Sequence[HoldAnswer | ParleyError]) -> int:
    """Return the highest epoch that a participant knows of a task whose hold it refused, or 0.

    The lead goes on above it: a database that was restored twice, first under a clock that was
    ahead, gave higher ones than it remembers. No honest epoch is later than all clocks.
    """
    known = [a.epoch for a in answers if isinstance(a, Conflict) and a.epoch is not None]
    return max((epoch for epoch in known if epoch < LATEST), default=0)
