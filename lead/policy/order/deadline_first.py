"""Tasks that would start too late first, by deadline; then by recent work and share. Pure.

Each task that is put into the list lowers its campaign as if it had run for an hour already, late
ones included.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from lead.policy.feasible.start_by import ForecastRun
from lead.policy.share.recent_work import RecentWorkSelector, WorkItem, choose
from lead.policy.view import Candidate


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


def moved(runs: Iterable[ForecastRun]) -> dict[str, int]:
    """Return the tasks with late runs in a forecast, the most pressing first.

    Each has the latest start (µs) of its first late run.
    """
    deadlines: dict[str, int] = {}
    for run in runs:
        if run.is_late:
            deadlines[run.task] = min(run.start_by, deadlines.get(run.task, run.start_by))
    return dict(sorted(deadlines.items(), key=lambda item: item[1]))


def order(
    candidates: Sequence[Candidate], late: Mapping[str, int], turns: RecentWorkSelector
) -> list[str]:
    """Return all tasks in order, those that would be late first; ``late`` has their deadlines."""
    arrived = sorted(candidates, key=lambda it: (it.next_run_at, it.added_at))
    work = [WorkItem(it.task, it.campaign, it.duration, it.k, late.get(it.task)) for it in arrived]
    return [it.task for it in run_list(work, late, turns, math.inf)]
