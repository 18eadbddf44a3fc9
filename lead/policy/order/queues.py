"""Which campaign is next, by priorities that move, and who is held while another is stuck. Pure.

Campaigns are tried by priority. One that cannot start anything is stuck, and everybody at least its
gap below it is held: so what it needs comes free, though part of the pool stays unused for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from lead.policy.gaps import GapAttempt, GapEntry, attempt
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Exact

Found = TypeVar("Found")

HELD = RefusalRule(
    Axis.ORDER,
    "queue-gap",
    "{campaign} is held at priority {priority}: {stuck} is stuck at {high}, {gap} or more above it",
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A campaign with something to start; ``started`` numbers its last start."""

    name: str
    priority: Exact
    gap: Exact
    started: int = -1


def turn(contenders: Iterable[Contender], find: Callable[[str], Found | None]) -> GapAttempt[Found]:
    """The first campaign for which something can be found to start, unless it is held.

    Of equals the one started least recently comes first, then as listed.
    """
    by_priority = sorted(contenders, key=lambda one: (-one.priority, one.started))
    return attempt([GapEntry(one.name, one.priority, one.gap) for one in by_priority], find)


def held(tried: GapAttempt[Found]) -> dict[str, PolicyRefusal]:
    """Why each campaign that was not even tried has to wait."""
    by = tried.holder
    if by is None:
        return {}
    return {
        one.name: HELD.says_no(
            campaign=one.name, priority=one.priority, stuck=by.name, high=by.priority, gap=by.gap
        )
        for one in tried.held
    }
