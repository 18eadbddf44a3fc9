"""First whatever would come too late, by its deadline; then by recent work and share. Pure.

Each task that is put into the list lowers its campaign as if it had run for an hour already, those
that would be late included.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from lead.policy.feasible.start_by import forecast
from lead.policy.feasible.start_by import late as late_of
from lead.policy.share.recent_work import HALF_LIFE, Turns, Work, choose
from lead.policy.view import Candidate

_PER_HALF_LIFE = 1 / math.log(2)
"""A seat in constant use is worth 1; so many half-lives of it are, all together."""


def run_list(
    work: Sequence[Work],
    late: Collection[str],
    shares: Mapping[str, float],
    recent: Mapping[str, float],
    seats: int,
) -> list[Work]:
    """What is to run now on so many seats, of this work in the order of arrival."""
    turns = Turns(recent, shares, seats)
    chosen: list[Work] = []
    used = 0.0
    for it in sorted((it for it in work if it.task in late), key=_by_deadline):
        if used >= seats:
            break
        chosen.append(it)
        turns.chosen(it)
        used += it.seats
    waiting: dict[str, list[Work]] = {}
    for it in work:
        if it.task not in late:
            waiting.setdefault(it.campaign, []).append(it)
    return chosen + choose(waiting, turns, seats, used)


def _by_deadline(work: Work) -> tuple[bool, int, int]:
    """Of two with the same deadline the shorter goes first; without one, after all others."""
    return work.deadline is None, work.deadline or 0, work.duration


def order(
    candidates: Sequence[Candidate],
    free_at: Sequence[int],
    shares: Mapping[str, float],
    recent: Mapping[str, float],
    half_life: int = HALF_LIFE,
) -> tuple[list[str], list[str]]:
    """All tasks in order, and which of them would start too late without being moved ahead.

    ``free_at`` says of each seat when it becomes free, ``recent`` is in decayed seats in use.
    """
    arrived = sorted(candidates, key=lambda it: (it.next_run_at, it.added_at))
    work = [Work(it.task, it.campaign, it.duration, it.k, it.start_by) for it in arrived]
    had = {name: it * half_life * _PER_HALF_LIFE for name, it in recent.items()}
    starts = forecast(work, free_at, shares, had)
    moved = [it.task for it in sorted(late_of(work, starts), key=_by_deadline)]
    ahead = set(moved)
    in_turn = [task for task in starts if task not in ahead]
    too_wide = [it.task for it in work if it.task not in starts]
    return [*moved, *in_turn, *too_wide], moved
