"""What would happen: the same as then happens, and by asking for it nothing does."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import InvalidDocument
from node.model.times import format_instant
from node.model.wire.plans import Outcome, Plan
from node.model.wire.tasks import TaskDocument
from node.plugins import registry
from node.plugins.contracts import Requirement
from node.plugins.tests.idle import IdleSpec
from node.plugins.tools.sleep import SleepTool
from tests.support.clocks import START, ManualClock
from tests.support.previews import idle, plan
from tests.support.worlds import (
    ON_ONE_LOOP,
    Site,
    World,
    book_everywhere,
    commit_request,
    hold_everywhere,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
MINUTE = times.MINUTE


async def _everything(*sites: Site) -> dict[str, list[Any]]:
    """All rows of all tables of these nodes."""
    found = {}
    for site in sites:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        for row in await site.rows(names):
            found[f"{site.name}.{row[0]}"] = sorted(
                map(str, await site.rows(f'SELECT * FROM "{row[0]}"'))
            )
    return found


async def _busy(lead: Site, participants: list[Site], start: int, end: int, **options: Any) -> None:
    """Book this time at these nodes."""
    task = introduction(participants, duration=end - start, **options)
    await book_everywhere(task, lead, participants, [start])


async def _posted(site: Site, document: dict[str, Any]) -> list[tuple[int, int]]:
    """Post a task and plan it; the spans of its runs."""
    task, _ = await site.node.admission.create(TaskDocument.model_validate(document), None)
    await site.plan()
    rows = await site.rows(
        "SELECT starts_at, ends_at FROM run WHERE task_id = $1 AND state = 'booked' ORDER BY 1",
        task,
    )
    return [(row[0], row[1]) for row in rows]


def _spans(found: Plan) -> list[tuple[int, int]]:
    return [(start.starts_at, start.ends_at) for start in found.starts]


def _at(start: int, **schedule: Any) -> dict[str, Any]:
    return {"schedule": {"start": format_instant(start), **schedule}}


@pytest.mark.parametrize("random", [False, True])
async def test_it_is_what_posting_then_does(world: World, *, random: bool) -> None:
    """The same state, time and seed: every start of the plan is booked when the task is posted."""
    a, b = await world.two()
    await _busy(b, [b], HOUR - MINUTE, HOUR + 7 * MINUTE)
    schedule = {"repeat": "PT1H", "slip": "PT20M", "slip_random": random}
    document = idle(a, b, **_at(HOUR, **schedule))
    task = uuid4()
    found = await plan(world, a, document, runs=100, task=task)
    assert (found.outcome, found.drawn) == (Outcome.FOUND, random)
    assert found.placed == found.asked == len(found.starts) > 20
    a.node.admission._new_id = lambda: task
    assert await _posted(a, document) == _spans(found)


async def test_nothing_is_kept_anywhere(world: World) -> None:
    """Not a row of any table of any node is other than before, whatever the answer."""
    a, b = await world.two()
    await _busy(b, [b], HOUR - MINUTE, HOUR + MINUTE)
    await _busy(a, [a, b], HOUR + 30 * MINUTE, HOUR + 40 * MINUTE, priority=-3)
    before = await _everything(a, b)
    schedules: tuple[dict[str, Any], ...] = (
        _at(HOUR, slip="PT0S"),
        _at(HOUR + 33 * MINUTE, slip="PT0S"),
        {},
    )
    outcomes = [(await plan(world, a, idle(a, b, **schedule))).outcome for schedule in schedules]
    b.node.capabilities.tests = {}
    outcomes.append((await plan(world, a, idle(a, b))).outcome)
    world.cut.add(frozenset("ab"))
    outcomes.append((await plan(world, a, idle(a, b))).outcome)
    assert outcomes == ["no-time", "found", "found", "refused", "unreachable"]
    assert await _everything(a, b) == before


async def test_what_would_be_displaced_is_what_a_hold_sets_aside(world: World) -> None:
    """Runs, tasks, priorities and node of what gives way; the same as a real hold displaces."""
    a, b = await world.two()
    await _busy(b, [b], HOUR, HOUR + 20 * MINUTE, priority=2)
    await _busy(b, [b], HOUR + 20 * MINUTE, HOUR + 40 * MINUTE, priority=9)
    document = idle(a, b, priority=5, **_at(HOUR + MINUTE, slip="PT0S"))
    found = await plan(world, a, document)
    assert found.outcome is Outcome.FOUND
    assert [start.displacing for start in found.starts] == [True]
    assert "displacing runs of lower priority" in found.sentence
    [lost] = found.displaced
    assert (lost.name, lost.priority, lost.test, lost.by) == ("b", 2, "idle", HOUR + MINUTE)
    assert (lost.starts_at, lost.ends_at) == (HOUR, HOUR + 20 * MINUTE)
    assert found.displaced_count == 1
    await _posted(a, document)
    await world.settle()
    assert await b.state(lost.run) == "displaced"


async def test_how_full_the_nodes_would_be(world: World) -> None:
    """Seconds and shares hour by hour, of the union of what is booked, displaced runs gone."""
    a, b = await world.two()
    await _busy(b, [b], HOUR, HOUR + 30 * MINUTE, priority=-1)
    found = await plan(world, a, idle(a, b, seconds=1200, **_at(HOUR + 15 * MINUTE, slip="PT0S")))
    here, there = found.occupancy
    assert (here.name, here.added_s, there.name, there.added_s) == ("a", 1200, "b", -600)
    assert [hour.before for hour in there.hours[:3]] == [0, 0.5, 0]
    assert [hour.after for hour in there.hours[:3]] == [0, pytest.approx(1 / 3), 0]
    assert there.hours[1].starts_at == START + times.HOUR
    assert len(there.hours) == 24
    assert here.after == pytest.approx(1200 / 86400)


async def test_a_normal_run_beside_others_adds_only_what_is_new(world: World) -> None:
    """Time that is measured in already is not counted twice."""
    a = await world.site("a")
    normal = {"scheduling_class": SchedulingClass.NORMAL}
    await _busy(a, [a], HOUR, HOUR + 10 * MINUTE, **normal)
    document = idle(a, seconds=600, **_at(HOUR + 5 * MINUTE, slip="PT0S"))
    document["test"]["spec"]["class"] = "normal"
    [here] = (await plan(world, a, document)).occupancy
    assert here.added_s == 300


async def test_what_each_participant_says(world: World) -> None:
    """Accepted with the tools, refused with the reason, and what stands in the way of runs."""
    a, b, c = await world.three()
    await _busy(b, [b], HOUR - MINUTE, HOUR + 6 * MINUTE)
    document = idle(a, b, c, **_at(HOUR, slip="PT0S", repeat="PT1H", max_runs=3))
    found = await plan(world, a, document)
    assert (found.outcome, found.asked, found.placed) == (Outcome.PARTLY, 3, 2)
    assert [p.answer for p in found.participants] == ["accepts"] * 3
    assert [p.windows_free for p in found.participants] == [3, 2, 3]
    assert "busy with an exclusive idle run" in (found.participants[1].reason or "")
    assert found.participants[0].tools == ("sleep",)
    assert [lost.slot for lost in found.unplaced] == [HOUR]
    c.node.capabilities._which = lambda _: None
    found = await plan(world, a, document)
    assert (found.outcome, found.starts) == (Outcome.REFUSED, ())
    assert [p.answer for p in found.participants] == ["accepts", "accepts", "refuses"]
    assert "apt install coreutils" in (found.participants[2].reason or "")
    assert found.sentence == f"c: {found.participants[2].reason}"


async def test_who_cannot_be_asked(world: World) -> None:
    """A cut wire and a clock that is off are answers, each with its outcome and no alternative."""
    a = await world.site("a")
    b = await world.site("b", ManualClock(START + 90 * times.SECOND))
    found = await plan(world, a, idle(a, b))
    assert found.outcome is Outcome.CLOCK
    assert "the clock of b is 90.0 s ahead" in found.sentence
    assert [p.answer for p in found.participants] == ["accepts", "clock"]
    world.cut.add(frozenset("ab"))
    found = await plan(world, a, idle(a, b))
    assert found.outcome is Outcome.UNREACHABLE
    assert [p.answer for p in found.participants] == ["accepts", "unreachable"]
    assert found.alternatives == ()
    assert {none.kind for none in found.no_alternatives} == {"later", "shorter", "tool"}


async def test_a_silent_node_at_the_end_only_lacks_its_figures(world: World) -> None:
    """Whoever is lost after the proposals is left out of the occupancy."""
    a, b = await world.two()

    async def cut(call: tuple[str, str, str], phase: str) -> None:
        if call == ("a", "b", "outlook"):
            world.cut.add(frozenset("ab"))

    world.watch = cut
    found = await plan(world, a, idle(a, b))
    assert found.outcome is Outcome.FOUND
    assert [full.name for full in found.occupancy] == ["a"]


async def test_a_single_run_without_time_has_alternatives_that_work(world: World) -> None:
    """Later or shorter: each document is posted as it is and finds the time that it names."""
    a, b = await world.two()
    await _busy(b, [b], HOUR - MINUTE, HOUR + 10 * MINUTE)
    await _busy(a, [a], HOUR + 12 * MINUTE, HOUR + 30 * MINUTE)
    found = await plan(world, a, idle(a, b, **_at(HOUR, slip="PT10M")))
    assert found.outcome is Outcome.NO_TIME
    assert [(other.kind, other.differs) for other in found.alternatives] == [
        ("later", f"starts at {format_instant(HOUR + 30 * MINUTE)}, PT30M later"),
        ("shorter", "measures PT2M instead of PT5M"),
    ]
    assert [other.distance for other in found.alternatives] == [pytest.approx(1 / 48), 0.6]
    assert [(none.kind, none.reason) for none in found.no_alternatives] == [
        ("tool", "no other tool for idle that every participant has")
    ]
    for other in found.alternatives:
        [(start, _)] = await _posted(a, other.document)
        assert start == other.starts_at
        await a.execute("DELETE FROM run WHERE state = 'booked' AND starts_at = $1", start)
        await b.execute("DELETE FROM run WHERE state = 'booked' AND starts_at = $1", start)


async def test_a_repeating_task_has_more_ways_out(world: World) -> None:
    """A shifted grid, more slip, a longer interval: all its runs find time, as many as it says."""
    a, b = await world.two()
    for hour in range(1, 24, 2):
        start = START + hour * times.HOUR
        await _busy(b, [b], start - 2 * MINUTE, start + 8 * MINUTE)
    document = idle(a, b, **_at(START + times.HOUR, slip="PT1M", repeat="PT1H"))
    found = await plan(world, a, document)
    assert (found.outcome, found.placed) == (Outcome.PARTLY, found.asked // 2)
    by_kind = {other.kind: other for other in found.alternatives}
    assert by_kind["later"].document["schedule"]["start"] == format_instant(HOUR + 7 * MINUTE)
    assert by_kind["slip"].document["schedule"]["slip"] == "PT8M"
    assert [other.kind for other in found.alternatives] == ["later", "slip"]
    for other in found.alternatives:
        assert other.placed == other.asked
        again = await plan(world, a, other.document)
        assert (again.outcome, again.placed) == (Outcome.FOUND, other.placed)


async def test_a_start_beyond_the_horizon_is_said(world: World) -> None:
    """Nobody can promise what lies beyond the horizon; that is no refusal."""
    a = await world.site("a")
    found = await plan(world, a, idle(a, **_at(START + 3 * times.DAY)))
    assert (found.outcome, found.asked) == (Outcome.LATER, 0)
    assert "lies beyond the horizon" in found.sentence
    assert (found.alternatives, found.no_alternatives) == ((), ())


async def test_the_shortest_horizon_counts(world: World) -> None:
    """A participant that books less far ahead shortens the plan as it shortens the planning."""
    a, b = await world.site("a"), await world.site("b", horizon=6 * times.HOUR)
    document = idle(a, b, **_at(HOUR, repeat="PT1H", slip="PT5M"))
    found = await plan(world, a, document)
    assert (found.outcome, found.asked, found.no_alternatives) == (Outcome.FOUND, 5, ())
    assert await _posted(a, document) == _spans(found)
    document = idle(a, b, **_at(START + 7 * times.HOUR, slip="PT5M"))
    assert (await plan(world, a, document)).outcome is Outcome.LATER


async def test_a_wrong_document_is_refused_as_when_posted(world: World) -> None:
    """The same fault at the same pointer."""
    a = await world.site("a")
    document = idle(a, **_at(START - times.DAY))
    with pytest.raises(InvalidDocument, match="/schedule/start"):
        await plan(world, a, document)


async def test_a_hold_that_is_not_committed_is_in_the_way(world: World) -> None:
    """What is pending somewhere counts as taken."""
    a, b = await world.two()
    task = introduction([b])
    await b.keep(task, b)
    request = hold_request(task, [HOUR])
    exchange = await hold_everywhere(b, [b], request)
    document = idle(a, b, **_at(HOUR, slip="PT0S"))
    assert (await plan(world, a, document)).outcome is Outcome.NO_TIME
    await b.node.time_line.commit(exchange, commit_request(request, keep=0))
    assert (await plan(world, a, document)).outcome is Outcome.FOUND


class _Doze(SleepTool):
    """Half a sleep, by another program."""

    name = "doze"
    preference = -1
    requirement = Requirement(program="doze", package="dozeutils")

    def duration(self, spec: IdleSpec) -> int:
        return spec.duration // 2


@pytest.fixture
def two_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idling has two tools: ``sleep`` and, half as long, ``doze``."""
    tools = {"sleep": SleepTool(), "doze": _Doze()}
    monkeypatch.setattr(registry, "tools_for", lambda _: tuple(tools.values()))
    monkeypatch.setattr(registry, "tools", lambda: tools)


