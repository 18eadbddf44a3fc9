"""What becomes of the work at hand if it is done in turns: who will be late, what stays idle. Pure.

The simulated node has ``seats`` seats and may set work aside for other work. At every instant the
campaign that stands highest has its first task chosen, and so on until the seats are full; then
the time goes on to the first end of a task, or by an hour if that is further away (by a tenth of it
if it is more than ten hours away), the work is added to what each campaign has had recently, and
it is chosen again. This is weighted round robin: hours are given in proportion to the shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lead.policy.share.recent_work import HALF_LIFE, RecentWorkSelector, WorkItem, choose, decayed
from node.model import times
from node.model.spare_capacity import Stretch

SLICE: Final = times.HOUR
_COARSE: Final = 10


@dataclass(frozen=True, slots=True)
class SimulatedSeats:
    """What works: how many seats, for whom with which shares, and what each has had recently.

    ``rate`` is what one seat in use adds up to in the long run, in the unit of ``recent``.
    """

    count: int
    shares: Mapping[str, float]
    recent: Mapping[str, float]
    rate: float = 1.0
    half_life: int = HALF_LIFE


@dataclass(frozen=True, slots=True)
class SimulatedCourse:
    """How it goes: when each task begins and ends, and how many seats are in use when."""

    begun: dict[str, int]
    ended: dict[str, int]
    stretches: list[Stretch]


def simulate(
    work: Sequence[WorkItem], seats: SimulatedSeats, now: int, first: Sequence[str] = ()
) -> SimulatedCourse:
    """The course of all this work, given in the order of arrival.

    The tasks named in ``first`` go ahead of all others, in that order.
    """
    left = {it.task: it.duration for it in work}
    urgent, queues = _apart(work, first)
    recent = dict(seats.recent)
    course = SimulatedCourse({}, {}, [])
    while left:
        active = _active(urgent, queues, recent, seats)
        for it in active:
            course.begun.setdefault(it.task, now)
        step = _step(min(left[it.task] for it in active))
        course.stretches.append((now, now + step, sum(it.seats for it in active)))
        now += step
        for it in active:
            left[it.task] -= step
            if left[it.task] <= 0:
                course.ended[it.task] = now
                del left[it.task]
                (urgent if it in urgent else queues[it.campaign]).remove(it)
        _add(recent, active, step, seats)
    return course


def _apart(
    work: Sequence[WorkItem], first: Sequence[str]
) -> tuple[list[WorkItem], dict[str, list[WorkItem]]]:
    """Those that go ahead, in their order, and the others by campaign, in order of arrival."""
    known = {it.task: it for it in work}
    queues: dict[str, list[WorkItem]] = {}
    for it in work:
        if it.task not in first:
            queues.setdefault(it.campaign, []).append(it)
    return [known[task] for task in first if task in known], queues


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
        turns.chosen(it)
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
    """Those that end later than ``ahead`` µs before their deadline, in the order of arrival."""
    return [
        it for it in work if it.deadline is not None and course.ended[it.task] > it.deadline - ahead
    ]


def turns_taken(seats: SimulatedSeats, slices: int) -> list[list[str]]:
    """Who is served in each of so many slices while every campaign always has work."""
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
