"""The outcome of a simulated world over time, by node, by pair and by waiting time. Pure.

These are the figures of the report that :mod:`lead.simulation.drawing` draws; ``-o json`` has them
too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, combinations
from statistics import median
from uuid import UUID

from lead.simulation.history import History
from node.model import times
from node.model.wire.fields import Document, Duration

_PERIODS_MAX = 200
_BARS_MAX = 40
_GROUPS_MAX = 24
_WORST = 5
_RARE = 100
"""One run in this many may wait longer than ``nearly_all``."""
_STEPS = tuple(
    count * unit
    for unit, counts in (
        (times.SECOND, (1, 2, 5, 10, 15, 30)),
        (times.MINUTE, (1, 2, 5, 10, 15, 30)),
        (times.HOUR, (1, 2, 3, 6, 12)),
        (times.DAY, (1, 2, 7, 28)),
    )
    for count in counts
)

Slots = Mapping[UUID, Mapping[int, object]]


class OccupancySeries(Document):
    """The share of time that nodes spent measuring in one scheduling class."""

    scheduling_class: str
    least: float
    median: float
    most: float


class Period(Document):
    """A period of the simulated days: its due runs and the occupancy of the nodes."""

    after: Duration
    promised: int
    delivered: int
    not_delivered: dict[str, int]
    occupancy: tuple[OccupancySeries, ...]


class PeriodSeries(Document):
    """All periods from the beginning of the simulated days."""

    length: Duration
    periods: tuple[Period, ...]


class NodeShare(Document):
    """The occupancy of one node by scheduling class."""

    node: str
    shares: dict[str, float]


class WaitingTimes(Document):
    """The time from the nominal to the actual start of the delivered runs.

    ``runs[i]`` is the number of runs that waited at least ``i`` but less than ``i + 1`` times
    ``step``. All but one run in a hundred waited no longer than ``nearly_all``.
    """

    step: Duration
    runs: tuple[int, ...]
    median: Duration
    nearly_all: Duration
    longest: Duration


class PairDelivery(Document):
    """The delivery of the runs of two nodes, or of two groups of nodes."""

    one: str
    other: str
    promised: int
    delivered: int


class PairDeliveries(Document):
    """Delivery by pair; with many nodes by groups of nodes that are neighbours in their order."""

    count: int
    complete: int
    groups: tuple[str, ...]
    cells: tuple[PairDelivery, ...]
    worst: tuple[PairDelivery, ...]


def step_for(length: int, parts: int = _PERIODS_MAX) -> int:
    """Return the shortest round duration that divides ``length`` into at most ``parts`` parts."""
    return next((step for step in _STEPS if length <= step * parts), _STEPS[-1])


def over_time(history: History, nodes: Sequence[str], duration: int) -> PeriodSeries:
    """Return the outcomes by nominal start, and the occupancy by the time of measuring."""
    length = history.period
    promised: Counter[int] = Counter()
    delivered: Counter[int] = Counter()
    lost: dict[int, Counter[str]] = defaultdict(Counter)
    for slots in history.slots.values():
        for slot, outcome in slots.items():
            number = (slot - history.begins_at) // length
            promised[number] += 1
            if isinstance(outcome, int):
                delivered[number] += 1
            else:
                lost[number][outcome[1]] += 1
    count = -(-duration // length)
    classes = sorted({kind for by in history.occupied.values() for _, kind in by})
    periods = [
        Period(
            after=number * length,
            promised=promised[number],
            delivered=delivered[number],
            not_delivered={state: lost[number][state] for state in sorted(lost[number])},
            occupancy=tuple(
                occupancy(kind, [history.occupied[node][number, kind] / length for node in nodes])
                for kind in classes
            ),
        )
        for number in range(count)
    ]
    return PeriodSeries(length=length, periods=tuple(periods))


def occupancy(scheduling_class: str, shares: Sequence[float]) -> OccupancySeries:
    """Return the occupancy of one class from the share of each node."""
    return OccupancySeries(
        scheduling_class=scheduling_class,
        least=round(min(shares), 4),
        median=round(median(shares), 4),
        most=round(max(shares), 4),
    )


def by_node(history: History, nodes: Sequence[str], duration: int) -> tuple[NodeShare, ...]:
    """Return the occupancy of each node over the whole time."""
    node_shares = []
    for node in nodes:
        measured: Counter[str] = Counter()
        for (_, kind), length in history.occupied[node].items():
            measured[kind] += length
        shares = {kind: round(measured[kind] / duration, 6) for kind in sorted(measured)}
        node_shares.append(NodeShare(node=node, shares=shares))
    return tuple(node_shares)


def waiting_times(waits: Mapping[int, int]) -> WaitingTimes | None:
    """Return the waiting times from a count of runs by seconds; None if no run was delivered."""
    ordered = sorted(waits.items())
    total = sum(waits.values())
    if not total:
        return None
    longest = max(0, ordered[-1][0]) * times.SECOND
    step = step_for(longest + times.SECOND, _BARS_MAX)
    runs: Counter[int] = Counter()
    for seconds, count in ordered:
        runs[max(0, seconds) * times.SECOND // step] += count
    return WaitingTimes(
        step=step,
        runs=tuple(runs[number] for number in range(longest // step + 1)),
        median=_waiting_time(ordered, total - total // 2),
        nearly_all=_waiting_time(ordered, total - total // _RARE),
        longest=longest,
    )


def _waiting_time(ordered: Sequence[tuple[int, int]], rank: int) -> int:
    """Return the waiting time of this rank, counted from 1 in the order of waiting."""
    passed = list(accumulate(count for _, count in ordered))
    return max(0, ordered[bisect_left(passed, rank)][0]) * times.SECOND


def pairs(
    nodes: Sequence[str], parties: Iterable[tuple[UUID, Sequence[int]]], slots: Slots
) -> PairDeliveries | None:
    """Return the delivery by pair; None if all tasks have one participant.

    ``parties`` has the participants of each task as indexes into ``nodes``.
    """
    counts: dict[tuple[int, int], list[int]] = {}
    for task, places in parties:
        outcomes = slots.get(task, {})
        delivered = sum(isinstance(outcome, int) for outcome in outcomes.values())
        for pair in combinations(sorted(places), 2):
            both = counts.setdefault(pair, [0, 0])
            both[0] += len(outcomes)
            both[1] += delivered
    counts_due = {pair: both for pair, both in sorted(counts.items()) if both[0]}
    if not counts_due:
        return None
    worst = sorted(counts_due.items(), key=lambda entry: (entry[1][1] / entry[1][0], entry[0]))
    size = -(-len(nodes) // _GROUPS_MAX)
    groups = [
        nodes[first] if size == 1 else f"{nodes[first]}…{nodes[min(first + size, len(nodes)) - 1]}"
        for first in range(0, len(nodes), size)
    ]
    return PairDeliveries(
        count=len(counts_due),
        complete=sum(both[0] == both[1] for both in counts_due.values()),
        groups=tuple(groups),
        cells=_cells(counts_due, groups, size),
        worst=tuple(_pair(nodes, pair, both) for pair, both in worst[:_WORST] if both[1] < both[0]),
    )


def _cells(
    counts_due: Mapping[tuple[int, int], Sequence[int]], groups: Sequence[str], size: int
) -> tuple[PairDelivery, ...]:
    cells: dict[tuple[int, int], list[int]] = {}
    for (one, other), (promised, delivered) in counts_due.items():
        both = cells.setdefault((one // size, other // size), [0, 0])
        both[0] += promised
        both[1] += delivered
    return tuple(_pair(groups, cell, both) for cell, both in sorted(cells.items()))


def _pair(names: Sequence[str], places: tuple[int, int], both: Sequence[int]) -> PairDelivery:
    one, other = places
    return PairDelivery(one=names[one], other=names[other], promised=both[0], delivered=both[1])
