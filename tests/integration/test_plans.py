"""A plan shows what would happen: posting the task then does the same, and nothing is stored."""

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
from tests.support.limits import RANKED_ALIKE, set_limits
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
    """Return all rows of all tables of these nodes."""
    rows_by_table = {}
    for site in sites:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        for row in await site.rows(names):
            rows_by_table[f"{site.name}.{row[0]}"] = sorted(
                map(str, await site.rows(f'SELECT * FROM "{row[0]}"'))
            )
    return rows_by_table


async def _busy(lead: Site, participants: list[Site], start: int, end: int, **options: Any) -> None:
    """Book this time at these nodes."""
    task = introduction(participants, duration=end - start, **options)
    await book_everywhere(task, lead, participants, [start])


async def _posted(site: Site, document: dict[str, Any]) -> list[tuple[int, int]]:
    """Post a task and plan it; return the spans of its runs."""
    task, _ = await site.node.admission.create(TaskDocument.model_validate(document), None)
    await site.plan()
    rows = await site.rows(
        "SELECT starts_at, ends_at FROM run WHERE task_id = $1 AND state = 'booked' ORDER BY 1",
        task,
    )
    return [(row[0], row[1]) for row in rows]


def _spans(preview: Plan) -> list[tuple[int, int]]:
    return [(start.starts_at, start.ends_at) for start in preview.starts]


def _at(start: int, **schedule: Any) -> dict[str, Any]:
    return {"schedule": {"start": format_instant(start), **schedule}}


@pytest.mark.parametrize("random", [False, True])
async def test_it_is_what_posting_then_does(world: World, *, random: bool) -> None:
    """With the same state, time and seed, posting the task books every start of the plan."""
    a, b = await world.two()
    await _busy(b, [b], HOUR - MINUTE, HOUR + 7 * MINUTE)
    schedule = {"repeat": "PT1H", "slip": "PT20M", "slip_random": random}
    document = idle(a, b, **_at(HOUR, **schedule))
    task = uuid4()
    preview = await plan(world, a, document, runs=100, task=task)
    assert (preview.outcome, preview.drawn) == (Outcome.FOUND, random)
    assert preview.placed == preview.asked == len(preview.starts) > 20
    a.node.drafter._new_id = lambda: task
    assert await _posted(a, document) == _spans(preview)


@pytest.mark.nightly
async def test_nothing_is_kept_anywhere(world: World) -> None:
    """A plan changes no row of any table of any node, whatever its outcome."""
    a, b = await world.two()
    await _busy(b, [b], HOUR - MINUTE, HOUR + MINUTE)
    await _busy(a, [a, b], HOUR + 30 * MINUTE, HOUR + 40 * MINUTE, priority=-3)
    rows_before = await _everything(a, b)
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
    assert await _everything(a, b) == rows_before


async def test_what_would_be_displaced_is_what_a_hold_sets_aside(world: World) -> None:
    """A plan lists the runs that a hold displaces; of other nodes' runs only class and time."""
    a, b = await world.two()
    set_limits(b.node, RANKED_ALIKE)
    await _busy(b, [b], HOUR, HOUR + 20 * MINUTE, priority=2)
    await _busy(b, [b], HOUR + 20 * MINUTE, HOUR + 40 * MINUTE, priority=9)
    document = idle(a, b, priority=5, **_at(HOUR + MINUTE, slip="PT0S"))
    preview = await plan(world, a, document)
    assert preview.outcome is Outcome.FOUND
    assert [start.displacing for start in preview.starts] == [True]
    assert "displacing other runs" in preview.sentence
    [lost] = preview.displaced
    assert (lost.name, lost.by) == ("b", HOUR + MINUTE)
    assert (lost.run, lost.task, lost.test, lost.priority) == (None, None, None, None)
    assert (lost.starts_at, lost.ends_at) == (HOUR, HOUR + 20 * MINUTE)
    assert preview.displaced_count == 1
    [own] = (await plan(world, b, document)).displaced
    assert (own.name, own.priority, own.test, own.by) == ("b", 2, "idle", HOUR + MINUTE)
    await _posted(a, document)
    await world.settle()
    assert own.run is not None
    assert await b.state(own.run) == "displaced"


