"""The choice of nodes and starts among all proposals, for the driver of an episode. Pure.

Takes the free ranges that each node proposed (sorted, disjoint) and returns the start on each node
that takes part, or nothing. Ranges are in µs; time reserved for others is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lead.policy.placement_requests import Ask
from lead.policy.select.affinity import starts_at
from node.model.spans import Span, clip, normalise, subtract

Free = Mapping[str, Sequence[Span]]


def starts_by_node(ask: Ask, free: Free) -> dict[str, int]:
    """Return the start on each node that takes part; empty if too few have time."""
    ranges = {name: _starts(ask, name, free[name]) for name in ask.nodes if name in free}
    ranges = {name: spans for name, spans in ranges.items() if spans}
    if len(ranges) < ask.least:
        return {}
    if ask.candidate.together or ask.candidate.named:
        return _common_start(ask, ranges)
    return _separate_starts(ask, {name: spans[0][0] for name, spans in ranges.items()})


def _starts(ask: Ask, name: str, free: Sequence[Span]) -> list[Span]:
    """Return the closed ranges of possible starts on one node."""
    candidate = ask.candidate
    inside = clip(list(free), candidate.next_run_at, candidate.start_by + candidate.duration)
    avoided = [it.span for it in ask.avoid.get(name, ())]
    avoided += [(it.start, it.end) for it in ask.full]
    if avoided:
        inside = subtract(inside, normalise(avoided))
    length = candidate.duration
    return [(start, end - length) for start, end in inside if end - start >= length]


def _separate_starts(ask: Ask, first: Mapping[str, int]) -> dict[str, int]:
    """Choose node by node: a usual one if it is worth waiting for, else the best of the others."""
    usual = {name: at for name, at in first.items() if name in ask.usual}
    others = {name: at for name, at in first.items() if name not in ask.usual}
    chosen: dict[str, int] = {}
    while len(chosen) < ask.wanted and (usual or others):
        choice = starts_at(
            ask.candidate.next_run_at,
            min(usual.values(), default=None),
            min(others.values(), default=None),
            ask.patience,
        )
        if choice is None:
            break
        affine, at = choice
        group = usual if affine else others
        name = next(name for name, start in group.items() if start <= at)
        chosen[name] = group.pop(name)
    return chosen if len(chosen) >= ask.least else {}


def _common_start(ask: Ask, ranges: Mapping[str, Sequence[Span]]) -> dict[str, int]:
    """Return the earliest start that enough nodes have in common, on the best of these."""
    at, fitting = next(common_starts(ranges, ask.wanted), (0, []))
    return dict.fromkeys(fitting[: ask.wanted], at)


def common_starts(ranges: Free, wanted: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the instants at which one more of at least ``wanted`` nodes can start, with all these.

    ``ranges`` are the closed ranges of possible starts by node, in the order in which they are
    wanted. Any set of so many nodes that can start together can do so at one of these instants.
    """
    changes = sorted(
        change
        for spans in ranges.values()
        for begin, end in spans
        for change in ((begin, 0), (end, 1))
    )
    # At equal instants openings (0) sort before closings (1), since the ranges are closed.
    count = 0
    for at, closes in changes:
        count += -1 if closes else 1
        if count >= wanted and not closes:
            yield (
                at,
                [
                    name
                    for name, spans in ranges.items()
                    if any(begin <= at <= end for begin, end in spans)
                ],
            )
