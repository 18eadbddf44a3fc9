"""When nodes are busy, and where a run on several of them would find time first. Pure.

A timetable has the busy spans of each node, half-open and in µs. They may lie in any order and
overlap; a node without a span is free for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lead.policy.view import Candidate, PostedRun, Reservation
from node.model.classes import blockers
from node.model.spans import Span

Timetable = Mapping[str, Sequence[Span]]


@dataclass(frozen=True, slots=True)
class Request:
    """A run that needs ``k`` of these nodes for ``duration`` µs."""

    task: str
    k: int
    duration: int
    nodes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where and when a run would be."""

    start: int
    nodes: tuple[str, ...]


def timetable_for(
    candidate: Candidate, runs: Iterable[PostedRun], reservations: Iterable[Reservation]
) -> dict[str, list[Span]]:
    """When its nodes are busy for a candidate: with runs in its way, or kept for others."""
    busy: dict[str, list[Span]] = {name: [] for name in candidate.nodes}
    in_the_way = blockers(candidate.scheduling_class)
    taken: list[tuple[Sequence[str], Span]] = [
        (run.nodes, (run.start, run.end)) for run in runs if run.scheduling_class in in_the_way
    ]
    taken += [(it.nodes, (it.start, it.end)) for it in reservations if not it.admits(candidate)]
    for names, span in taken:
        for name in names:
            if name in busy:
                busy[name].append(span)
    return busy


def free_for(timetable: Timetable, now: int) -> dict[str, int | None]:
    """How long each node that is free now stays so (µs); None is without an end."""
    found: dict[str, int | None] = {}
    for name, spans in timetable.items():
        begin, end = next(_gaps(spans, now), (now + 1, None))
        if begin == now:
            found[name] = None if end is None else end - now
    return found


def _gaps(spans: Iterable[Span], now: int) -> Iterator[tuple[int, int | None]]:
    """The free ranges from ``now`` on, in order; the last one has no end."""
    free_from = now
    for start, end in sorted(spans):
        if start > free_from:
            yield free_from, start
        free_from = max(free_from, end)
    yield free_from, None


def earliest(timetable: Timetable, request: Request, now: int) -> Place | None:
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
    return Place(start, tuple(request.nodes[place] for *_, place in chosen))


def _enough(gaps: Iterable[tuple[int, int | None, int]], request: Request) -> int:
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
