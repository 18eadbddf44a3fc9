"""Intervals of a run in progress: merged at its lead as they arrive, and kept afterwards."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.execution.intervals import GRACE
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import Conflict, InvalidDocument, NotAllowed
from node.model.intervals import Interval
from node.model.reasons import no_share_in_time
from node.model.wire.participants import IntervalShare, IntervalsMessage
from node.store import intervals, runs
from node.store.runs import KeptPart
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Site, World, book_everywhere, introduction
from tests.unit.plugins.records import (
    SPEC,
    at_dest,
    at_source,
    reflector_record,
    sender_record,
    silence,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
COUNT = 10


async def _running(world: World) -> tuple[Site, Site, UUID]:
    """Start a run of ten intervals from a, its lead, to b on both nodes."""
    a, b = await world.two()
    multi = SchedulingClass.BACKGROUND_MULTI
    task = introduction([a, b], duration=COUNT * times.SECOND, scheduling_class=multi)
    spec = {"source": "a", "dest": "b", **SPEC}
    task = task.model_copy(update={"test": "latencybg", "spec": spec, "tool": "stampbg"})
    [run] = await book_everywhere(task, a, [a, b], [HOUR])
    world.clock.move_to(HOUR)
    for site in (a, b):
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, HOUR)
    return a, b, run


def _sent(*numbers: int) -> list[Interval]:
    return [at_source(sender_record(number)) for number in numbers]


def _reflected(*numbers: int) -> list[Interval]:
    return [at_dest(reflector_record(number)) for number in numbers]


async def _listed(site: Site, run: UUID) -> list[tuple[int, bool, str | None]]:
    """Return what users see of each interval: number, whether it has a result, reason."""
    async with site.database.connection() as connection:
        rows = await intervals.find_first(connection, run, None, None, 500)
    return [(row["number"], row["result"] is not None, row["reason"]) for row in rows]


def _part(place: int, name: str, **fields: Any) -> KeptPart:
    values: dict[str, Any] = {"result": {"intervals": COUNT}, "reason": None} | fields
    return KeptPart(place, name, values["result"], values["reason"], HOUR, HOUR + 1)


async def test_an_interval_is_merged_as_soon_as_both_have_told(world: World) -> None:
    """An interval is merged and listed as soon as both shares have arrived."""
    a, b, run = await _running(world)
    await a.node.collector.keep_own_intervals(run, _sent(0, 1))
    assert await _listed(a, run) == []
    assert await a.outbox_messages() == []
    await b.node.collector.keep_own_intervals(run, _reflected(0))
    await world.settle()
    assert await _listed(a, run) == [(0, True, None)]
    await b.node.collector.keep_own_intervals(run, _reflected(1))
    await world.settle()
    assert await _listed(a, run) == [(0, True, None), (1, True, None)]
    [row] = await a.rows("SELECT * FROM run_interval WHERE number = 1")
    assert (row["starts_at"], row["ends_at"]) == (HOUR + times.SECOND, HOUR + 2 * times.SECOND)
    assert row["summary"].startswith("20.45 ms there, 1.00 ms back")
    assert row["parts"] is None
    assert await a.state(run) == "running"
    assert await b.rows("SELECT FROM run_interval") == []


async def test_the_run_is_the_sum_of_its_intervals(world: World) -> None:
    """The final result is that of all intervals, and both nodes finish the run."""
    a, b, run = await _running(world)
    await a.node.collector.keep_own_intervals(run, _sent(*range(COUNT)))
    await b.node.collector.keep_own_intervals(run, _reflected(*range(COUNT)))
    await b.node.collector.keep_own(run, _part(1, "b"))
    await a.node.collector.keep_own(run, _part(0, "a"))
    await world.settle()
    assert [await site.state(run) for site in (a, b)] == ["finished", "finished"]
    [row] = await a.rows("SELECT result, summary FROM run")
    assert (row["result"]["sent"], row["result"]["gaps"]) == (100, 0)
    assert row["summary"].endswith("; 10 intervals")


async def test_intervals_that_are_under_way_are_waited_for(world: World) -> None:
    """The run ends when all reported intervals have arrived, in any order."""
    a, b, run = await _running(world)
    await b.node.collector.keep_own(run, _part(1, "b"))
    await world.settle()
    await a.node.collector.keep_own_intervals(run, _sent(*range(COUNT)))
    await a.node.collector.keep_own(run, _part(0, "a"))
    assert await a.state(run) == "merging"
    shares = [IntervalShare(**vars(interval)) for interval in _reflected(*range(COUNT))]
    late = IntervalsMessage(run=run, intervals=tuple(shares))
    await a.node.collector.receive_intervals(b.identity, late)
    assert await a.state(run) == "finished"
    await a.node.collector.receive_intervals(b.identity, late)
    assert [has_result for _, has_result, _ in await _listed(a, run)] == [True] * COUNT


async def test_a_part_that_announces_no_number_is_not_waited_for(world: World) -> None:
    """A count that is none, from another version say, does not keep the run from ending."""
    a, b, run = await _running(world)
    await a.node.collector.keep_own_intervals(run, _sent(0))
    await b.node.collector.keep_own(run, _part(1, "b", result={"intervals": "all"}))
    await a.node.collector.keep_own(run, _part(0, "a", result={"intervals": 1}))
    await world.settle()
    assert await a.state(run) == "failed"
    assert "b: " in (await a.reason(run) or "")


async def test_an_interval_that_one_does_not_tell_of_is_told_without(world: World) -> None:
    """An interval without one share is listed after the grace period; a late share completes it."""
    a, b, run = await _running(world)
    await a.node.collector.keep_own_intervals(run, _sent(0, 1))
    await b.node.collector.keep_own_intervals(run, _reflected(1))
    await world.settle()
    assert await _listed(a, run) == []  # none is shown before those that precede it
    world.clock.move_to(HOUR + times.SECOND + GRACE + 1)
    await a.tend()
    assert await _listed(a, run) == [(0, True, f"b: {no_share_in_time()}"), (1, True, None)]
    await b.node.collector.keep_own_intervals(run, _reflected(0))
    await world.settle()
    assert await _listed(a, run) == [(0, True, None), (1, True, None)]


async def test_an_interval_that_nobody_told_of_is_a_gap(world: World) -> None:
    """An interval without any share is listed as a gap once its grace period is over."""
    a, b, run = await _running(world)
    await a.node.collector.keep_own_intervals(run, _sent(2))
    await b.node.collector.keep_own_intervals(run, _reflected(2))
    await world.settle()
    world.clock.move_to(HOUR + 2 * times.SECOND + GRACE + 1)
    await a.tend()
    nobody = f"a: {no_share_in_time()}; b: {no_share_in_time()}"
    assert await _listed(a, run) == [(0, False, nobody), (1, False, nobody), (2, True, None)]


async def test_a_crash_leaves_what_was_measured(world: World) -> None:
    """A crash fails the run with the reason; its intervals stay, and the rest names the reason."""
    a, b, run = await _running(world)
    await a.node.collector.keep_own_intervals(run, _sent(0, 1, 2))
    await b.node.collector.keep_own_intervals(run, _reflected(0, 1, 2))
    await b.node.launcher.recover()
    await world.settle()
    alone = [at_source(silence(number)) for number in (3, 4)]
    await a.node.collector.keep_own_intervals(run, alone)
    restarted = "b: the node was restarted during the run"
    assert (await _listed(a, run))[2:] == [
        (2, True, None),
        (3, True, restarted),
        (4, True, restarted),
    ]
    await a.node.launcher.recover()
    assert await a.state(run) == "failed"
    assert restarted in (await a.reason(run) or "")
    [row] = await a.rows("SELECT result FROM run")
    assert (row["result"]["intervals"], row["result"]["partial"], row["result"]["gaps"]) == (
        3,
        2,
        5,
    )
    assert row["result"]["loss"]["round_trip"] == 0
    intervals_listed = await _listed(a, run)
    assert len(intervals_listed) == COUNT
    assert all(reason and restarted in reason for _, _, reason in intervals_listed[3:])


async def test_nothing_measured_at_all_fails_with_the_cause(world: World) -> None:
    """A run of gaps alone fails, even if its programs succeeded."""
    a, b, run = await _running(world)
    gaps = [Interval(number, None, "no packet could be sent") for number in range(COUNT)]
    await a.node.collector.keep_own_intervals(run, gaps)
    await b.node.collector.keep_own_intervals(run, _reflected(*range(COUNT)))
    for site, place in ((a, 0), (b, 1)):
        await site.node.collector.keep_own(run, _part(place, site.name))
    await world.settle()
    assert await a.state(run) == "failed"
    assert await a.reason(run) == "nothing was measured: a: no packet could be sent"


async def test_a_plugin_that_stumbles_spoils_one_interval(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed merge of an interval is a gap with the error; the next interval is merged."""
    a, b, run = await _running(world)
    test = a.node.capabilities.tests["latencybg"]
    merge_interval = test.merge_interval  # type: ignore[attr-defined]
    faults = iter([ZeroDivisionError("by zero")])

    def stumble(*arguments: Any) -> Any:
        if fault := next(faults, None):
            raise fault
        return merge_interval(*arguments)

    monkeypatch.setattr(test, "merge_interval", stumble)
    await a.node.collector.keep_own_intervals(run, _sent(0, 1))
    await b.node.collector.keep_own_intervals(run, _reflected(0, 1))
    await world.settle()
    [(_, first, reason), (_, second, _)] = await _listed(a, run)
    assert (first, second) == (False, True)
    assert "ZeroDivisionError" in (reason or "")


