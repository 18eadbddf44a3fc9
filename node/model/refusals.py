"""Which windows a node refused to whom, to tell them when time in one becomes free. Pure, bounded.

Kept by lead and task, for the last question about it only. What is forgotten to keep within the
bounds is the oldest: whoever is not told asks again all the same, after a pause.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from node.model.spans import Span, normalise
from node.model.wire.participants import ProposalRequest

WINDOWS_MAX = 50_000


@dataclass(frozen=True)
class RefusedQuestion:
    """A question of a lead, with those windows only in which nothing was free."""

    lead: str
    question: ProposalRequest


class RefusalMemory:
    """What was refused and may still be wanted."""

    def __init__(self, most: int = WINDOWS_MAX) -> None:
        """At most so many windows are remembered."""
        self._most = most
        self._count = 0
        self._by_task: dict[tuple[str, UUID], RefusedQuestion] = {}

    def __len__(self) -> int:
        """How many windows are remembered."""
        return self._count

    def remember(self, lead: str, question: ProposalRequest, windows: Sequence[Span]) -> None:
        """These windows of the question were refused; none of an earlier one of the task counts."""
        self.forget(lead, question.task)
        if not windows:
            return
        refused = question.model_copy(update={"windows": tuple(windows)})
        self._by_task[lead, question.task] = RefusedQuestion(lead, refused)
        self._count += len(windows)
        while self._count > self._most:
            self.forget(*next(iter(self._by_task)))

    def forget(self, lead: str, task: UUID) -> None:
        """Nothing is wanted for this task any more, or it has been told."""
        refused = self._by_task.pop((lead, task), None)
        if refused is not None:
            self._count -= len(refused.question.windows)

    def touched(self, freed: Iterable[Span]) -> list[RefusedQuestion]:
        """What wants time in any of these spans: each question with just those windows, by age."""
        spans = normalise(freed)
        ends = [upper for _, upper in spans]

        def is_touched(window: Span) -> bool:
            at = bisect_right(ends, window[0])
            return at < len(spans) and spans[at][0] < window[1]

        found = []
        for refused in self._by_task.values():
            if windows := tuple(filter(is_touched, refused.question.windows)):
                asked = refused.question.model_copy(update={"windows": windows})
                found.append(RefusedQuestion(refused.lead, asked))
        return found
