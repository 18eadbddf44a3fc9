"""A forecast of when the runs to come will start, and which of them too late. Pure.

A measurement is not suspended for another one, so this is simpler than a simulation of slices. A
run starts at its nominal time, or as soon afterwards as enough of its nodes are free at once. Where
several could start at the same instant, the campaign with the highest standing comes first, and is
charged the whole duration at once.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lead.policy.timetable import Timetable, first_gap
from lead.policy.view import Candidate
from node.model.classes import SchedulingClass
from node.model.spans import Span

RUNS_MAX = 2000
"""Maximum number of runs in a forecast, the earliest ones."""


@dataclass(frozen=True, slots=True)
class Supply:
    """The time that nodes have, and how campaigns stand.

    ``busy`` has the spans in which nodes are not free for an exclusive run, ``recent`` is in
    seat-µs.
    """

    nodes: Collection[str]
    busy: Timetable
    shares: Mapping[str, float]
    recent: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ForecastRun:
    """A run to come: its nominal start, the latest and the expected one (µs)."""

    task: str
    campaign: str
    nominal: int
    start_by: int
    starts_at: int

    @property
    def is_late(self) -> bool:
        """Return whether it starts too late."""
        return self.starts_at > self.start_by


@dataclass(frozen=True, slots=True)
class _Demand:
    """A run of a candidate that is to be placed."""

    nominal: int
    duration: int
    of: Candidate


def forecast(candidates: Sequence[Candidate], supply: Supply, now: int) -> list[ForecastRun]:
    """Return the exclusive runs of these candidates, in the order in which they start.

    Runs of other classes share a node and are left out, as are candidates that need more nodes
    than there are.
    """
    queues = _queues(candidates, frozenset(supply.nodes))
    busy = {name: list(supply.busy.get(name, ())) for name in supply.nodes}
    work_done = {name: supply.recent.get(name, 0.0) for name in queues}
    heap = [
        (
            max(now, queue[0].nominal),
            _claim_order(work_done[name], supply.shares.get(name, 0.0)),
            name,
        )
        for name, queue in queues.items()
    ]
    heapq.heapify(heap)
    found: list[ForecastRun] = []
    while heap:
        since, standing, name = heap[0]
        demand = queues[name][0]
        start, nodes = _earliest_start(demand, busy, since)
        if start > since:
            # Another campaign may start before that.
            heapq.heapreplace(heap, (start, standing, name))
            continue
        queues[name].popleft()
        it = demand.of
        found.append(ForecastRun(it.task, name, demand.nominal, demand.nominal + it.slip, start))
        for node in nodes:
            _insert_span(busy[node], (start, start + demand.duration))
        work_done[name] += len(nodes) * demand.duration
        if queues[name]:
            standing = _claim_order(work_done[name], supply.shares.get(name, 0.0))
            following = max(now, queues[name][0].nominal)
            heapq.heapreplace(heap, (following, standing, name))
        else:
            heapq.heappop(heap)
    return found


def _queues(candidates: Sequence[Candidate], nodes: frozenset[str]) -> dict[str, deque[_Demand]]:
    """Return the runs to place by campaign, in the order of their nominal starts."""
    demands = [
        _Demand(start, end - start, it)
        for it in candidates
        if it.scheduling_class is SchedulingClass.EXCLUSIVE
        and len(nodes.intersection(it.nodes)) >= it.k
        for start, end in it.spans
    ]
    demands.sort(key=lambda demand: (demand.nominal, demand.of.added_at))
    queues: dict[str, deque[_Demand]] = {}
    for demand in demands[:RUNS_MAX]:
        queues.setdefault(demand.of.campaign, deque()).append(demand)
    return queues


def _earliest_start(
    demand: _Demand, busy: Mapping[str, Sequence[Span]], since: int
) -> tuple[int, list[str]]:
    """Return the first instant from ``since`` on at which enough nodes are free, and these."""
    names = [name for name in demand.of.nodes if name in busy]
    while True:
        free: list[str] = []
        later: list[int] = []
        for name in names:
            begin = first_gap(busy[name], since, demand.duration)
            if begin > since:
                later.append(begin)
                continue
            free.append(name)
            if len(free) == demand.of.k:
                return since, free
        # No start before the last of the missing nodes is free is possible.
        since = sorted(later)[demand.of.k - len(free) - 1]


def _insert_span(spans: list[Span], taken: Span) -> None:
    """Insert a span into sorted, disjoint ones, as one with those that it touches."""
    start, end = taken
    at = bisect_right(spans, taken)
    if at < len(spans) and spans[at][0] == end:
        end = spans.pop(at)[1]
    if at and spans[at - 1][1] == start:
        at -= 1
        start = spans.pop(at)[0]
    spans.insert(at, (start, end))


def _claim_order(work_done: float, share: float) -> tuple[bool, float]:
    return share <= 0, work_done / share if share > 0 else work_done