async def test_the_plan_of_an_edit_leaves_its_own_runs_out(world: World) -> None:
    """A task that is moved does not find its own runs in its way, but those of other tasks."""
    a, b = await world.two()
    document = idle(a, b, **_at(HOUR, slip="PT0S"))
    task, _ = await a.node.admission.create(TaskDocument.model_validate(document), None)
    other, _ = await b.node.admission.create(
        TaskDocument.model_validate(idle(b, **_at(HOUR + 6 * MINUTE, slip="PT0S"))), None
    )
    await a.plan()
    await b.plan()
    moved = idle(a, b, **_at(HOUR + MINUTE, slip="PT0S"))
    assert (await plan(world, a, moved)).outcome is Outcome.NO_TIME
    assert (await plan(world, a, moved, instead_of=uuid4())).outcome is Outcome.NO_TIME
    preview = await plan(world, a, moved, instead_of=task)
    assert (preview.outcome, preview.displaced_count) == (Outcome.FOUND, 0)
    assert {it.name: it.added_s for it in preview.occupancy} == {"a": 0, "b": 0}
    too_far = idle(a, b, **_at(HOUR + 2 * MINUTE, slip="PT0S"))
    blocked = await plan(world, a, too_far, instead_of=task)
    assert blocked.outcome is Outcome.NO_TIME
    assert "busy with an exclusive run that another node leads" in blocked.sentence
    # Another lead cannot leave out what is not its own.
    refused = await plan(world, a, too_far, instead_of=other)
    assert refused.outcome is Outcome.REFUSED
    assert f"a task with the id {other} is led by another node" in refused.sentence


async def test_how_full_the_nodes_would_be(world: World) -> None:
    """A plan reports occupancy by the hour, of the union of bookings without displaced runs."""
    a, b = await world.two()
    set_limits(b.node, RANKED_ALIKE)
    await _busy(b, [b], HOUR, HOUR + 30 * MINUTE, priority=-1)
    preview = await plan(world, a, idle(a, b, seconds=1200, **_at(HOUR + 15 * MINUTE, slip="PT0S")))
    here, there = preview.occupancy
    assert (here.name, here.added_s, there.name, there.added_s) == ("a", 1200, "b", -600)
    assert [hour.before for hour in there.hours[:3]] == [0, 0.5, 0]
    assert [hour.after for hour in there.hours[:3]] == [0, pytest.approx(1 / 3), 0]
    assert there.hours[1].starts_at == START + times.HOUR
    assert len(there.hours) == 24
    assert here.after == pytest.approx(1200 / 86400)


async def test_a_normal_run_beside_others_adds_only_what_is_new(world: World) -> None:
    """Time that is already occupied is not counted twice."""
    a = await world.site("a")
    normal = {"scheduling_class": SchedulingClass.NORMAL}
    await _busy(a, [a], HOUR, HOUR + 10 * MINUTE, **normal)
    document = idle(a, seconds=600, **_at(HOUR + 5 * MINUTE, slip="PT0S"))
    document["test"]["spec"]["class"] = "normal"
    [here] = (await plan(world, a, document)).occupancy
    assert here.added_s == 300


async def test_what_each_participant_says(world: World) -> None:
    """A plan has each participant's answer: its tools, its refusal, or the obstacles of runs."""
    a, b, c = await world.three()
    await _busy(b, [b], HOUR - MINUTE, HOUR + 6 * MINUTE)
    document = idle(a, b, c, **_at(HOUR, slip="PT0S", repeat="PT1H", max_runs=3))
    preview = await plan(world, a, document)
    assert (preview.outcome, preview.asked, preview.placed) == (Outcome.PARTLY, 3, 2)
    assert [p.answer for p in preview.participants] == ["accepts"] * 3
    assert [p.windows_free for p in preview.participants] == [3, 2, 3]
    assert "busy with an exclusive run that another" in (preview.participants[1].reason or "")
    assert preview.participants[0].tools == ("sleep",)
    assert [lost.slot for lost in preview.unplaced] == [HOUR]
    c.node.capabilities._which = lambda _: None
    preview = await plan(world, a, document)
    assert (preview.outcome, preview.starts) == (Outcome.REFUSED, ())
    assert [p.answer for p in preview.participants] == ["accepts", "accepts", "refuses"]
    assert "apt install coreutils" in (preview.participants[2].reason or "")
    assert preview.sentence == f"c: {preview.participants[2].reason}"


