"""Shares by recent work: one decaying number per campaign instead of windows. Pure.

Work done counts half after each half-life. A campaign's *standing* is minus its part of the recent
work over its part of the shares: 0 if it had nothing, -1 if it had exactly its share, lower if it
had more. The campaign with the highest standing is served first. A campaign without a share stands
below all that have one, so it is served only where seats would stay idle otherwise.

Several tasks are chosen for one instant by counting each choice as work already done: its
campaign's recent work rises by what an hour of it would be of a day's total, or by its real
duration where that is known. So campaigns alternate only where their standings are close.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lead.policy.view import Charge
from node.model import times

HALF_LIFE: Final = times.DAY
"""Runs are short and shares are viewed over days; hosts that compute for weeks use ten days."""
WITHOUT_SHARE: Final = -1000.0
_HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A task to be done for a campaign: its duration (µs) and how many seats it takes at once.

    ``deadline`` is the instant by which it should be done or, for a run, start.
    """

    task: str
    campaign: str
    duration: int
    seats: float = 1
    deadline: int | None = None


def recent_of(ledger: Iterable[Charge], now: int, half_life: int = HALF_LIFE) -> dict[str, float]:
    """Return the recent work of each campaign, read from the ledger: decayed seats in use.

    A charge at a constant rate over ``[s, e)`` is now worth ``rate * (2**-((now - e)/h) - 2**-((now
    - s)/h))``; its future part does not count.
    """
    recent: dict[str, float] = {}
    for it in ledger:
        end = min(it.end, now)
        if end > it.start:
            rate = it.amount / (it.end - it.start)
            worth = 2.0 ** ((end - now) / half_life) - 2.0 ** ((it.start - now) / half_life)
            recent[it.campaign] = recent.get(it.campaign, 0.0) + rate * worth
    return recent


def standings(recent: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the standing of every campaign that has an entry in ``shares``."""
    total = total_of(recent, shares)
    total_share = sum(shares.values()) or 1.0
    return {
        name: _standing(recent.get(name, 0.0) / total, share / total_share)
        for name, share in shares.items()
    }


def total_of(recent: Mapping[str, float], names: Iterable[str]) -> float:
    """Return the recent work of all; 1 if it is 0, so that it can be a divisor."""
    return sum(recent.get(name, 0.0) for name in names) or 1.0


def _standing(work_part: float, share: float) -> float:
    if share <= 0:
        return WITHOUT_SHARE - work_part
    return -work_part / share if work_part else 0.0


def sorted_by_standing(standing: Mapping[str, float]) -> list[str]:
    """Sort campaigns by standing, the highest first; ties by name."""
    return sorted(standing, key=lambda name: (-standing[name], name))


class RecentWorkSelector:
    """A sequence of choices for one instant, each of which lowers its campaign."""

    def __init__(
        self,
        recent: Mapping[str, float],
        shares: Mapping[str, float],
        seats: int,
        half_life: int | None = None,
    ) -> None:
        """Begin; with ``half_life``, choices count by duration (``recent`` in decayed seats)."""
        self._total = total_of(recent, shares)
        self._shares = shares
        self._shared = sum(shares.values()) or 1.0
        self._seats = seats
        self._recent = dict(recent)
        self._half_life = half_life

    def standing(self, campaign: str) -> float:
        """Return the campaign's standing after the choices so far."""
        work_part = self._recent.get(campaign, 0.0) / self._total
        return _standing(work_part, self._shares.get(campaign, 0.0) / self._shared)

    def record_choice(self, work: WorkItem) -> None:
        """Count a chosen task as work done."""
        recent = self._recent.get(work.campaign, 0.0)
        if self._half_life is not None:
            worth = 1.0 - 2.0 ** (-work.duration / self._half_life)
            self._recent[work.campaign] = recent + work.seats * worth
            return
        self._recent[work.campaign] = recent + work.seats / self._seats * self._total / _HOURS


def choose(
    waiting: Mapping[str, Sequence[WorkItem]],
    turns: RecentWorkSelector,
    seats: float,
    used: float = 0,
) -> list[WorkItem]:
    """Return the work to start at one instant, in the order chosen, until the seats are used up.

    ``waiting`` is by campaign, each in the order of arrival. The last task chosen may need more
    seats than are left: it fills them.
    """
    heap = [(-turns.standing(name), name, 0) for name, tasks in waiting.items() if tasks]
    heapq.heapify(heap)
    chosen: list[WorkItem] = []
    while heap and used < seats:
        _, name, index = heap[0]
        work = waiting[name][index]
        chosen.append(work)
        turns.record_choice(work)
        used += work.seats
        if index + 1 < len(waiting[name]):
            # A choice changes the standing of its own campaign only, so the heap stays valid.
            heapq.heapreplace(heap, (-turns.standing(name), name, index + 1))
        else:
            heapq.heappop(heap)
    return chosen