async def test_intervals_that_cannot_be_are_refused(world: World) -> None:
    """An interval beyond the last one, or from a node that does not take part, is refused."""
    a, b, run = await _running(world)
    share = IntervalShare(number=COUNT, result={}, reason=None)
    message = IntervalsMessage(run=run, intervals=(share,))
    with pytest.raises(InvalidDocument):
        await a.node.collector.receive_intervals(b.identity, message)
    with pytest.raises(NotAllowed):
        await a.node.collector.receive_intervals("ed25519:stranger", message)
    await b.node.collector.receive_intervals(a.identity, message)  # b does not lead the run
    assert await a.rows("SELECT FROM run_interval") == []


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"x": "y" * 1_000_000}, "b: its share of 1 MB is larger than 32 kB"),
        ({"x": "y" * 1_000}, "b: its share is not a result (received: "),
    ],
)
async def test_a_share_that_is_no_result_is_a_gap(
    world: World, result: dict[str, Any], reason: str
) -> None:
    """Nothing but the reason is kept of what a participant sends instead of a share."""
    a, b, run = await _running(world)
    good, bad = _reflected(0)[0], IntervalShare(number=1, result=result, reason=None)
    both = IntervalsMessage(run=run, intervals=(IntervalShare(**vars(good)), bad))
    await a.node.collector.keep_own_intervals(run, _sent(0, 1))
    await a.node.collector.receive_intervals(b.identity, both)
    first, second = await _listed(a, run)
    assert first == (0, True, None)
    assert (second[2] or "").startswith(reason)
    rows = await a.rows("SELECT octet_length(run_interval::text) AS bytes FROM run_interval")
    assert sum(row["bytes"] for row in rows) < 30_000


