"""A simulation of weighted round robin: which work will be late, and what stays idle. Pure.

The simulated node has ``seats`` seats and may suspend work for other work. At every instant the
first task of the campaign with the highest standing is chosen, and so on until the seats are full.
Then time advances to the first end of a task, or by an hour if that is further away (by a tenth of
it if it is more than ten hours away); the work is added to each campaign's recent work, and the
choice is made again. So hours are assigned in proportion to the shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lead.policy.share.recent_work import HALF_LIFE, RecentWorkSelector, WorkItem, choose
from node.model import times
from node.model.spare_capacity import Stretch
from tests.golden.originals.decay import decayed

SLICE: Final = times.HOUR
_COARSE: Final = 10


@dataclass(frozen=True, slots=True)
class SimulatedSeats:
    """The simulated capacity: the number of seats, the shares, and each campaign's recent work.

    ``rate`` is what one seat in use adds up to in the long run, in the unit of ``recent``.
    """

    count: int
    shares: Mapping[str, float]
    recent: Mapping[str, float]
    rate: float = 1.0
    half_life: int = HALF_LIFE


@dataclass(frozen=True, slots=True)
class SimulatedCourse:
    """The simulated course: when each task begins and ends, and how many seats are in use when."""

    begun: dict[str, int]
    ended: dict[str, int]
    stretches: list[Stretch]


def simulate(
    work: Sequence[WorkItem], seats: SimulatedSeats, now: int, first: Sequence[str] = ()
) -> SimulatedCourse:
    """Return the course of all this work, given in the order of arrival.

    The tasks named in ``first`` are done before all others, in that order.
    """
    remaining = {it.task: it.duration for it in work}
    urgent, queues = _apart(work, first)
    recent = dict(seats.recent)
    course = SimulatedCourse({}, {}, [])
    while remaining:
        active = _active(urgent, queues, recent, seats)
        for it in active:
            course.begun.setdefault(it.task, now)
        step = _step(min(remaining[it.task] for it in active))
        course.stretches.append((now, now + step, sum(it.seats for it in active)))
        now += step
        for it in active:
            remaining[it.task] -= step
            if remaining[it.task] <= 0:
                course.ended[it.task] = now
                del remaining[it.task]
                (urgent if it in urgent else queues[it.campaign]).remove(it)
        _add(recent, active, step, seats)
    return course


def _apart(
    work: Sequence[WorkItem], first: Sequence[str]
) -> tuple[list[WorkItem], dict[str, list[WorkItem]]]:
    """Return the urgent work in its order, and the rest by campaign in order of arrival."""
    by_task = {it.task: it for it in work}
    queues: dict[str, list[WorkItem]] = {}
    for it in work:
        if it.task not in first:
            queues.setdefault(it.campaign, []).append(it)
    return [by_task[task] for task in first if task in by_task], queues


def _active(
    urgent: Sequence[WorkItem],
    queues: Mapping[str, Sequence[WorkItem]],
    recent: Mapping[str, float],
    seats: SimulatedSeats,
) -> list[WorkItem]:
    turns = RecentWorkSelector(recent, seats.shares, seats.count)
    active: list[WorkItem] = []
    used = 0.0
    for it in urgent:
        if used >= seats.count:
            break
        active.append(it)
        turns.record_choice(it)
        used += it.seats
    return active + choose(queues, turns, seats.count, used)


def _step(soonest: int) -> int:
    if soonest <= SLICE:
        return soonest
    return soonest // _COARSE if soonest > _COARSE * SLICE else SLICE


def _add(
    recent: dict[str, float], active: Iterable[WorkItem], step: int, seats: SimulatedSeats
) -> None:
    used: dict[str, float] = {}
    for it in active:
        used[it.campaign] = used.get(it.campaign, 0.0) + it.seats
    for name in recent.keys() | used.keys():
        rate = used.get(name, 0.0) * seats.rate
        recent[name] = decayed(recent.get(name, 0.0), rate, step, seats.half_life)


def late(work: Iterable[WorkItem], course: SimulatedCourse, ahead: int = 0) -> list[WorkItem]:
    """Return work that ends later than ``ahead`` µs before its deadline, in order of arrival."""
    return [
        it for it in work if it.deadline is not None and course.ended[it.task] > it.deadline - ahead
    ]


def turns_taken(seats: SimulatedSeats, slices: int) -> list[list[str]]:
    """Return the campaigns served in each slice while every campaign always has work."""
    endless = {
        name: [WorkItem(f"{name}/{i}", name, SLICE) for i in range(seats.count)]
        for name in seats.shares
    }
    recent = dict(seats.recent)
    served = []
    for _ in range(slices):
        chosen = choose(endless, RecentWorkSelector(recent, seats.shares, seats.count), seats.count)
        served.append([it.campaign for it in chosen])
        _add(recent, chosen, SLICE, seats)
    return served
