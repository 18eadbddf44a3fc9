"""Comparisons of two nodes on demand: what they had differently, and what was done about it."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from node.model.wire.fields import Document

LISTED_MAX = 1000
"""Maximum number of differences that a comparison lists; it counts and repairs all."""

Count = Annotated[int, Field(ge=0, strict=True)]
Sentence = Annotated[str, Field(max_length=1000)]


class Difference(Document):
    """A difference of two nodes about a task or one of its runs, and its repair."""

    task: UUID
    run: UUID | None = Field(None, description="The run; null if it is about the whole task.")
    difference: Sentence = Field(description="What was found.")
    repair: Sentence = Field(description="What was done about it.")


class TaskComparison(Document):
    """The comparison of the tasks that one of two nodes leads and in which the other takes part."""

    tasks: Count = 0
    runs: Count = 0
    found: Count = Field(0, description="Number of differences, also of those that are not listed.")
    differences: Annotated[tuple[Difference, ...], Field(max_length=LISTED_MAX)] = ()

    def with_others(self, other: TaskComparison) -> TaskComparison:
        """Return the sum of two comparisons."""
        return TaskComparison(
            tasks=self.tasks + other.tasks,
            runs=self.runs + other.runs,
            found=self.found + other.found,
            differences=(self.differences + other.differences)[:LISTED_MAX],
        )


class NodeComparison(Document):
    """The comparison of two nodes: of the tasks that the answering one leads, and of the others."""

    led_here: TaskComparison = Field(description="The tasks that the answering node leads.")
    led_there: TaskComparison = Field(description="The tasks that the other node leads.")

    def with_others(self, seen_from_there: NodeComparison) -> NodeComparison:
        """Return the sum of this comparison and the one that the other node made."""
        return NodeComparison(
            led_here=self.led_here.with_others(seen_from_there.led_there),
            led_there=self.led_there.with_others(seen_from_there.led_here),
        )


def task_comparison(tasks: int, runs: int, differences: list[Difference]) -> TaskComparison:
    """Return a comparison with these differences, of which it lists the first."""
    return TaskComparison(
        tasks=tasks,
        runs=runs,
        found=len(differences),
        differences=tuple(differences[:LISTED_MAX]),
    )