async def test_who_cannot_be_asked(world: World) -> None:
    """An unreachable participant and a wrong clock are outcomes without alternatives."""
    a = await world.site("a")
    b = await world.site("b", ManualClock(START + 90 * times.SECOND))
    preview = await plan(world, a, idle(a, b))
    assert preview.outcome is Outcome.CLOCK
    assert "the clock of b is 90.0 s ahead" in preview.sentence
    assert [p.answer for p in preview.participants] == ["accepts", "clock"]
    world.cut.add(frozenset("ab"))
    preview = await plan(world, a, idle(a, b))
    assert preview.outcome is Outcome.UNREACHABLE
    assert [p.answer for p in preview.participants] == ["accepts", "unreachable"]
    assert preview.alternatives == ()
    assert {none.kind for none in preview.no_alternatives} == {"later", "shorter", "tool"}


async def test_a_silent_node_at_the_end_only_lacks_its_figures(world: World) -> None:
    """A participant that is lost after the proposals is left out of the occupancy."""
    a, b = await world.two()

    async def cut(call: tuple[str, str, str], phase: str) -> None:
        if call == ("a", "b", "impact"):
            world.cut.add(frozenset("ab"))

    world.watch = cut
    preview = await plan(world, a, idle(a, b))
    assert preview.outcome is Outcome.FOUND
    assert [full.name for full in preview.occupancy] == ["a"]


async def test_a_single_run_without_time_has_alternatives_that_work(world: World) -> None:
    """A single run without time gets alternatives that work when posted: later or shorter."""
    a, b = await world.two()
    await _busy(b, [b], HOUR - MINUTE, HOUR + 10 * MINUTE)
    await _busy(a, [a], HOUR + 12 * MINUTE, HOUR + 30 * MINUTE)
    preview = await plan(world, a, idle(a, b, **_at(HOUR, slip="PT10M")))
    assert preview.outcome is Outcome.NO_TIME
    assert [(other.kind, other.differs) for other in preview.alternatives] == [
        ("later", f"starts at {format_instant(HOUR + 30 * MINUTE)}, 30 min later"),
        ("later", f"starts at {format_instant(HOUR + 35 * MINUTE)}, 35 min later"),
        ("shorter", "measures 2 min instead of 5 min"),
    ]
    distances = [other.distance for other in preview.alternatives]
    assert distances == pytest.approx([30 / 1440, 35 / 1440, 0.6])
    assert [(none.kind, none.reason) for none in preview.no_alternatives] == [
        ("tool", "no other tool for idle that every participant has")
    ]
    for other in preview.alternatives:
        [(start, _)] = await _posted(a, other.document)
        assert start == other.starts_at
        await a.execute("DELETE FROM run WHERE state = 'booked' AND starts_at = $1", start)
        await b.execute("DELETE FROM run WHERE state = 'booked' AND starts_at = $1", start)


