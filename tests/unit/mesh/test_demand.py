"""Tests of the demand of a mesh: the load of nodes, what would fit, and whether slip suffices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.mesh.demand import (
    EntryDemand,
    Load,
    count_tasks,
    interval_of,
    loads,
    meeting_starts,
    overbooking_findings,
    round_up_interval,
    short_slips,
)
from node.mesh.expansion import MeasurementPair
from node.mesh.spreading import longest_wait, phase_of
from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.tasks import ScheduleTerms
from tests.unit.mesh.kept import NOW

CLASSES = list(SchedulingClass)
SHAPES = st.builds(
    EntryDemand, st.integers(1, 600).map(lambda s: s * times.SECOND), st.sampled_from(CLASSES),
    st.just(value=True), st.booleans(),
)  # fmt: skip
ENDS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.sampled_from("def")))


@given(ends=ENDS, shapes=st.lists(SHAPES, min_size=3, max_size=3), lanes=st.integers(1, 8))
def test_a_share_is_the_sum_of_its_runs(
    ends: list[tuple[int, str, str]], shapes: list[EntryDemand], lanes: int
) -> None:
    """Every task adds its duration over its interval to each node that takes part."""
    pairs = [MeasurementPair(*each) for each in ends]
    by_number = dict(enumerate(shapes))
    intervals = {0: times.HOUR, 1: times.DAY, 2: None}
    tasks = count_tasks(pairs, by_number)
    node_loads = loads(tasks, by_number, intervals, dict.fromkeys("abcdef", lanes), {"a": 0.25})
    for node, load in node_loads.items():
        wanted = dict.fromkeys(CLASSES, 0.0)
        for measure, source, dest in pairs:
            shape = shapes[measure]
            took_part = node == source or (node == dest and shape.dest)
            if took_part and intervals[measure]:
                wanted[shape.scheduling_class] += shape.duration / (intervals[measure] or 1)
        assert load.exclusive == pytest.approx(wanted[SchedulingClass.EXCLUSIVE])
        assert load.normal == pytest.approx(wanted[SchedulingClass.NORMAL] / lanes)
        assert load.others == (0.25 if node == "a" else None)
        assert load.booked_share == pytest.approx(
            (load.others or 0) + sum(load.by_measure.values())
        )


def test_an_overbooked_node() -> None:
    """A finding names the worst node, its entries, and the interval at which it would fit."""
    intervals: dict[int, int | None] = {0: 10 * times.MINUTE, 1: times.HOUR}
    node_loads = {
        "a": Load(0.8, by_measure={0: 0.8}),
        "b": Load(1.3, 0.1, by_measure={0: 1.2, 1: 0.2}),
        "c": Load(1.2, others=0.1, by_measure={0: 1.2}),
    }
    [finding] = overbooking_findings(node_loads, intervals, ["fill", "delay"])
    assert finding.pointer == "/measure/0/schedule"
    assert finding.detail == (
        "b is 140% booked: 120% by measure 1 (fill), 20% by measure 2 (delay); so is 1 other "
        "(130% and more)"
    )
    assert finding.remedy == "an interval of 20 min would fit, or fewer pairs"
    full = {"a": Load(0.2, others=0.95, by_measure={0: 0.2})}
    assert "others have booked" in overbooking_findings(full, intervals, ["fill"])[0].remedy


@given(own=st.floats(0.5, 50), rest=st.floats(0, 0.85))
def test_the_interval_that_is_recommended_fits(own: float, rest: float) -> None:
    """A node is not overbooked at the recommended interval."""
    interval = 10 * times.MINUTE
    load = Load(own + rest, by_measure={0: own, 1: min(rest, own / 2)})
    for finding in overbooking_findings({"a": load}, {0: interval, 1: interval}, ["x", "y"]):
        written = finding.remedy.removeprefix("an interval of ").split(" would")[0]
        longer = times.parse_duration(written)
        assert own * interval / longer + rest <= 1


@given(duration=st.integers(1, 400 * times.DAY))
def test_nice_intervals_are_never_shorter(duration: int) -> None:
    """A rounded interval is not shorter than the original, and has one unit."""
    assert round_up_interval(duration) >= duration
    assert len(times.format_duration(round_up_interval(duration))) <= 6


def test_a_slip_for_all_that_want_to_start_at_once() -> None:
    """A slip is too short if the last exclusive run of a node cannot wait for all others."""
    exclusive = EntryDemand(20 * times.SECOND, SchedulingClass.EXCLUSIVE)
    pairs = [MeasurementPair(0, "a", dest) for dest in "bcdefghijk"]
    tasks = count_tasks(pairs, {0: exclusive})
    short = ScheduleTerms(start=NOW, repeat=times.HOUR, slip=times.MINUTE)
    [finding] = short_slips(tasks, {0: exclusive}, {0: ("hourly", short)}, NOW)
    assert finding.pointer == "/schedules/hourly/slip"
    assert finding.detail == (
        "a has 10 exclusive runs at each start, one after the other: the last begins 3 min later, "
        "and the slip is 1 min"
    )
    assert finding.remedy == 'slip = "PT5M"'
    enough = ScheduleTerms(start=NOW, repeat=times.HOUR, slip=3 * times.MINUTE)
    assert short_slips(tasks, {0: exclusive}, {0: ("hourly", enough)}, NOW) == []
    normal = EntryDemand(20 * times.SECOND, SchedulingClass.NORMAL)
    assert short_slips(tasks, {0: normal}, {0: ("hourly", short)}, NOW) == []
    never = ScheduleTerms(start=NOW, repeat=3 * times.MINUTE)
    assert short_slips(tasks, {0: exclusive}, {0: ("hourly", never)}, NOW) == []
    spread = ScheduleTerms(repeat=times.HOUR, slip=times.MINUTE)
    assert short_slips(tasks, {0: exclusive}, {0: ("hourly", spread)}, NOW) == []


def test_a_slip_for_spread_runs_that_meet() -> None:
    """A slip is too short if spread exclusive runs of a node meet for longer than that."""
    exclusive = EntryDemand(20 * times.SECOND, SchedulingClass.EXCLUSIVE)
    pairs = {f"fill/a/{dest}": MeasurementPair(0, "a", dest) for dest in "bcdefghijk"}
    phases = {key: phase_of("lab", key, 5 * times.MINUTE) for key in pairs}
    runs = [(phase, exclusive.duration) for phase in phases.values()]
    wait = longest_wait(runs, 5 * times.MINUTE)
    short = ScheduleTerms(repeat=5 * times.MINUTE, slip=wait - 1)
    [finding] = meeting_starts(pairs, {0: exclusive}, {0: ("often", short)}, phases)
    assert finding.pointer == "/schedules/often/slip"
    assert "repeat" not in finding.remedy
    enough = ScheduleTerms(repeat=5 * times.MINUTE, slip=wait)
    assert meeting_starts(pairs, {0: exclusive}, {0: ("often", enough)}, phases) == []
    tight = {0: ("often", ScheduleTerms(repeat=210 * times.SECOND, slip=0))}
    [finding] = meeting_starts(pairs, {0: exclusive}, tight, phases)
    assert finding.remedy.endswith(', or repeat = "PT5M"')  # 10 runs of 20 s, and two rounds more
    normal = EntryDemand(20 * times.SECOND, SchedulingClass.NORMAL)
    assert meeting_starts(pairs, {0: normal}, {0: ("often", short)}, phases) == []


def test_intervals_of_schedules() -> None:
    """The interval of cron is the mean of a week, and a single run has none."""
    assert interval_of(ScheduleTerms(repeat=times.HOUR), NOW) == times.HOUR
    assert interval_of(ScheduleTerms(), NOW) is None
    weekdays = ScheduleTerms(cron="0 8-17 * * 1-5")
    assert interval_of(weekdays, NOW) == pytest.approx(7 * times.DAY / 50, rel=0.02)
