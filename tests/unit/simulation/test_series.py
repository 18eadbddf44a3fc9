"""What is told of a world over time, by node, by waiting time and by pair."""

from __future__ import annotations

from collections import Counter
from statistics import median_low
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from lead.simulation.history import History
from lead.simulation.memory.rows import RunRow
from lead.simulation.series import by_node, over_time, pairs, step_for, waiting
from node.model.classes import SchedulingClass
from node.model.ids import TaskId, run_id
from node.model.times import DAY, HOUR, MINUTE, SECOND
from node.store.runs import DueRun

NODES = ["a", "b"]


def ended(history: History, task: int, slot: int, state: str, wait: int = 0) -> None:
    """A run of a slot came to its end."""
    key = UUID(int=task)
    run = run_id(TaskId(key), slot, 1)
    span = slot + wait, slot + wait + MINUTE
    over = RunRow(run, key, None, slot, 1, 0, "normal", 0, *span, state, 0, 0, reason="x")
    history.over(over, "default", 1)


def measured(history: History, node: str, start: int, length: int, kind: str) -> None:
    """A node measured for a while."""
    run = DueRun(
        id=UUID(int=start),
        task=UUID(int=0),
        participant=0,
        starts_at=start,
        ends_at=start + length,
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
    """And the next shorter one would not do, unless there is none."""
    step = step_for(length, parts)
    assert length <= step * parts or step == 28 * DAY
    assert step == SECOND or length > parts * step // 7


def test_slots_are_counted_where_they_were_due() -> None:
    """By their nominal starts, not by when they ran; what was not delivered by its state."""
    history = History(DAY, HOUR)
    ended(history, 1, DAY, "finished", wait=2 * HOUR)
    ended(history, 1, DAY + HOUR - 1, "failed")
    ended(history, 2, DAY + HOUR, "unplaced")
    ended(history, 2, DAY + 2 * HOUR, "unplaced")
    told = over_time(history, NODES, 3 * HOUR - 1)
    assert told.length == HOUR
    assert [p.after for p in told.periods] == [0, HOUR, 2 * HOUR]
    assert [(p.promised, p.delivered) for p in told.periods] == [(2, 1), (1, 0), (1, 0)]
    assert [p.not_delivered for p in told.periods] == [{"failed": 1}, *[{"unplaced": 1}] * 2]


def test_time_is_occupied_in_every_period_it_touches() -> None:
    """A run over a border counts on both sides, as long as it was in each."""
    history = History(DAY, HOUR)
    measured(history, "a", DAY + HOUR - 15 * MINUTE, 30 * MINUTE, "normal")
    measured(history, "b", DAY, HOUR, "normal")
    first, second = over_time(history, NODES, 2 * HOUR).periods
    assert [(o.least, o.median, o.most) for o in first.occupancy] == [(0.25, 0.625, 1)]
    assert [(o.least, o.median, o.most) for o in second.occupancy] == [(0, 0.125, 0.25)]
    assert [node.shares for node in by_node(history, NODES, 2 * HOUR)] == [
        {"normal": 0.25},
        {"normal": 0.5},
    ]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=300))
def test_waiting_times_are_all_counted(waits: list[int]) -> None:
    """Each run in one bar; so many waited no longer than what is told."""
    told = waiting(Counter(waits))
    assert told is not None
    assert sum(told.runs) == len(waits)
    assert len(told.runs) <= 40
    bars = Counter(wait * SECOND // told.step for wait in waits)
    assert list(told.runs) == [bars[number] for number in range(len(told.runs))]
    assert told.longest == max(waits) * SECOND
    assert sum(wait * SECOND > told.nearly_all for wait in waits) <= len(waits) // 100
    assert told.median == median_low(waits) * SECOND


def test_nobody_waited_where_nothing_was_delivered() -> None:
    """There is nothing to tell."""
    history = History(DAY, HOUR)
    ended(history, 1, DAY, "failed")
    assert waiting(history.waits) is None


def test_a_slot_waits_once() -> None:
    """A row that is looked at twice is one run."""
    history = History(DAY, HOUR)
    for _ in range(2):
        ended(history, 1, DAY, "finished", wait=90 * SECOND)
    assert history.waits == {90: 1}


def test_each_pair_has_its_runs() -> None:
    """Of three participants there are three pairs; the worst is named first."""
    history = History(DAY, HOUR)
    for slot, state in enumerate(("finished", "finished", "failed", "failed")):
        ended(history, 1, DAY + slot, state)
    ended(history, 2, DAY, "finished")
    told = pairs(["a", "b", "c"], [(UUID(int=1), [1, 0]), (UUID(int=2), [2, 0, 1])], history.slots)
    assert told is not None
    found = {(pair.one, pair.other): (pair.promised, pair.delivered) for pair in told.cells}
    assert found == {("a", "b"): (5, 3), ("a", "c"): (1, 1), ("b", "c"): (1, 1)}
    assert (told.count, told.complete) == (3, 2)
    assert [(pair.one, pair.other) for pair in told.worst] == [("a", "b")]


def test_many_nodes_are_told_in_groups() -> None:
    """A cell has all runs between two groups of neighbours, and those inside one."""
    history = History(DAY, HOUR)
    names = [f"n{number}" for number in range(1, 51)]
    places = [[0, 1], [0, 49], [2, 48]]
    for task in range(len(places)):
        ended(history, task, DAY, "finished" if task else "failed")
    parties = [(UUID(int=task), each) for task, each in enumerate(places)]
    told = pairs(names, parties, history.slots)
    assert told is not None
    assert told.groups[:2] == ("n1…n3", "n4…n6")
    assert told.groups[-1] == "n49…n50"
    found = {(pair.one, pair.other): (pair.promised, pair.delivered) for pair in told.cells}
    assert found == {("n1…n3", "n1…n3"): (1, 0), ("n1…n3", "n49…n50"): (2, 2)}


def test_who_measures_alone_has_no_pair() -> None:
    """There is nothing to tell."""
    history = History(DAY, HOUR)
    ended(history, 1, DAY, "finished")
    assert pairs(["a"], [(UUID(int=1), [0])], history.slots) is None
