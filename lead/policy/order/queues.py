"""The next campaign by moving priorities, and those blocked while another is stuck. Pure.

Campaigns are tried by priority. One that cannot start anything is stuck, and blocks every campaign
whose priority is at least its gap lower. That frees what it needs, though part of the pool stays
unused for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from lead.policy.gaps import GapAttempt, GapEntry, first_success
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Exact

Result = TypeVar("Result")

HELD = RefusalRule(
    Axis.ORDER,
    "queue-gap",
    "{campaign} waits at priority {priority}: {stuck} is stuck at {high}, {gap} or more above it",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A campaign that has something to start; ``started`` numbers its last start."""

    name: str
    priority: Exact
    gap: Exact
    started: int = -1


def next_campaign(
    contenders: Iterable[Contender], find: Callable[[str], Result | None]
) -> GapAttempt[Result]:
    """Return the first campaign for which ``find`` succeeds, unless it is blocked.

    Of equals, the one started least recently comes first, then the one listed first.
    """
    by_priority = sorted(contenders, key=lambda it: (-it.priority, it.started))
    return first_success([GapEntry(it.name, it.priority, it.gap) for it in by_priority], find)


def reasons_to_wait(tried: GapAttempt[Result]) -> dict[str, PolicyRefusal]:
    """Return why each campaign that was not tried has to wait."""
    holder = tried.holder
    if holder is None:
        return {}
    return {
        entry.name: HELD.refuse(
            campaign=entry.name,
            priority=entry.priority,
            stuck=holder.name,
            high=holder.priority,
            gap=holder.gap,
        )
        for entry in tried.held
    }
