"""Shares by recent work: one decaying number per campaign instead of windows. Pure.

Work done counts half after each half-life. A campaign's *standing* is minus its part of the recent
work over its part of the shares: 0 for who had nothing, -1 for who had just its share, lower for
who had more. Whoever stands highest is served first. A campaign without any share stands below all
that have one, so it is only served where something would be idle otherwise.

Several are chosen for one instant by pretending that each choice was work already done: its
campaign's recent work rises by what an hour of it would be of a day's total, or by what it takes
where that is known. So campaigns mix where they stand close together, and only there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lead.policy.view import Charge
from node.model import times

HALF_LIFE: Final = times.DAY
"""Runs are short and shares are looked at over days; hosts that compute for weeks use ten days."""
WITHOUT_SHARE: Final = -1000.0
_HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Something to be done for a campaign: how long it takes and on how many seats at once.

    ``deadline`` is the instant by which it should be done, or for a run that it should start.
    """

    task: str
    campaign: str
    duration: int
    seats: float = 1
    deadline: int | None = None


def decayed(recent: float, rate: float, elapsed: int, half_life: int = HALF_LIFE) -> float:
    """Recent work after ``elapsed`` µs at a constant rate; it tends to the rate itself.

    ``r * 2**(-e/h) + (1 - 2**(-e/h)) * rate``, in whatever unit the rate has: seats in use, say.
    """
    kept: float = 2.0 ** (-elapsed / half_life)
    return recent * kept + (1.0 - kept) * rate


def recent_of(ledger: Iterable[Charge], now: int, half_life: int = HALF_LIFE) -> dict[str, float]:
    """The recent work of each campaign, read from the ledger: decayed seats in use.

    A charge at a constant rate over ``[s, e)`` is now worth ``rate * (2**-((now - e)/h) -
    2**-((now - s)/h))``; what is yet to come does not count.
    """
    found: dict[str, float] = {}
    for it in ledger:
        end = min(it.end, now)
        if end > it.start:
            rate = it.amount / (it.end - it.start)
            worth = 2.0 ** ((end - now) / half_life) - 2.0 ** ((it.start - now) / half_life)
            found[it.campaign] = found.get(it.campaign, 0.0) + rate * worth
    return found


def standings(recent: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, float]:
    """The standing of every campaign that has an entry in ``shares``."""
    done = total_of(recent, shares)
    shared = sum(shares.values()) or 1.0
    return {
        name: _standing(recent.get(name, 0.0) / done, share / shared)
        for name, share in shares.items()
    }


def total_of(recent: Mapping[str, float], names: Iterable[str]) -> float:
    """The recent work of all of them; 1 where nothing was done, so that it can be divided by."""
    return sum(recent.get(name, 0.0) for name in names) or 1.0


def _standing(done: float, share: float) -> float:
    if share <= 0:
        return WITHOUT_SHARE - done
    return -done / share if done else 0.0


def by_standing(standing: Mapping[str, float]) -> list[str]:
    """Who is served first; by name where two stand level."""
    return sorted(standing, key=lambda name: (-standing[name], name))


class RecentWorkSelector:
    """Choosing who is next, over and over, for one instant: each choice lowers its campaign."""

    def __init__(
        self,
        recent: Mapping[str, float],
        shares: Mapping[str, float],
        seats: int,
        half_life: int | None = None,
    ) -> None:
        """With a half-life (``recent`` is in decayed seats) a choice counts as what it takes."""
        self._total = total_of(recent, shares)
        self._shares = shares
        self._shared = sum(shares.values()) or 1.0
        self._seats = seats
        self._recent = dict(recent)
        self._half_life = half_life

    def standing(self, campaign: str) -> float:
        """Where it stands after the choices so far."""
        done = self._recent.get(campaign, 0.0) / self._total
        return _standing(done, self._shares.get(campaign, 0.0) / self._shared)

    def chosen(self, work: WorkItem) -> None:
        """One of its tasks is to run: as if it had done so already."""
        had = self._recent.get(work.campaign, 0.0)
        if self._half_life is not None:
            worth = 1.0 - 2.0 ** (-work.duration / self._half_life)
            self._recent[work.campaign] = had + work.seats * worth
            return
        self._recent[work.campaign] = had + work.seats / self._seats * self._total / _HOURS


def choose(
    waiting: Mapping[str, Sequence[WorkItem]],
    turns: RecentWorkSelector,
    seats: float,
    used: float = 0,
) -> list[WorkItem]:
    """What runs at one instant, in the order chosen, until the seats are used up.

    ``waiting`` is by campaign, each in the order of arrival. The last one chosen may need more
    seats than are left: it is what makes them full.
    """
    heap = [(-turns.standing(name), name, 0) for name, tasks in waiting.items() if tasks]
    heapq.heapify(heap)
    chosen: list[WorkItem] = []
    while heap and used < seats:
        _, name, index = heap[0]
        work = waiting[name][index]
        chosen.append(work)
        turns.chosen(work)
        used += work.seats
        if index + 1 < len(waiting[name]):
            heapq.heapreplace(heap, (-turns.standing(name), name, index + 1))
        else:
            heapq.heappop(heap)
    return chosen
