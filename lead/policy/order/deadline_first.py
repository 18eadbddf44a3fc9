"""Tasks that would start too late first, by deadline; then by recent work and share. Pure.

Each task that is put into the list lowers its campaign as if it had run for an hour already, late
ones included.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lead.policy.feasible.start_by import forecast
from lead.policy.feasible.start_by import late as late_of
from lead.policy.share.recent_work import HALF_LIFE, RecentWorkSelector, WorkItem, choose
from lead.policy.view import Candidate

_PER_HALF_LIFE = 1 / math.log(2)
"""The worth of a decayed seat in half-lives of a seat: the integral of ``2**-t`` over the past."""


def run_list(
    work: Sequence[WorkItem], late: Collection[str], turns: RecentWorkSelector, seats: float
) -> list[WorkItem]:
    """Return the work to run on ``seats`` seats, from ``work`` in the order of arrival."""
    chosen: list[WorkItem] = []
    used = 0.0
    for it in by_deadline(it for it in work if it.task in late):
        if used >= seats:
            break
        chosen.append(it)
        turns.chosen(it)
        used += it.seats
    waiting: dict[str, list[WorkItem]] = {}
    for it in work:
        if it.task not in late:
            waiting.setdefault(it.campaign, []).append(it)
    return chosen + choose(waiting, turns, seats, used)


def by_deadline(work: Iterable[WorkItem]) -> list[WorkItem]:
    """Sort by deadline, the shorter first on a tie; items without a deadline come last."""
    return sorted(work, key=lambda it: (it.deadline is None, it.deadline or 0, it.duration))


@dataclass(frozen=True, slots=True)
class Supply:
    """The instants at which seats become free, and the shares and recent work of campaigns.

    ``recent`` is in decayed seats in use, with this half-life.
    """

    free_at: Sequence[int]
    shares: Mapping[str, float]
    recent: Mapping[str, float]
    half_life: int = HALF_LIFE


def moved(candidates: Sequence[Candidate], supply: Supply) -> list[str]:
    """Return the tasks that would start too late in turn, the most pressing first."""
    return [it.task for it in by_deadline(_late(_arrived(candidates), supply))]


def order(candidates: Sequence[Candidate], supply: Supply) -> list[str]:
    """Return all tasks in order, those that would be late first."""
    work = _arrived(candidates)
    late = {it.task for it in _late(work, supply)}
    turns = RecentWorkSelector(supply.recent, supply.shares, max(1, len(supply.free_at)))
    return [it.task for it in run_list(work, late, turns, math.inf)]


def _arrived(candidates: Sequence[Candidate]) -> list[WorkItem]:
    arrived = sorted(candidates, key=lambda it: (it.next_run_at, it.added_at))
    return [WorkItem(it.task, it.campaign, it.duration, it.k, it.start_by) for it in arrived]


def _late(work: Sequence[WorkItem], supply: Supply) -> list[WorkItem]:
    per_seat = supply.half_life * _PER_HALF_LIFE
    work_done = {name: it * per_seat for name, it in supply.recent.items()}
    return late_of(work, forecast(work, supply.free_at, supply.shares, work_done))