async def test_no_share_comes_before_the_run(world: World) -> None:
    """Shares of intervals of a run that has not begun are refused."""
    a, b, run = await _running(world)
    await a.execute("UPDATE run SET state = 'booked'")
    world.clock.step(-times.MINUTE)
    message = IntervalsMessage(
        run=run, intervals=tuple(IntervalShare(**vars(each)) for each in _reflected(0))
    )
    with pytest.raises(Conflict, match="no part of it is taken yet"):
        await a.node.collector.receive_intervals(b.identity, message)
    assert await a.rows("SELECT FROM run_interval") == []


async def test_a_run_without_intervals_takes_none(world: World) -> None:
    """Intervals of a test that has none are refused with the reason."""
    a, b = await world.two()
    [run] = await book_everywhere(introduction([a, b]), a, [a, b], [HOUR])
    world.clock.move_to(HOUR)
    share = IntervalShare(number=0, result={}, reason=None)
    message = IntervalsMessage(run=run, intervals=(share,))
    with pytest.raises(InvalidDocument, match="the run has 0 intervals"):
        await a.node.collector.receive_intervals(b.identity, message)


async def test_what_is_over_does_not_pile_up(world: World) -> None:
    """Intervals are deleted with their run."""
    a, b, run = await _running(world)
    await a.node.collector.keep_own_intervals(run, _sent(0))
    for site in (a, b):
        await site.node.launcher.recover()
    await world.settle()
    assert len(await _listed(a, run)) == COUNT
    day = HOUR + times.DAY
    async with a.database.transaction() as connection:
        await runs.purge(connection, day, 1000, finished=False)
    assert await a.rows("SELECT FROM run_interval") == []