@pytest.mark.usefixtures("two_tools")
async def test_another_tool_where_one_is_missing(world: World) -> None:
    """A refusal for want of a tool names the one that all have; its document is accepted."""
    a, b = await world.two()
    b.node.capabilities._which = lambda program: program if program == "doze" else None
    document = idle(a, b, tools=["sleep"], **_at(HOUR))
    found = await plan(world, a, document)
    assert found.outcome is Outcome.REFUSED
    [other] = found.alternatives
    assert (other.kind, other.differs, other.placed) == ("tool", "measures with doze", 1)
    assert other.document == {**document, "tools": ["doze"]}
    assert {none.kind for none in found.no_alternatives} == {"later", "shorter"}
    assert await _posted(a, other.document) == [(HOUR, HOUR + 150 * times.SECOND)]
    both = await plan(world, a, idle(a, b, tools=["sleep", "doze"], **_at(HOUR)))
    assert (both.outcome, both.tool) == (Outcome.FOUND, "doze")


@pytest.mark.usefixtures("two_tools")
async def test_another_tool_where_time_is_short(world: World) -> None:
    """A tool that takes less time is an alternative where that much is free; else that is said."""
    a, b = await world.two()
    await _busy(b, [b], HOUR + 3 * MINUTE, HOUR + 20 * MINUTE)
    found = await plan(world, a, idle(a, b, **_at(HOUR, slip="PT0S")))
    assert found.outcome is Outcome.NO_TIME
    assert [other.kind for other in found.alternatives] == ["later", "tool", "shorter"]
    [tool] = [other for other in found.alternatives if other.kind == "tool"]
    assert tool.differs == "measures with doze instead of sleep"
    assert tool.starts_at == HOUR
    found = await plan(world, a, idle(a, b, seconds=600, **_at(HOUR, slip="PT0S")))
    reasons = {none.kind: none.reason for none in found.no_alternatives}
    assert reasons["tool"] == "doze would not find the time either"
