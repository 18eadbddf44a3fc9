"""Windows that a node refused, so that it can notify the lead when time in one becomes free. Pure.

The memory is bounded. It has an entry per lead and task, for the latest question about the task
only. The oldest entries are dropped first; a lead that is not notified asks again after a pause.
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
    """A lead's question, reduced to the windows in which nothing was free."""

    lead: str
    question: ProposalRequest


class RefusalMemory:
    """The questions that were refused and may still be wanted."""

    def __init__(self, limit: int = WINDOWS_MAX) -> None:
        """Remember at most ``limit`` windows."""
        self._limit = limit
        self._count = 0
        self._by_task: dict[tuple[str, UUID], RefusedQuestion] = {}

    def __len__(self) -> int:
        """Return the number of windows remembered."""
        return self._count

    def remember(self, lead: str, question: ProposalRequest, windows: Sequence[Span]) -> None:
        """Remember the refused windows of this question, instead of the task's earlier ones."""
        self.forget(lead, question.task)
        if not windows:
            return
        refused = question.model_copy(update={"windows": tuple(windows)})
        self._by_task[lead, question.task] = RefusedQuestion(lead, refused)
        self._count += len(windows)
        while self._count > self._limit:
            self.forget(*next(iter(self._by_task)))

    def forget(self, lead: str, task: UUID) -> None:
        """Drop the task's entry: it wants no more time, or its lead was notified."""
        refused = self._by_task.pop((lead, task), None)
        if refused is not None:
            self._count -= len(refused.question.windows)

    def touched_questions(self, freed: Iterable[Span]) -> list[RefusedQuestion]:
        """Return the questions that want time in these spans, with those windows only, by age."""
        spans = normalise(freed)
        ends = [upper for _, upper in spans]

        def is_touched(window: Span) -> bool:
            at = bisect_right(ends, window[0])
            return at < len(spans) and spans[at][0] < window[1]

        matching = []
        for refused in self._by_task.values():
            if windows := tuple(filter(is_touched, refused.question.windows)):
                question = refused.question.model_copy(update={"windows": windows})
                matching.append(RefusedQuestion(refused.lead, question))
        return matching
