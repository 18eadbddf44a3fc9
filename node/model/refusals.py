"""Which windows a node refused to whom, to tell them when time in one becomes free. Pure, bounded.

Kept by task, for the last question about it only. What is forgotten to keep within the bounds is
the oldest: whoever is not told asks again all the same, after a pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model.spans import Span
from node.model.wire.participants import ProposalRequest

WINDOWS_MAX = 50_000


@dataclass(frozen=True)
class Refused:
    """A question of a lead, with those windows only in which nothing was free."""

    lead: str
    question: ProposalRequest


class Refusals:
    """What was refused and may still be wanted."""

    def __init__(self, most: int = WINDOWS_MAX) -> None:
        """At most so many windows are remembered."""
        self._most = most
        self._count = 0
        self._by_task: dict[UUID, Refused] = {}

    def remember(self, lead: str, question: ProposalRequest, windows: Sequence[Span]) -> None:
        """These windows of the question were refused; none of an earlier one of the task counts."""
        self.forget(question.task)
        if not windows:
            return
        refused = question.model_copy(update={"windows": tuple(windows)})
        self._by_task[question.task] = Refused(lead, refused)
        self._count += len(windows)
        while self._count > self._most:
            self.forget(next(iter(self._by_task)))

    def forget(self, task: UUID) -> None:
        """Nothing is wanted for this task any more, or it has been told."""
        refused = self._by_task.pop(task, None)
        if refused is not None:
            self._count -= len(refused.question.windows)

    def touched(self, freed: Iterable[Span]) -> list[Refused]:
        """What wants time in any of these spans: each question with just those windows, by age."""
        spans = list(freed)
        found = []
        for refused in self._by_task.values():
            windows = tuple(
                (start, end)
                for start, end in refused.question.windows
                if any(start < upper and lower < end for lower, upper in spans)
            )
            if windows:
                asked = refused.question.model_copy(update={"windows": windows})
                found.append(Refused(refused.lead, asked))
        return found