async def test_a_repeating_task_has_more_ways_out(world: World) -> None:
    """A repeating task gets alternatives, too: another phase or more slip, with all runs placed."""
    a, b = await world.two()
    for hour in range(1, 24, 2):
        start = START + hour * times.HOUR
        await _busy(b, [b], start - 2 * MINUTE, start + 8 * MINUTE)
    document = idle(a, b, **_at(START + times.HOUR, slip="PT1M", repeat="PT1H"))
    preview = await plan(world, a, document)
    assert (preview.outcome, preview.placed) == (Outcome.PARTLY, preview.asked // 2)
    by_kind = {other.kind: other for other in preview.alternatives}
    assert by_kind["later"].document["schedule"]["start"] == format_instant(HOUR + 7 * MINUTE)
    assert by_kind["slip"].document["schedule"]["slip"] == "PT8M"
    assert [other.kind for other in preview.alternatives] == ["later", "slip"]
    for other in preview.alternatives:
        assert other.placed == other.asked
        repeated = await plan(world, a, other.document)
        assert (repeated.outcome, repeated.placed) == (Outcome.FOUND, other.placed)


async def test_a_start_beyond_the_horizon_is_said(world: World) -> None:
    """A start beyond the horizon is reported as such and not as a refusal."""
    a = await world.site("a")
    preview = await plan(world, a, idle(a, **_at(START + 3 * times.DAY)))
    assert (preview.outcome, preview.asked) == (Outcome.LATER, 0)
    assert "lies beyond the horizon" in preview.sentence
    assert (preview.alternatives, preview.no_alternatives) == ((), ())


async def test_the_shortest_horizon_counts(world: World) -> None:
    """The shortest horizon of the participants limits plan and planning alike."""
    a, b = await world.site("a"), await world.site("b", horizon=6 * times.HOUR)
    document = idle(a, b, **_at(HOUR, repeat="PT1H", slip="PT5M"))
    preview = await plan(world, a, document)
    assert (preview.outcome, preview.asked, preview.no_alternatives) == (Outcome.FOUND, 5, ())
    assert await _posted(a, document) == _spans(preview)
    document = idle(a, b, **_at(START + 7 * times.HOUR, slip="PT5M"))
    assert (await plan(world, a, document)).outcome is Outcome.LATER


async def test_a_wrong_document_is_refused_as_when_posted(world: World) -> None:
    """An invalid document is refused with the same fault and pointer as when posted."""
    a = await world.site("a")
    document = idle(a, **_at(START - times.DAY))
    with pytest.raises(InvalidDocument, match="/schedule/start"):
        await plan(world, a, document)


async def test_a_hold_that_is_not_committed_is_in_the_way(world: World) -> None:
    """A pending hold blocks its time in a plan."""
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
    """A tool that takes half as long as ``sleep``."""

    name = "doze"
    preference = -1
    requirement = Requirement(program="doze", package="dozeutils")

    def duration(self, spec: IdleSpec) -> int:
        return spec.duration // 2


@pytest.fixture
def two_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give idling two tools: ``sleep`` and, half as long, ``doze``."""
    tools = {"sleep": SleepTool(), "doze": _Doze()}
    monkeypatch.setattr(registry, "tools_for", lambda _: tuple(tools.values()))
    monkeypatch.setattr(registry, "tools", lambda: tools)


@pytest.mark.usefixtures("two_tools")
async def test_another_tool_where_one_is_missing(world: World) -> None:
    """A refusal for a missing tool has an alternative with a tool that all have."""
    a, b = await world.two()
    b.node.capabilities._which = lambda program: program if program == "doze" else None
    document = idle(a, b, tools=["sleep"], **_at(HOUR))
    preview = await plan(world, a, document)
    assert preview.outcome is Outcome.REFUSED
    [other] = preview.alternatives
    assert (other.kind, other.differs, other.placed) == ("tool", "measures with doze", 1)
    assert other.document == {**document, "tools": ["doze"]}
    assert {none.kind for none in preview.no_alternatives} == {"later", "shorter"}
    assert await _posted(a, other.document) == [(HOUR, HOUR + 150 * times.SECOND)]
    both = await plan(world, a, idle(a, b, tools=["sleep", "doze"], **_at(HOUR)))
    assert (both.outcome, both.tool) == (Outcome.FOUND, "doze")


@pytest.mark.usefixtures("two_tools")
async def test_another_tool_where_time_is_short(world: World) -> None:
    """A faster tool is an alternative if its time is free, and else is named as insufficient."""
    a, b = await world.two()
    await _busy(b, [b], HOUR + 3 * MINUTE, HOUR + 20 * MINUTE)
    preview = await plan(world, a, idle(a, b, **_at(HOUR, slip="PT0S")))
    assert preview.outcome is Outcome.NO_TIME
    assert [other.kind for other in preview.alternatives] == ["later", "tool", "shorter"]
    [tool] = [other for other in preview.alternatives if other.kind == "tool"]
    assert tool.differs == "measures with doze instead of sleep"
    assert tool.starts_at == HOUR
    preview = await plan(world, a, idle(a, b, seconds=600, **_at(HOUR, slip="PT0S")))
    reasons = {none.kind: none.reason for none in preview.no_alternatives}
    assert reasons["tool"] == "doze would not find the time either"
