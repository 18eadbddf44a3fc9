"""The busy times of nodes, and the earliest time for a run on several of them. Pure.

A timetable has the busy spans of each node: half-open, in µs, sorted, and disjoint. A node without
a span is free forever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lead.policy.view import Candidate, PostedRun, ReservationView
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span, normalise

Timetable = Mapping[str, Sequence[Span]]
Booked = Mapping[SchedulingClass, Timetable]
"""The busy times of nodes, by the class of the run to be placed: all runs that conflict with it."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A run that needs ``k`` of these nodes for ``duration`` µs."""

    task: str
    k: int
    duration: int
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Placement:
    """The start (µs) and the nodes of a run to be placed."""

    start: int
    nodes: tuple[str, ...]


def timetables_by_class(runs: Iterable[PostedRun]) -> dict[SchedulingClass, dict[str, list[Span]]]:
    """Return the timetables of every class, computed once for all candidates of an episode."""
    spans: dict[SchedulingClass, dict[str, list[Span]]] = {it: {} for it in SchedulingClass}
    for run in runs:
        of_class = spans[run.scheduling_class]
        for name in run.nodes:
            of_class.setdefault(name, []).append((run.start, run.end))
    timetables: dict[SchedulingClass, dict[str, list[Span]]] = {}
    for wanted_class in SchedulingClass:
        busy: dict[str, list[Span]] = {}
        for blocker in blockers(wanted_class):
            for name, runs_of_node in spans[blocker].items():
                busy.setdefault(name, []).extend(runs_of_node)
        timetables[wanted_class] = {
            name: normalise(runs_of_node) for name, runs_of_node in busy.items()
        }
    return timetables


def timetable_for(
    candidate: Candidate, taken: Booked, reservations: Iterable[ReservationView]
) -> dict[str, Sequence[Span]]:
    """Return when the candidate's nodes are busy with conflicting runs or reserved for others."""
    runs = taken[candidate.scheduling_class]
    busy: dict[str, Sequence[Span]] = {name: runs.get(name, ()) for name in candidate.nodes}
    for reservation in reservations:
        if not reservation.admits(candidate):
            for name in reservation.nodes:
                if name in busy:
                    reserved = (reservation.start, reservation.end)
                    busy[name] = normalise([*busy[name], reserved])
    return busy


def free_times(timetable: Timetable, at: int) -> dict[str, int | None]:
    """Return how long each node that is free at ``at`` stays free (µs); None has no end."""
    durations: dict[str, int | None] = {}
    for name, spans in timetable.items():
        begin, end = next(_gaps(spans, at))
        if begin == at:
            durations[name] = None if end is None else end - at
    return durations


def first_gap(spans: Sequence[Span], since: int, duration: int) -> int:
    """Return the first instant from ``since`` on from which a node is free for ``duration`` µs."""
    free_from = since
    # Not by _gaps: forecasts ask this a million times.
    for at in range(max(0, bisect_right(spans, (since, since)) - 1), len(spans)):
        start, end = spans[at]
        if start > free_from and start - free_from >= duration:
            break
        free_from = max(free_from, end)
    return free_from


def _gaps(spans: Sequence[Span], since: int) -> Iterator[tuple[int, int | None]]:
    """Yield the free ranges from ``since`` on, in order; the last one has no end."""
    free_from = since
    for at in range(max(0, bisect_right(spans, (since, since)) - 1), len(spans)):
        start, end = spans[at]
        if start > free_from:
            yield free_from, start
        free_from = max(free_from, end)
    yield free_from, None


def earliest_placement(
    timetable: Timetable, request: PlacementRequest, now: int
) -> Placement | None:
    """Return the first time from ``now`` on at which ``k`` nodes are free for the duration.

    Of the nodes that are free then, those that became free last are chosen, and of these the ones
    with the least time left afterwards: this preserves long free time for others. Return None if
    there are not enough nodes.
    """
    if len(request.nodes) < request.k:
        return None
    gaps = [
        (begin, end, place)
        for place, name in enumerate(request.nodes)
        for begin, end in _gaps(timetable.get(name, ()), now)
        if end is None or end - begin >= request.duration
    ]
    start = _first_start(gaps, request)
    open_then = [
        (-begin, end is None, end or 0, place)
        for begin, end, place in gaps
        if begin <= start and (end is None or start + request.duration <= end)
    ]
    chosen = sorted(open_then)[: request.k]
    return Placement(start, tuple(request.nodes[place] for *_, place in chosen))


def _first_start(gaps: Iterable[tuple[int, int | None, int]], request: PlacementRequest) -> int:
    """Return the first instant at which ``k`` gaps admit a start."""
    changes = []
    for begin, end, _ in gaps:
        changes.append((begin, -1))
        if end is not None:
            # Closed ranges of starts: at the last instant the run still fits.
            changes.append((end - request.duration, 1))
    # At equal instants openings (-1) sort before closings (1), since the ranges are closed.
    count, start = 0, 0
    for instant, change in sorted(changes):
        count -= change
        start = instant
        if count >= request.k:
            break
    return start
