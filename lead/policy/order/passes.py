"""Which task of a campaign is next, and for how long later ones may pass an earlier one. Pure.

Each time a task starts, those that were stuck in this very choice and came earlier have been passed
once more; who was passed more often is tried first. Once the number exceeds that of others by the
gap, those wait until it has started: "twenty nodes at once" is passed so many times and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lead.policy.gaps import Attempt, Entry, attempt
from lead.policy.verdict import Axis, No, Rule

Found = TypeVar("Found")

HELD = Rule(
    Axis.ORDER,
    "passes",
    "{task} is held: {stuck} cannot start and has been passed {passes} times, {gap} at most",
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A task that is ready; ``submitted`` orders tasks, ``passes`` is how often it was passed."""

    task: str
    submitted: int
    passes: int = 0


def choose(
    waiting: Iterable[Waiting], find: Callable[[str], Found | None], gap: int | None
) -> Attempt[Found]:
    """The first task that can start, unless it is held; a gap of None holds nobody."""
    ordered = sorted(waiting, key=lambda one: (-one.passes, one.submitted))
    return attempt([Entry(one.task, one.passes, gap) for one in ordered], find)


def passed(tried: Attempt[Found], submitted: Mapping[str, int]) -> list[str]:
    """The tasks that the one that starts has passed."""
    if tried.entry is None:
        return []
    begun = submitted[tried.entry.name]
    return [one.name for one in tried.stuck if submitted[one.name] < begun]


def held(tried: Attempt[Found]) -> dict[str, No]:
    """Why each task that was not even tried has to wait."""
    by = tried.holder
    if by is None:
        return {}
    return {
        one.name: HELD.says_no(task=one.name, stuck=by.name, passes=by.priority, gap=by.gap)
        for one in tried.held
    }
