"""What came of a simulated world over time, by node, by pair and by waiting time. Pure.

The figures of the report that are drawn rather than read: :mod:`lead.simulation.drawing` draws
them, ``-o json`` has them.
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
"""One of so many runs waits longer than what all but the rare ones wait."""
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
    """The share of the time that nodes spent measuring, for one scheduling class."""

    scheduling_class: str
    least: float
    median: float
    most: float


class Period(Document):
    """A while of the simulated days: what was due in it, and how full the nodes were."""

    after: Duration
    promised: int
    delivered: int
    not_delivered: dict[str, int]
    occupancy: tuple[OccupancySeries, ...]


class PeriodSeries(Document):
    """Period by period, from the beginning of the simulated days."""

    length: Duration
    periods: tuple[Period, ...]


class NodeShare(Document):
    """How full one node was, by scheduling class."""

    node: str
    shares: dict[str, float]


class WaitingTimes(Document):
    """How long after their nominal starts the delivered runs began.

    ``runs`` has how many waited up to one ``step``, up to two, and so on. ``nearly_all``: all but
    one in a hundred waited no longer.
    """

    step: Duration
    runs: tuple[int, ...]
    median: Duration
    nearly_all: Duration
    longest: Duration


class PairDelivery(Document):
    """Two nodes, or two groups of nodes, and the runs in which both were to take part."""

    one: str
    other: str
    promised: int
    delivered: int


class PairDeliveries(Document):
    """Delivery by pair; where there are many nodes, by groups of neighbours in their order."""

    count: int
    complete: int
    groups: tuple[str, ...]
    cells: tuple[PairDelivery, ...]
    worst: tuple[PairDelivery, ...]


def step_for(length: int, parts: int = _PERIODS_MAX) -> int:
    """The shortest round duration that divides ``length`` into no more than so many parts."""
    return next((step for step in _STEPS if length <= step * parts), _STEPS[-1])


def over_time(history: History, nodes: Sequence[str], duration: int) -> PeriodSeries:
    """The slots by their nominal starts, the occupancy by when it was."""
    length = history.period
    promised: Counter[int] = Counter()
    delivered: Counter[int] = Counter()
    lost: dict[int, Counter[str]] = defaultdict(Counter)
    for slots in history.slots.values():
        for slot, became in slots.items():
            number = (slot - history.begins_at) // length
            promised[number] += 1
            if isinstance(became, int):
                delivered[number] += 1
            else:
                lost[number][became[1]] += 1
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
    """Of one class, given the share of each node."""
    return OccupancySeries(
        scheduling_class=scheduling_class,
        least=round(min(shares), 4),
        median=round(median(shares), 4),
        most=round(max(shares), 4),
    )


def by_node(history: History, nodes: Sequence[str], duration: int) -> tuple[NodeShare, ...]:
    """How full each node was over the whole time."""
    found = []
    for node in nodes:
        measured: Counter[str] = Counter()
        for (_, kind), length in history.occupied[node].items():
            measured[kind] += length
        shares = {kind: round(measured[kind] / duration, 6) for kind in sorted(measured)}
        found.append(NodeShare(node=node, shares=shares))
    return tuple(found)


def waiting(waits: Mapping[int, int]) -> WaitingTimes | None:
    """Given how many runs waited so many seconds; None if none was delivered."""
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
        median=_waited(ordered, total - total // 2),
        nearly_all=_waited(ordered, total - total // _RARE),
        longest=longest,
    )


def _waited(ordered: Sequence[tuple[int, int]], rank: int) -> int:
    """How long the one of this rank waited, counted from 1 in the order of waiting."""
    passed = list(accumulate(count for _, count in ordered))
    return max(0, ordered[bisect_left(passed, rank)][0]) * times.SECOND


def pairs(
    nodes: Sequence[str], parties: Iterable[tuple[UUID, Sequence[int]]], slots: Slots
) -> PairDeliveries | None:
    """Given the participants of each task, as places in ``nodes``; None if all measure alone."""
    counted: dict[tuple[int, int], list[int]] = {}
    for task, places in parties:
        became = slots.get(task, {})
        delivered = sum(isinstance(one, int) for one in became.values())
        for pair in combinations(sorted(places), 2):
            both = counted.setdefault(pair, [0, 0])
            both[0] += len(became)
            both[1] += delivered
    asked = {pair: both for pair, both in sorted(counted.items()) if both[0]}
    if not asked:
        return None
    worst = sorted(asked.items(), key=lambda entry: (entry[1][1] / entry[1][0], entry[0]))
    size = -(-len(nodes) // _GROUPS_MAX)
    groups = [
        nodes[first] if size == 1 else f"{nodes[first]}…{nodes[min(first + size, len(nodes)) - 1]}"
        for first in range(0, len(nodes), size)
    ]
    return PairDeliveries(
        count=len(asked),
        complete=sum(both[0] == both[1] for both in asked.values()),
        groups=tuple(groups),
        cells=_cells(asked, groups, size),
        worst=tuple(_pair(nodes, pair, both) for pair, both in worst[:_WORST] if both[1] < both[0]),
    )


def _cells(
    asked: Mapping[tuple[int, int], Sequence[int]], groups: Sequence[str], size: int
) -> tuple[PairDelivery, ...]:
    cells: dict[tuple[int, int], list[int]] = {}
    for (one, other), (promised, delivered) in asked.items():
        both = cells.setdefault((one // size, other // size), [0, 0])
        both[0] += promised
        both[1] += delivered
    return tuple(_pair(groups, cell, both) for cell, both in sorted(cells.items()))


def _pair(names: Sequence[str], places: tuple[int, int], both: Sequence[int]) -> PairDelivery:
    one, other = places
    return PairDelivery(one=names[one], other=names[other], promised=both[0], delivered=both[1])
