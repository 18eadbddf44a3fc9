"""First whatever would come too late, by its deadline; then by recent work and share. Pure.

Each task that is put into the list lowers its campaign as if it had run for an hour already, those
that would be late included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lead.policy.share.recent_work import Turns, Work, choose


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
