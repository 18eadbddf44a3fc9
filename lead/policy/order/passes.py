"""Which task of a campaign is next, and for how long later ones may pass an earlier one. Pure.

Each time a task starts, those that were stuck in this very choice and came earlier have been passed
once more; who was passed more often is tried first. Once the number exceeds that of others by the
gap, those wait until it has started: "twenty nodes at once" is passed so many times and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lead.policy.gaps import GapAttempt, GapEntry, attempt
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

Found = TypeVar("Found")

HELD = RefusalRule(
    Axis.ORDER,
    "passes",
    "held: {stuck} cannot start and was passed {passes} times already, of at most {gap}",
)


@dataclass(frozen=True, slots=True)
class ReadyTask:
    """A task that is ready; ``submitted`` orders tasks, ``passes`` is how often it was passed."""

    task: str
    submitted: int
    passes: int = 0


def key(waiting: ReadyTask) -> tuple[int, int]:
    """Tasks are tried in the order of this: passed more often first, then as submitted."""
    return -waiting.passes, waiting.submitted


def choose(
    in_order: Iterable[ReadyTask], find: Callable[[str], Found | None], gap: int | None
) -> GapAttempt[Found]:
    """The first task that can start, unless it is held; a gap of None holds nobody.

    The tasks come in the order of :func:`key`, and are only looked at as far as is needed.
    """
    return attempt((GapEntry(one.task, one.passes, gap) for one in in_order), find)


def passed(tried: GapAttempt[Found], submitted: Mapping[str, int]) -> list[str]:
    """The tasks that the one that starts has passed."""
    if tried.entry is None:
        return []
    begun = submitted[tried.entry.name]
    return [one.name for one in tried.stuck if submitted[one.name] < begun]


def held_reasons(tried: GapAttempt[Found]) -> PolicyRefusal | None:
    """Why those that were not even tried have to wait, if there are any."""
    by = tried.holder
    if by is None:
        return None
    return HELD.says_no(stuck=by.name, passes=by.priority, gap=by.gap)
