"""The parts of a run: collected from its participants, merged at its lead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any
from uuid import UUID, uuid4

import pytest

from node.api import runs as api_runs
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import NotAllowed
from node.model.runstate import RunState
from node.model.wire.circumstances import Circumstances
from node.model.wire.participants import PartMessage
from node.plugins.contracts import Merged, Metric, Part, Result
from node.plugins.tests.idle import IdleTest
from node.store import notices, runs
from node.store.database import Connection
from node.store.runs import KeptPart
from tests.support.circumstances import told
from tests.support.clocks import START
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
GRACE = 15 * times.SECOND


def _part(site: Site, place: int, reason: str | None = None) -> KeptPart:
    result = {"slept_ms": 1.0} if reason is None else None
    return KeptPart(place, site.name, result, reason, HOUR, HOUR + DURATION)


async def _running(sites: tuple[Site, ...]) -> UUID:
    """Start a run of all these sites, led by the first one."""
    [run] = await book_everywhere(introduction(sites), sites[0], sites, [HOUR])
    sites[0].clock.move_to(HOUR)
    for site in sites:
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, HOUR)
    return run


async def test_what_a_cron_schedule_measured_grows_stale(world: World) -> None:
    """Its second slot after a run makes it stale: in metrics, and in what is told of the task."""
    site = await world.site("a")
    run = await _running((site,))
    await site.execute("UPDATE task SET schedule = $1", {"cron": "0 */2 * * *"})
    await site.node.collector.keep_own(run, _part(site, 0))
    [[ended_at, every]] = await site.rows("SELECT ends_at, every FROM run")
    second = START + 4 * times.HOUR  # 02:00 and 04:00 are due after 01:00
    assert HOUR + 2 * every == second
    kept_at = site.clock.now()
    for late, is_stale in ((0, False), (1, True)):
        values = [
            each.value for _, each in site.node.collector.latest.samples(kept_at + 2 * every + late)
        ]
        assert (values == [7.0]) == is_stale
        query = "SELECT judgement FROM newest_outcome((SELECT id FROM task), NULL, $1)"
        [[judgement]] = await site.rows(query, ended_at + 2 * every + late)
        assert judgement == ("stale" if is_stale else "good")


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.mostly_nightly
async def test_the_last_part_merges_whatever_the_order(
    world: World, order: tuple[int, ...]
) -> None:
    """The run is finished at its lead when the last part arrives, in any order."""
    sites = await world.three()
    run = await _running(sites)
    for place in order:
        assert await sites[0].state(run) != "finished"
        await sites[place].node.collector.keep_own(run, _part(sites[place], place))
        await world.settle()
    assert [await site.state(run) for site in sites] == ["finished"] * 3
    [row] = await sites[0].rows("SELECT result, summary FROM run")
    assert (row["result"]["participants"], row["summary"]) == (3, "occupied for 5 min on 3 hosts")
    assert len(await sites[0].rows("SELECT FROM part")) == 3
    assert len(await sites[1].rows("SELECT FROM part")) == 1
    latest = [list(site.node.collector.latest.samples(HOUR)) for site in sites]
    figures = {one.name: one.value for _, one in latest[0]}
    assert figures == {
        "parley_result_succeeded": 1,
        "parley_result_judgement": 0,
        "parley_result_idle_seconds": DURATION / times.SECOND,
    }
    assert latest[1:] == [[], []]


async def test_a_lead_whose_part_is_in_waits_for_the_others(world: World) -> None:
    """While parts are missing the run is merging at its lead."""
    a, b, _ = sites = await world.three()
    run = await _running(sites)
    await a.node.collector.keep_own(run, _part(a, 0))
    assert await a.state(run) == "merging"
    assert await b.state(run) == "running"


async def test_a_missing_part_is_given_up_and_its_node_named(world: World) -> None:
    """A run without a part fails after the grace period and names the node."""
    a, b, c = sites = await world.three()
    run = await _running(sites)
    await a.node.collector.keep_own(run, _part(a, 0))
    await c.node.collector.keep_own(run, _part(c, 2))
    await world.settle()
    world.clock.move_to(HOUR + DURATION + GRACE)
    await a.tend()
    assert await a.state(run) == "merging"
    world.clock.advance(1)
    await a.tend()
    assert await a.state(run) == "failed"
    assert "b: sent no part in time" in (await a.reason(run) or "")
    assert await b.state(run) == "running"


async def test_a_failed_part_fails_the_run_with_its_reason(world: World) -> None:
    """A part without a result fails the run, once all are in, with the node's reason."""
    a, b, _ = sites = await world.three()
    run = await _running(sites)
    for place, site in enumerate(sites):
        reason = "sleep: killed by a signal" if site is b else None
        await site.node.collector.keep_own(run, _part(site, place, reason))
    await world.settle()
    assert [await site.state(run) for site in sites] == ["failed", "failed", "finished"]
    assert "b: sleep: killed by a signal" in (await a.reason(run) or "")
    latest = a.node.collector.latest.samples(HOUR)
    assert {one.name: one.value for _, one in latest} == {
        "parley_result_succeeded": 0,
        "parley_result_judgement": 4,
    }


