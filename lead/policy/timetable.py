"""When nodes are busy, and where a run on several of them would find time first. Pure.

A timetable has the busy spans of each node, half-open and in µs: sorted, and none of them overlaps
another. A node without a span is free for ever.
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
"""By the class of a run that is to be placed, when nodes are busy with runs in its way."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A run that needs ``k`` of these nodes for ``duration`` µs."""

    task: str
    k: int
    duration: int
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and when a run would be."""

    start: int
    nodes: tuple[str, ...]


def booked(runs: Iterable[PostedRun]) -> dict[SchedulingClass, dict[str, list[Span]]]:
    """The timetables for every class, made once for all candidates of an episode."""
    spans: dict[SchedulingClass, dict[str, list[Span]]] = {it: {} for it in SchedulingClass}
    for run in runs:
        of_class = spans[run.scheduling_class]
        for name in run.nodes:
            of_class.setdefault(name, []).append((run.start, run.end))
    found: dict[SchedulingClass, dict[str, list[Span]]] = {}
    for asking in SchedulingClass:
        taken: dict[str, list[Span]] = {}
        for in_the_way in blockers(asking):
            for name, some in spans[in_the_way].items():
                taken.setdefault(name, []).extend(some)
        found[asking] = {name: normalise(some) for name, some in taken.items()}
    return found


def timetable_for(
    candidate: Candidate, taken: Booked, reservations: Iterable[ReservationView]
) -> dict[str, Sequence[Span]]:
    """When its nodes are busy for a candidate: with runs in its way, or kept for others."""
    runs = taken[candidate.scheduling_class]
    busy: dict[str, Sequence[Span]] = {name: runs.get(name, ()) for name in candidate.nodes}
    for reservation in reservations:
        if not reservation.admits(candidate):
            for name in reservation.nodes:
                if name in busy:
                    kept = (reservation.start, reservation.end)
                    busy[name] = normalise([*busy[name], kept])
    return busy


def free_for(timetable: Timetable, at: int) -> dict[str, int | None]:
    """How long each node that is free at an instant stays so (µs); None is without an end."""
    found: dict[str, int | None] = {}
    for name, spans in timetable.items():
        begin, end = next(_gaps(spans, at))
        if begin == at:
            found[name] = None if end is None else end - at
    return found


def has_gap(spans: Sequence[Span], window: Span, duration: int) -> bool:
    """Whether a busy node is free for so long somewhere in a window."""
    start, end = window
    for begin, stop in _gaps(spans, start):
        if begin + duration > end:
            return False
        if stop is None or stop - begin >= duration:
            return True
    return False


def free_from(timetable: Timetable, now: int) -> dict[str, int]:
    """When each node is free first, from now on."""
    return {name: next(_gaps(spans, now))[0] for name, spans in timetable.items()}


def _gaps(spans: Sequence[Span], since: int) -> Iterator[tuple[int, int | None]]:
    """The free ranges from an instant on, in order; the last one has no end."""
    free_from = since
    for at in range(max(0, bisect_right(spans, (since, since)) - 1), len(spans)):
        start, end = spans[at]
        if start > free_from:
            yield free_from, start
        free_from = max(free_from, end)
    yield free_from, None


def earliest(timetable: Timetable, request: PlacementRequest, now: int) -> Placement | None:
    """The first time from ``now`` on at which ``k`` nodes are free together for the duration.

    Of the nodes that are, those that became free last are taken, and of these the ones that have
    the least left afterwards: what is free already stays so for others. None: not enough nodes.
    """
    if len(request.nodes) < request.k:
        return None
    gaps = [
        (begin, end, place)
        for place, name in enumerate(request.nodes)
        for begin, end in _gaps(timetable.get(name, ()), now)
        if end is None or end - begin >= request.duration
    ]
    start = _enough(gaps, request)
    open_then = [
        (-begin, end is None, end or 0, place)
        for begin, end, place in gaps
        if begin <= start and (end is None or start + request.duration <= end)
    ]
    chosen = sorted(open_then)[: request.k]
    return Placement(start, tuple(request.nodes[place] for *_, place in chosen))


def _enough(gaps: Iterable[tuple[int, int | None, int]], request: PlacementRequest) -> int:
    """The first instant at which ``k`` gaps are open for a start."""
    changes = []
    for begin, end, _ in gaps:
        changes.append((begin, -1))
        if end is not None:
            # Closed ranges of starts: at the last one the run still fits in.
            changes.append((end - request.duration, 1))
    count, start = 0, 0
    for instant, change in sorted(changes):
        count -= change
        start = instant
        if count >= request.k:
            break
    return start
