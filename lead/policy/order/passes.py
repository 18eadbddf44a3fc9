"""The next task of a campaign, and the limit on how often later ones may pass it. Pure.

Each time a task starts, the tasks that were stuck in this choice and came earlier have been passed
once more; tasks passed more often are tried first. Once a stuck task was passed more often than
others by the gap, those wait until it has started: a task that needs twenty nodes at once is passed
a limited number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lead.policy.gaps import GapAttempt, GapEntry, first_success
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

Result = TypeVar("Result")

HELD = RefusalRule(
    Axis.ORDER,
    "passes",
    "waits: {stuck} cannot start and was passed {passes:time} already, of at most {gap}",
)


@dataclass(frozen=True, slots=True)
class ReadyTask:
    """A task that is ready; ``submitted`` orders tasks, ``passes`` is how often it was passed."""

    task: str
    submitted: int
    passes: int = 0


def sort_key(waiting: ReadyTask) -> tuple[int, int]:
    """Return the sort key of a task: passed more often first, then in the order of submission."""
    return -waiting.passes, waiting.submitted


def next_task(
    in_order: Iterable[ReadyTask], find: Callable[[str], Result | None], gap: int | None
) -> GapAttempt[Result]:
    """Return the first task that can start, unless it is blocked; a gap of None blocks nobody.

    The tasks come in the order of :func:`key`, and are consumed only as far as needed.
    """
    return first_success((GapEntry(task.task, task.passes, gap) for task in in_order), find)


def passed_tasks(tried: GapAttempt[Result], submitted: Mapping[str, int]) -> list[str]:
    """Return the tasks that were passed by the one that starts."""
    if tried.entry is None:
        return []
    submitted_at = submitted[tried.entry.name]
    return [entry.name for entry in tried.stuck if submitted[entry.name] < submitted_at]


def reason_to_wait(tried: GapAttempt[Result]) -> PolicyRefusal | None:
    """Return why the tasks that were not tried have to wait, or None."""
    holder = tried.holder
    if holder is None:
        return None
    return HELD.refuse(stuck=holder.name, passes=holder.priority, gap=holder.gap)