async def test_what_was_measured_before_a_failure_is_kept(world: World) -> None:
    """A part that failed after measuring has its result and the reason, here and at the lead."""
    a, b = sites = await world.two()
    run = await _running(sites)
    await a.node.collector.keep_own(run, _part(a, 0))
    failed = replace(_part(b, 1), reason="sleep: killed by a signal")
    await b.node.collector.keep_own(run, failed)
    await world.settle()
    assert [await site.state(run) for site in sites] == ["failed", "failed"]
    for site in sites:
        [row] = await site.rows("SELECT result, reason FROM part WHERE participant = 1")
        assert (row["result"], row["reason"]) == (failed.result, failed.reason)


@pytest.mark.parametrize(
    ("late", "state"), [(None, "finished"), ("the program was killed", "failed")]
)
async def test_a_late_part_finishes_only_what_then_succeeds(
    world: World, late: str | None, state: str
) -> None:
    """A late part finishes a failed run if the merge then succeeds."""
    a, b, _ = sites = await world.three()
    run = await _running(sites)
    for site in sites:
        if site is not b:
            part = _part(site, sites.index(site))
            await site.node.collector.keep_own(run, part)
    await world.settle()
    world.clock.move_to(HOUR + DURATION + GRACE + 1)
    await a.tend()
    await b.node.collector.keep_own(run, _part(b, 1, late))
    await world.settle()
    assert await a.state(run) == state
    assert (await a.reason(run) is None) == (state == "finished")


async def test_a_part_that_comes_twice_counts_once(world: World) -> None:
    """The first part of a participant counts; a repeated message changes nothing."""
    a, b = sites = await world.two()
    run = await _running(sites)
    message = PartMessage(
        run=run, result={"slept_ms": 1.0}, reason=None, started_at=1, finished_at=2, command=None
    )
    failed = message.model_copy(update={"result": None, "reason": "late"})
    await a.node.collector.receive(b.identity, message)
    await a.node.collector.receive(b.identity, failed)
    await a.node.collector.keep_own(run, _part(a, 0))
    assert await a.state(run) == "finished"


async def test_a_stranger_sends_no_part(world: World) -> None:
    """A part from a node that does not take part is refused; one of an unknown run is ignored."""
    a, b, c = await world.three()
    run = await _running((a, b))
    message = PartMessage(
        run=run, result={}, reason=None, started_at=None, finished_at=None, command=None
    )
    with pytest.raises(NotAllowed, match="takes no part in run"):
        await a.node.collector.receive(c.identity, message)
    await a.node.collector.receive(c.identity, message.model_copy(update={"run": uuid4()}))
    assert await a.rows("SELECT FROM part") == []


async def test_the_end_of_a_run_is_the_end_of_no_other(world: World) -> None:
    """Other runs of the task that are in progress stay so, on all nodes."""
    a, b = sites = await world.two()
    starts = [HOUR, HOUR + DURATION, HOUR + 2 * DURATION]
    ids = await book_everywhere(introduction(sites), a, sites, starts)
    for site in sites:
        for run in ids:
            async with site.database.transaction() as connection:
                assert await runs.begin(connection, run, HOUR)
    done, opened, _ = ids
    await a.node.collector.keep_own(opened, _part(a, 0))
    for place, site in enumerate(sites):
        await site.node.collector.keep_own(done, _part(site, place))
    await world.settle()
    assert list((await a.states()).values()) == ["finished", "merging", "running"]
    assert list((await b.states()).values()) == ["finished", "running", "running"]


