"""What may slip past: short runs in the time before a protected slot. Pure.

A *window* is a set of free nodes and how long all of them stay free. Windows overlap; they are
visited widest first, so the shortest first. In each window runs are chosen that fit into it:

* ``first``: in order of priority;
* ``best``: again and again the one of the largest worth, the higher priority if two are level;
* ``combination``: those that are together worth the most.

Worth is the seats of a run, its time, or the product of the two. Durations are exact, so nothing
that is filled in ever delays a slot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lead.policy.select.last_available import rank
from lead.policy.timetable import PlacementRequest

Free = Mapping[str, int | None]
"""How long each free node stays so (µs); None is without an end."""


class BackfillChoice(StrEnum):
    """Which of those that fit are started."""

    FIRST = "first"
    BEST = "best"
    COMBINATION = "combination"


class RunWorth(StrEnum):
    """What a run is worth to ``best`` and ``combination``."""

    SEATS = "seats"
    TIME = "time"
    SEAT_TIME = "seat_time"


TRIED_MAX: Final = 2_000
"""So many combinations are tried per window at most; the best found counts."""


@dataclass(frozen=True, slots=True)
class FreeWindow:
    """Nodes that are all free for ``length`` µs; None is without an end."""

    nodes: tuple[str, ...]
    length: int | None


def windows(free: Free) -> list[FreeWindow]:
    """The windows, widest first; nodes in the order given."""
    lengths = sorted({length for length in free.values() if length})
    found = [
        FreeWindow(
            tuple(name for name, has in free.items() if has is None or has >= length), length
        )
        for length in lengths
    ]
    endless = tuple(name for name, has in free.items() if has is None)
    return [*found, FreeWindow(endless, None)] if endless else found


def fill(
    queue: Sequence[PlacementRequest],
    free: Free,
    choice: BackfillChoice = BackfillChoice.FIRST,
    worth: RunWorth = RunWorth.SEATS,
    considered: int = 0,
) -> dict[str, tuple[str, ...]]:
    """What is started on which nodes, in the order of starting; ``queue`` is by priority.

    Of the queue only the first ``considered`` are looked at; 0 is all.
    """
    found = windows(free)
    # Each window lies within the one before it, so what finds no nodes in one finds none later:
    # a run is looked at once, in the first window that is long enough.
    fitting: list[list[PlacementRequest]] = [[] for _ in found]
    lengths = [window.length for window in found if window.length is not None]
    for request in queue[:considered] if considered else queue:
        first = bisect_left(lengths, request.duration)
        if first < len(found):
            fitting[first].append(request)
    left = dict(free)
    started: dict[str, tuple[str, ...]] = {}
    for window, requests in zip(found, fitting, strict=True):
        open_here = {name: left[name] for name in window.nodes if name in left}
        for request, nodes in _CHOICES[choice](requests, open_here, _WORTHS[worth]):
            started[request.task] = nodes
            for name in nodes:
                del left[name]
    return started


def _place(request: PlacementRequest, free: Free) -> tuple[str, ...] | None:
    """The nodes a run would take: those with the least time left after it."""
    mine = {name: free[name] for name in free if name in set(request.nodes)}
    fitting = rank(mine, request.duration)
    return tuple(fitting[: request.k]) if len(fitting) >= request.k else None


_Placed = list[tuple[PlacementRequest, tuple[str, ...]]]
_Value = Callable[[PlacementRequest], int]


def _first(fitting: Sequence[PlacementRequest], free: Free, _: _Value) -> _Placed:
    left = dict(free)
    placed: _Placed = []
    for request in fitting:
        nodes = _place(request, left) if request.k <= len(left) else None
        if nodes is not None:
            placed.append((request, nodes))
            for name in nodes:
                del left[name]
    return placed


def _best(fitting: Sequence[PlacementRequest], free: Free, value: _Value) -> _Placed:
    # What does not fit beside a more valuable one does not fit later either: nodes only get fewer.
    return _first(sorted(fitting, key=lambda it: -value(it)), free, value)


def _combination(fitting: Sequence[PlacementRequest], free: Free, value: _Value) -> _Placed:
    """Depth first, the higher priority in before out, cut where no more can be gained."""
    gains = [0]
    for request in reversed(fitting):
        gains.append(gains[-1] + value(request))
    gains.reverse()
    best: tuple[int, _Placed] = (0, [])
    stack: list[tuple[int, int, _Placed, Free]] = [(0, 0, [], free)]
    for _ in range(TRIED_MAX):
        if not stack:
            break
        at, total, placed, left = stack.pop()
        if total > best[0]:
            best = (total, placed)
        if at == len(fitting) or total + gains[at] <= best[0]:
            continue
        request = fitting[at]
        stack.append((at + 1, total, placed, left))
        nodes = _place(request, left) if request.k <= len(left) else None
        if nodes is not None:
            rest = {name: has for name, has in left.items() if name not in nodes}
            worth = total + value(request)
            stack.append((at + 1, worth, [*placed, (request, nodes)], rest))
    return best[1]


_WORTHS: Final[dict[RunWorth, _Value]] = {
    RunWorth.SEATS: lambda request: request.k,
    RunWorth.TIME: lambda request: request.duration,
    RunWorth.SEAT_TIME: lambda request: request.k * request.duration,
}
_CHOICES: Final = {
    BackfillChoice.FIRST: _first,
    BackfillChoice.BEST: _best,
    BackfillChoice.COMBINATION: _combination,
}
