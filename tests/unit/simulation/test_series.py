"""The figures of a world over time, by node, by waiting time, and by pair."""

from __future__ import annotations

from collections import Counter
from statistics import median_low
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lead.simulation.history import EndedRun, History
from lead.simulation.series import by_node, over_time, pairs, step_for, waiting_times
from node.model.classes import SchedulingClass
from node.model.ids import TaskId, run_id
from node.model.times import DAY, HOUR, MINUTE, SECOND
from node.store.runs import DueRun

NODES = ["a", "b"]


def record_end(history: History, task: int, slot: int, state: str, wait: int = 0) -> None:
    """Record the end of the run of a slot."""
    key = UUID(int=task)
    run = run_id(TaskId(key), slot, 1)
    span = slot + wait, slot + wait + MINUTE
    history.over(EndedRun(run, key, slot, 1, state, *span, "x", "default", 1), "a")


def record_measuring(history: History, node: str, start: int, length: int, kind: str) -> None:
    """Record that a node measured for ``length`` microseconds."""
    run = DueRun(
        id=UUID(int=start),
        task=UUID(int=0),
        participant=0,
        starts_at=start,
        ends_at=start + length,
        lead="a",
        test="idle",
        tool="idle",
        spec={},
        participants=(),
        addresses={},
        data={},
    )
    history.begins(node, run, SchedulingClass(kind))
    history.ends(node, run, length)


@given(st.integers(1, 400 * DAY), st.integers(1, 300))
def test_a_step_divides_into_no_more_parts_than_asked(length: int, parts: int) -> None:
    """A step is the shortest round duration that gives no more than the requested parts."""
    step = step_for(length, parts)
    assert length <= step * parts or step == 28 * DAY
    assert step == SECOND or length > parts * step // 7


def test_slots_are_counted_where_they_were_due() -> None:
    """Slots count in the period of their nominal start, lost ones by their state."""
    history = History(DAY, HOUR)
    record_end(history, 1, DAY, "finished", wait=2 * HOUR)
    record_end(history, 1, DAY + HOUR - 1, "failed")
    record_end(history, 2, DAY + HOUR, "unplaced")
    record_end(history, 2, DAY + 2 * HOUR, "unplaced")
    series = over_time(history, NODES, 3 * HOUR - 1)
    assert series.length == HOUR
    assert [p.after for p in series.periods] == [0, HOUR, 2 * HOUR]
    assert [(p.promised, p.delivered) for p in series.periods] == [(2, 1), (1, 0), (1, 0)]
    assert [p.not_delivered for p in series.periods] == [{"failed": 1}, *[{"unplaced": 1}] * 2]


def test_time_is_occupied_in_every_period_it_touches() -> None:
    """A run across the end of a period counts in both by its time in each."""
    history = History(DAY, HOUR)
    record_measuring(history, "a", DAY + HOUR - 15 * MINUTE, 30 * MINUTE, "normal")
    record_measuring(history, "b", DAY, HOUR, "normal")
    first, second = over_time(history, NODES, 2 * HOUR).periods
    assert [(o.least, o.median, o.most) for o in first.occupancy] == [(0.25, 0.625, 1)]
    assert [(o.least, o.median, o.most) for o in second.occupancy] == [(0, 0.125, 0.25)]
    assert [node.shares for node in by_node(history, NODES, 2 * HOUR)] == [
        {"normal": 0.25},
        {"normal": 0.5},
    ]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=300))
def test_waiting_times_are_all_counted(waits: list[int]) -> None:
    """Each run is in one bar, and the quantiles match the waits."""
    waits_summary = waiting_times(Counter(waits))
    assert waits_summary is not None
    assert sum(waits_summary.runs) == len(waits)
    assert len(waits_summary.runs) <= 40
    bars = Counter(wait * SECOND // waits_summary.step for wait in waits)
    assert list(waits_summary.runs) == [bars[number] for number in range(len(waits_summary.runs))]
    assert waits_summary.longest == max(waits) * SECOND
    assert sum(wait * SECOND > waits_summary.nearly_all for wait in waits) <= len(waits) // 100
    assert waits_summary.median == median_low(waits) * SECOND


def test_nobody_waited_where_nothing_was_delivered() -> None:
    """There are no waiting times when no run was delivered."""
    history = History(DAY, HOUR)
    record_end(history, 1, DAY, "failed")
    assert waiting_times(history.waits) is None


def test_a_slot_waits_once() -> None:
    """A run that is recorded twice counts once."""
    history = History(DAY, HOUR)
    for _ in range(2):
        record_end(history, 1, DAY, "finished", wait=90 * SECOND)
    assert history.waits == {90: 1}


def test_each_pair_has_its_runs() -> None:
    """A task of three participants counts for three pairs, and the worst pair comes first."""
    history = History(DAY, HOUR)
    for slot, state in enumerate(("finished", "finished", "failed", "failed")):
        record_end(history, 1, DAY + slot, state)
    record_end(history, 2, DAY, "finished")
    deliveries = pairs(
        ["a", "b", "c"], [(UUID(int=1), [1, 0]), (UUID(int=2), [2, 0, 1])], history.slots
    )
    assert deliveries is not None
    cells = {(pair.one, pair.other): (pair.promised, pair.delivered) for pair in deliveries.cells}
    assert cells == {("a", "b"): (5, 3), ("a", "c"): (1, 1), ("b", "c"): (1, 1)}
    assert (deliveries.count, deliveries.complete) == (3, 2)
    assert [(pair.one, pair.other) for pair in deliveries.worst] == [("a", "b")]


def test_many_nodes_are_grouped() -> None:
    """A cell counts all runs between two groups of neighbours, or inside one group."""
    history = History(DAY, HOUR)
    names = [f"n{number}" for number in range(1, 51)]
    places = [[0, 1], [0, 49], [2, 48]]
    for task in range(len(places)):
        record_end(history, task, DAY, "finished" if task else "failed")
    parties = [(UUID(int=task), each) for task, each in enumerate(places)]
    deliveries = pairs(names, parties, history.slots)
    assert deliveries is not None
    assert deliveries.groups[:2] == ("n1…n3", "n4…n6")
    assert deliveries.groups[-1] == "n49…n50"
    cells = {(pair.one, pair.other): (pair.promised, pair.delivered) for pair in deliveries.cells}
    assert cells == {("n1…n3", "n1…n3"): (1, 0), ("n1…n3", "n49…n50"): (2, 2)}


def test_who_measures_alone_has_no_pair() -> None:
    """There are no pairs when every task has one participant."""
    history = History(DAY, HOUR)
    record_end(history, 1, DAY, "finished")
    assert pairs(["a"], [(UUID(int=1), [0])], history.slots) is None