async def test_a_run_that_was_cancelled_is_not_missed(world: World) -> None:
    """A lead that comes too late to a run that is over anyway changes it nowhere."""
    a, _ = sites = await world.two()
    run = await _running(sites)
    async with a.database.transaction() as connection:
        assert await runs.set_state(connection, [run], RunState.CANCELLED, "enough", HOUR)
    await a.node.collector.keep_own(run, _part(a, 0, "late"), RunState.MISSED)
    assert (await a.state(run), await a.reason(run)) == ("cancelled", "enough")
    assert await a.outbox_messages() == []


async def test_a_part_of_a_run_that_is_gone_is_dropped(world: World) -> None:
    """A run whose task was deleted meanwhile takes no part, and nothing fails."""
    a = await world.site("a")
    await a.node.collector.keep_own(uuid4(), _part(a, 0))
    assert await a.rows("SELECT FROM part") == []


async def test_parts_that_come_before_the_lead_opens_its_run_count(world: World) -> None:
    """A lead that was away at the start, and has all parts before it looks, has the result."""
    a, b = await world.two()
    [run] = await book_everywhere(introduction([b]), a, [a, b], [HOUR])
    await a.execute("UPDATE run SET participant = NULL")
    async with b.database.transaction() as connection:
        assert await runs.begin(connection, run, HOUR)
    await b.node.collector.keep_own(run, _part(b, 0))
    world.clock.move_to(HOUR + DURATION)
    await world.settle()
    assert await a.state(run) == "finished"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The states of which all nodes have sent notifications to their own processes."""
    states, notify = list[object](), notices.notify

    async def notified(connection: Connection, *words: object) -> None:
        states.append(words[-1])
        await notify(connection, *words)

    monkeypatch.setattr(notices, "notify", notified)
    return states


async def test_each_step_of_a_run_is_heard_on_its_node(world: World, heard: list[object]) -> None:
    """A process that waits for a run hears when its own part is done, and when all are."""
    a, b = sites = await world.two()
    run = await _running(sites)
    heard.clear()
    await a.node.collector.keep_own(run, _part(a, 0))
    await b.node.collector.keep_own(run, _part(b, 1))
    assert heard == ["merging", "finished"]
    await world.settle()
    assert heard[2:] == ["finished"]


async def test_a_missed_run_is_heard_on_its_node(world: World, heard: list[object]) -> None:
    """A process that waits for a run hears that it was missed, at its lead and elsewhere."""
    a, b = sites = await world.two()
    run = await _running(sites)
    heard.clear()
    for place, site in enumerate((a, b)):
        await site.node.collector.keep_own(run, _part(site, place, "late"), RunState.MISSED)
    assert heard == ["missed", "missed"]
    for site in sites:
        [row] = await site.rows("SELECT finished_at, changed_at FROM run")
        assert tuple(row) == (HOUR, HOUR)


async def test_a_run_is_over_since_its_first_end(world: World) -> None:
    """A later reason for its end changes the state and not the time."""
    a = await world.site("a")
    run = await _running((a,))
    async with a.database.transaction() as connection:
        for state, at in ((RunState.FAILED, HOUR + 1), (RunState.CANCELLED, HOUR + 2)):
            assert await runs.set_state(connection, [run], state, "enough", at)
    [row] = await a.rows("SELECT state, finished_at, changed_at FROM run")
    assert tuple(row) == ("cancelled", HOUR + 1, HOUR + 2)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"duration": "P9D"}, "the spec is not valid for this program's version: /test/spec"),
        ({"duration": "PT5M", "odd": 1}, "the spec is not valid for this program's version: "),
    ],
)
async def test_a_spec_that_this_version_does_not_know_fails_the_run(
    world: World, spec: dict[str, Any], reason: str
) -> None:
    """A run whose task was introduced by another version ends with the reason."""
    a = await world.site("a")
    run = await _running((a,))
    await a.execute("UPDATE task SET spec = $1", spec)
    await a.node.collector.keep_own(run, _part(a, 0))
    assert await a.state(run) == "failed"
    assert (await a.reason(run) or "").startswith(reason)


class _Silent(IdleTest):
    def merge(self, spec: object, parts: Sequence[Part]) -> Merged:  # noqa: ARG002 - the same always
        return Merged(None)


async def test_a_run_may_succeed_without_a_result(world: World) -> None:
    """A test that has nothing to say finishes its run, without a summary and a verdict."""
    a = await world.site("a")
    a.node.capabilities.tests = {**a.node.capabilities.tests, "idle": _Silent()}
    run = await _running((a,))
    await a.node.collector.keep_own(run, _part(a, 0))
    [row] = await a.rows("SELECT state, summary, verdict FROM run")
    assert tuple(row) == ("finished", None, None)


class _Unjudged(IdleTest):
    def scheduling_class(self, spec: Any) -> SchedulingClass:  # noqa: ARG002 - the same always
        return SchedulingClass.EXCLUSIVE

    def doubts(self, spec: object, result: Result) -> tuple[str, ...]:  # noqa: ARG002
        raise ZeroDivisionError("by zero")


@pytest.mark.nightly
async def test_a_result_that_cannot_be_judged_is_kept(world: World) -> None:
    """A judge that fails makes a result suspicious, and does not lose it."""
    a = await world.site("a")
    a.node.capabilities.tests = {**a.node.capabilities.tests, "idle": _Unjudged()}
    run = await _running((a,))
    await a.node.collector.keep_own(run, _part(a, 0))
    [row] = await a.rows("SELECT state, verdict, verdict_reasons FROM run")
    assert (row["state"], row["verdict"]) == ("finished", "suspicious")
    assert row["verdict_reasons"] == ["it could not be judged: ZeroDivisionError('by zero')"]


async def test_a_cancelled_run_stays_cancelled(world: World) -> None:
    """Parts of a cancelled run are stored and change nothing."""
    a, b, _ = sites = await world.three()
    run = await _running(sites)
    await a.node.termination.cancel_run(run)
    await world.settle()
    for place, site in enumerate(sites):
        await site.node.collector.keep_own(run, _part(site, place, "cancelled"))
    await world.settle()
    assert [await site.state(run) for site in sites] == ["cancelled"] * 3
    assert await b.reason(run) == "cancelled on a"
    assert list(a.node.collector.latest.samples(HOUR)) == []


async def test_a_run_its_lead_slept_through_is_missed(world: World) -> None:
    """A lead that was down at the start marks its run as missed, with the reason."""
    a, b = sites = await world.two()
    [run] = await book_everywhere(introduction(sites), a, sites, [HOUR])
    world.clock.move_to(HOUR)
    part = _part(a, 0, "the node was down at its start")
    await a.node.collector.keep_own(run, part, RunState.MISSED)
    assert await a.state(run) == "missed"
    assert await a.reason(run) == "the node was down at its start"
    message = PartMessage(
        run=run, result={"slept_ms": 1.0}, reason=None, started_at=1, finished_at=2, command=None
    )
    await a.node.collector.receive(b.identity, message)
    assert await a.state(run) == "missed"


async def test_a_lead_that_takes_no_part_merges_too(world: World) -> None:
    """A lead without a part of its own merges the parts of its participants."""
    lead, b, c = await world.three()
    task = introduction([b, c])
    [run] = await book_everywhere(task, lead, [b, c], [HOUR])
    await lead.execute(
        """
        INSERT INTO run (id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at,
            state, created_at, changed_at)
        VALUES ($1, $2, $3, 1, 'exclusive', 0, $3, $4, 'merging', $3, $3)
        """,
        run,
        task.task,
        HOUR,
        HOUR + DURATION,
    )
    world.clock.move_to(HOUR)
    for place, site in enumerate((b, c)):
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, HOUR)
        await site.node.collector.keep_own(run, _part(site, place))
    await world.settle()
    assert await lead.state(run) == "finished"


async def test_circumstances_and_output_travel_and_are_judged(world: World) -> None:
    """Circumstances and output reach the lead, which stores its verdict on the result."""
    a, b = sites = await world.two()
    run = await _running(sites)
    own = replace(_part(a, 0), circumstances=told(), output="a")
    await a.node.collector.keep_own(run, own)
    busy = replace(_part(b, 1), circumstances=told(busy=0.97), output="b\u2028")
    await b.node.collector.keep_own(run, busy)
    await world.settle()
    async with a.database.connection() as connection:
        shown, stored = (
            await runs.find_run_or_gap(connection, run),
            await runs.parts(connection, run),
        )
    assert shown is not None
    assert shown["verdict"] == "contaminated"
    assert shown["verdict_reasons"] == ["b's processors were 97 % busy"]
    assert [part.output for part in stored] == ["a", "b\u2028"]
    assert [part.circumstances for part in stored] == [
        Circumstances.model_validate(it).model_dump(mode="json") for it in (told(), told(busy=0.97))
    ]


async def test_a_run_without_a_result_is_not_judged(world: World) -> None:
    """A run without a result gets no verdict."""
    a, b = sites = await world.two()
    run = await _running(sites)
    for place, site in enumerate(sites):
        part = replace(_part(site, place, "it broke"), circumstances=told(busy=1))
        await site.node.collector.keep_own(run, part)
    await world.settle()
    async with a.database.connection() as connection:
        shown = await runs.find_run_or_gap(connection, run)
    assert shown is not None
    assert (shown["state"], shown["verdict"], shown["verdict_reasons"]) == ("failed", None, [])
    assert await b.state(run) == "failed"


async def test_a_part_that_names_no_start_is_judged_by_the_rest(world: World) -> None:
    """A result is not suspicious because a part of another version lacks its start."""
    a = await world.site("a")
    run = await _running((a,))
    part = replace(_part(a, 0), started_at=None, finished_at=None, circumstances=told())
    await a.node.collector.keep_own(run, part)
    [row] = await a.rows("SELECT state, verdict, verdict_reasons FROM run")
    assert (row["state"], row["verdict"]) == ("finished", "clean")
    assert row["verdict_reasons"] == []


async def test_a_part_that_began_late_makes_its_result_suspicious(world: World) -> None:
    """The reason says which node began how late, compared with the agreed start."""
    a, b = sites = await world.two()
    run = await _running(sites)
    await a.node.collector.keep_own(run, replace(_part(a, 0), circumstances=told()))
    late = replace(_part(b, 1), circumstances=told(), started_at=HOUR + 700 * times.MILLISECOND)
    await b.node.collector.keep_own(run, late)
    await world.settle()
    [row] = await a.rows("SELECT verdict, verdict_reasons FROM run")
    assert (row["verdict"], row["verdict_reasons"]) == ("suspicious", ["started 700 ms late at b"])


class _Nameless(IdleTest):
    def metrics(self, result: Result) -> tuple[Metric, ...]:  # noqa: ARG002 - nothing is right
        return (Metric("rest_ms", 1.5, "ms"), Metric("Median ms!", float("nan"), ""))


async def test_a_figure_that_is_no_number_fails_the_run_and_breaks_no_list(world: World) -> None:
    """A figure that is not a number fails the run; in a stored result it is left out."""
    a = await world.site("a")
    a.node.capabilities.tests = {**a.node.capabilities.tests, "idle": _Nameless()}
    run = await _running((a,))
    await a.node.collector.keep_own(run, _part(a, 0))
    assert await a.state(run) == "failed"
    said = "the idle plugin gave 'Median ms!' the value nan, which is not a number"
    assert await a.reason(run) == said
    await a.execute("UPDATE run SET state = 'finished', reason = NULL WHERE id = $1", run)
    shown = await api_runs.fetch(a.node, run)
    assert [figure.name for figure in shown.metrics] == ["rest_ms"]
    assert json.loads(shown.model_dump_json())["metrics"][0]["value"] == 1.5


async def test_a_run_keeps_its_judgement_and_the_thresholds_of_its_end(world: World) -> None:
    """Figures beyond a threshold are bad; what is changed later changes no judgement."""
    a, *_ = sites = await world.three()
    run = await _running(sites)
    bounds = {"idle_ms": {"fair": 1, "bad": 2}}
    await a.rows("UPDATE task SET reference = $1 RETURNING id", {"thresholds": bounds})
    for place, site in enumerate(sites):
        await site.node.collector.keep_own(run, _part(site, place))
        await world.settle()
    shown = (await api_runs.fetch(a.node, run)).outcome
    assert shown is not None
    assert (shown.judgement, shown.code) == ("bad", "beyond-threshold")
    assert shown.reason == "idle_ms is 300000; 2 or more is bad"
    await a.rows("UPDATE task SET reference = NULL RETURNING id")
    assert (await api_runs.fetch(a.node, run)).outcome == shown
    there = (await api_runs.fetch(sites[1].node, run)).outcome
    assert there is not None
    assert (there.judgement, there.code) == ("unknown", "judged-by-lead")
