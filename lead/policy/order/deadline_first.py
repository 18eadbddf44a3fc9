"""Tasks that would start too late first, by deadline; then by recent work and share. Pure.

Each task that is put into the list lowers its campaign as if it had run for an hour already, late
ones included.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lead.policy.feasible.start_by import ForecastRun
from lead.policy.share.recent_work import RecentWorkSelector, WorkItem, choose
from lead.policy.view import Candidate


def run_list(
    work: Sequence[WorkItem], late: Collection[str], turns: RecentWorkSelector, seats: float
) -> list[WorkItem]:
    """Return the work to run on ``seats`` seats, from ``work`` in the order of arrival."""
    chosen: list[WorkItem] = []
    used = 0.0
    for it in sorted_by_deadline(it for it in work if it.task in late):
        if used >= seats:
            break
        chosen.append(it)
        turns.record_choice(it)
        used += it.seats
    waiting: dict[str, list[WorkItem]] = {}
    for it in work:
        if it.task not in late:
            waiting.setdefault(it.campaign, []).append(it)
    return chosen + choose(waiting, turns, seats, used)


def sorted_by_deadline(work: Iterable[WorkItem]) -> list[WorkItem]:
    """Sort by deadline, the shorter first on a tie; items without a deadline come last."""
    return sorted(work, key=lambda it: (it.deadline is None, it.deadline or 0, it.duration))


def late_tasks(runs: Iterable[ForecastRun]) -> dict[str, int]:
    """Return the tasks with late runs in a forecast, the most pressing first.

    Each has the latest start (µs) of its first late run.
    """
    deadlines: dict[str, int] = {}
    for run in runs:
        if run.is_late:
            deadlines[run.task] = min(run.start_by, deadlines.get(run.task, run.start_by))
    return dict(sorted(deadlines.items(), key=lambda item: item[1]))


def with_late_tasks_ahead(
    in_order: Iterable[Candidate], late: Mapping[str, int]
) -> Iterator[Candidate]:
    """Yield candidates in order, late ones before those that have more time than they.

    ``late`` has the deadlines of late tasks, as :func:`moved` returns them. A task passes none with
    the same deadline or an earlier one, which would then be late instead: such tasks go along.
    """
    left = {it.task: it for it in in_order}
    waiting = deque((task, deadline) for task, deadline in late.items() if task in left)
    for it in list(left.values()):
        while waiting and waiting[0][1] < late.get(it.task, it.start_by):
            task, deadline = waiting.popleft()
            for each in _tasks_to_move(list(left.values()), task, deadline, late):
                yield left.pop(each)
        if it.task in left:
            yield left.pop(it.task)


def _tasks_to_move(
    left: Sequence[Candidate], task: str, deadline: int, late: Mapping[str, int]
) -> list[str]:
    """Return the tasks before a late one that have no more time than it, and the late one."""
    names = [it.task for it in left]
    if task not in names:
        return []
    before = left[: names.index(task)]
    return [it.task for it in before if late.get(it.task, it.start_by) <= deadline] + [task]


def tasks_in_order(
    candidates: Sequence[Candidate], late: Mapping[str, int], turns: RecentWorkSelector
) -> list[str]:
    """Return all tasks in turn, but late ones before those that have more time than they."""
    arrived = sorted(candidates, key=lambda it: (it.next_run_at, it.added_at))
    work = [WorkItem(it.task, it.campaign, it.duration, it.k) for it in arrived]
    by_task = {it.task: it for it in candidates}
    in_turn = [by_task[it.task] for it in run_list(work, (), turns, math.inf)]
    return [it.task for it in with_late_tasks_ahead(in_turn, late)]
