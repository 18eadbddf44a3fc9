"""Backfill: short runs in the time before a protected slot. Pure.

A *window* is a set of free nodes and how long all of them stay free. Windows overlap; they are
visited widest first, that is, shortest first. In each window runs are chosen that fit into it:

* ``first``: in order of priority;
* ``best``: repeatedly the one of the largest worth, by priority on a tie;
* ``combination``: those that are together worth the most.

Worth is the seats of a run, its time, or the product of the two. Durations are exact, so
backfilling never delays a slot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lead.policy.select.rankings import by_time_left
from lead.policy.timetable import PlacementRequest

Free = Mapping[str, int | None]
"""The time that each free node stays free (µs); None is without an end."""


class BackfillChoice(StrEnum):
    """The way to choose among the fitting runs."""

    FIRST = "first"
    BEST = "best"
    COMBINATION = "combination"


class RunWorth(StrEnum):
    """The worth of a run to ``best`` and ``combination``."""

    SEATS = "seats"
    TIME = "time"
    SEAT_TIME = "seat_time"


TRIED_MAX: Final = 2_000
"""Maximum number of combinations tried per window; the best of these is used."""


@dataclass(frozen=True, slots=True)
class FreeWindow:
    """Nodes that are all free for ``length`` µs; None is without an end."""

    nodes: tuple[str, ...]
    length: int | None


def free_windows(free: Free) -> list[FreeWindow]:
    """Return the windows, the widest first; nodes keep their order."""
    lengths = sorted({length for length in free.values() if length})
    finite = [
        FreeWindow(
            tuple(
                name for name, duration in free.items() if duration is None or duration >= length
            ),
            length,
        )
        for length in lengths
    ]
    endless = tuple(name for name, duration in free.items() if duration is None)
    return [*finite, FreeWindow(endless, None)] if endless else finite


def runs_to_start(
    queue: Sequence[PlacementRequest],
    free: Free,
    choice: BackfillChoice = BackfillChoice.FIRST,
    worth: RunWorth = RunWorth.SEATS,
    considered: int = 0,
) -> dict[str, tuple[str, ...]]:
    """Return what is started on which nodes, in the order of starting; ``queue`` is by priority.

    Only the first ``considered`` of the queue are examined (0: all).
    """
    all_windows = free_windows(free)
    # Each window lies within the one before it, so a run that finds no nodes in one finds none
    # later: it is tried once, in the first window that is long enough.
    fitting: list[list[PlacementRequest]] = [[] for _ in all_windows]
    lengths = [window.length for window in all_windows if window.length is not None]
    for request in queue[:considered] if considered else queue:
        first = bisect_left(lengths, request.duration)
        if first < len(all_windows):
            fitting[first].append(request)
    remaining = dict(free)
    started: dict[str, tuple[str, ...]] = {}
    for window, requests in zip(all_windows, fitting, strict=True):
        free_here = {name: remaining[name] for name in window.nodes if name in remaining}
        for request, nodes in _CHOICES[choice](requests, free_here, _WORTHS[worth]):
            started[request.task] = nodes
            for name in nodes:
                del remaining[name]
    return started


def _nodes_for(request: PlacementRequest, free: Free) -> tuple[str, ...] | None:
    """Return the nodes a run would take: those with the least time left after it."""
    usable = {name: free[name] for name in free if name in set(request.nodes)}
    fitting = by_time_left(usable, request.duration)
    return tuple(fitting[: request.k]) if len(fitting) >= request.k else None


_Placed = list[tuple[PlacementRequest, tuple[str, ...]]]
_Value = Callable[[PlacementRequest], int]


def _first_fitting(fitting: Sequence[PlacementRequest], free: Free, _: _Value) -> _Placed:
    remaining = dict(free)
    placed: _Placed = []
    for request in fitting:
        nodes = _nodes_for(request, remaining) if request.k <= len(remaining) else None
        if nodes is not None:
            placed.append((request, nodes))
            for name in nodes:
                del remaining[name]
    return placed


def _best_fitting(fitting: Sequence[PlacementRequest], free: Free, value: _Value) -> _Placed:
    # A run that does not fit beside a more valuable one does not fit later: nodes only get fewer.
    return _first_fitting(sorted(fitting, key=lambda it: -value(it)), free, value)


def _best_combination(fitting: Sequence[PlacementRequest], free: Free, value: _Value) -> _Placed:
    """Search depth first, taking the higher priority first; cut branches that cannot gain."""
    gains = [0]  # by index, the worth of all requests from there on: the bound for cutting
    for request in reversed(fitting):
        gains.append(gains[-1] + value(request))
    gains.reverse()
    best: tuple[int, _Placed] = (0, [])
    stack: list[tuple[int, int, _Placed, Free]] = [(0, 0, [], free)]
    for _ in range(TRIED_MAX):
        if not stack:
            break
        index, total, placed, remaining = stack.pop()
        if total > best[0]:
            best = (total, placed)
        if index == len(fitting) or total + gains[index] <= best[0]:
            continue
        request = fitting[index]
        stack.append((index + 1, total, placed, remaining))
        nodes = _nodes_for(request, remaining) if request.k <= len(remaining) else None
        if nodes is not None:
            rest = {name: duration for name, duration in remaining.items() if name not in nodes}
            worth = total + value(request)
            stack.append((index + 1, worth, [*placed, (request, nodes)], rest))
    return best[1]


_WORTHS: Final[dict[RunWorth, _Value]] = {
    RunWorth.SEATS: lambda request: request.k,
    RunWorth.TIME: lambda request: request.duration,
    RunWorth.SEAT_TIME: lambda request: request.k * request.duration,
}
_CHOICES: Final = {
    BackfillChoice.FIRST: _first_fitting,
    BackfillChoice.BEST: _best_fitting,
    BackfillChoice.COMBINATION: _best_combination,
}
