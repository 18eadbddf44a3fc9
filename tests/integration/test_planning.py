"""A lead plans its tasks with real participants, from the claim to the commit."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from lead.model.reasons import hold_dropped
from lead.store import planning
from lead.store.planning import LeaseRequest
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import Conflict, DatabaseUnavailable, ParleyError
from node.model.ids import TaskId, run_id
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule
from tests.support.clocks import START, ManualClock
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    book_everywhere,
    commit_request,
    exchange_of,
    hold_everywhere,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
DAY_OF_RUNS = 288


async def _led(lead: Site, participants: tuple[Site, ...], **options: Any) -> Introduction:
    """Create a task that is on its lead's agenda and accepted by its participants."""
    task = introduction(participants, **options)
    for site in {lead, *participants}:
        await site.keep(task, lead)
    return task


def _repeating(count: int = 12, first: int = HOUR) -> Schedule:
    return Schedule(start=first, repeat=DURATION, until=first + count * DURATION)


async def _decisions(site: Site) -> list[Any]:
    return await site.rows(
        "SELECT outcome, sentence, asked, placed, trace FROM decision ORDER BY id"
    )


async def _agenda(site: Site, task: Introduction) -> Any:
    rows = await site.rows("SELECT * FROM planning WHERE task_id = $1", task.task)
    return rows[0]


# -- one exchange ----------------------------------------------------------------------------------


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.nightly
async def test_a_day_is_booked_on_all_in_one_exchange(
    world: World,
    leads: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The 288 runs of a day, one every five minutes, are booked on all nodes in one exchange."""
    lead, b, c = await world.three()
    participants = (lead, b) if leads else (b, c)
    schedule = Schedule(start=START + times.MINUTE, repeat=DURATION, slip=times.MINUTE)
    await _led(lead, participants, duration=times.MINUTE, schedule=schedule)
    await lead.plan()
    runs = await lead.states()
    assert len(runs) == DAY_OF_RUNS
    for site in {lead, *participants}:
        assert await site.states() == dict.fromkeys(runs, "scheduled")
    assert {what: world.count(what) for what in ("propose", "hold", "commit", "release")} == {
        "propose": 2,
        "hold": 2,
        "commit": 2,
        "release": 0,
    }
    [decision] = await _decisions(lead)
    assert (decision["outcome"], decision["placed"]) == ("booked", DAY_OF_RUNS)
    assert decision["sentence"].startswith("288 of 288 runs booked, the first at ")
    assert [await site.outbox_messages() for site in world.sites] == [[]] * 3


async def test_two_tasks_share_the_time(world: World) -> None:
    """A second task takes the time that the first one leaves, equal on every participant."""
    a, b = await world.two()
    first = await _led(a, (a, b), schedule=_repeating(), duration=2 * times.MINUTE)
    await a.plan()
    slip = Schedule(start=HOUR, repeat=DURATION, until=HOUR + times.HOUR, slip=3 * times.MINUTE)
    second = await _led(b, (b, a), schedule=slip, duration=2 * times.MINUTE)
    await b.plan()
    for task in (first, second):
        rows = [
            await site.rows(
                "SELECT id, starts_at FROM run WHERE task_id = $1 ORDER BY 2", task.task
            )
            for site in (a, b)
        ]
        assert len(rows[0]) == 12
        assert rows[0] == rows[1]


async def test_higher_priority_displaces_and_the_loser_is_placed_again(world: World) -> None:
    """A displaced run is reported to its lead, which places it again in its window."""
    a, b = await world.two()
    window = Schedule(start=HOUR, slip=20 * times.MINUTE)
    low = await _led(a, (a, b), schedule=window)
    await a.plan()
    high = await _led(b, (b,), priority=5, schedule=Schedule(start=HOUR, slip=0))
    await b.plan()
    await world.pass_time(4 * times.SECOND)
    assert list((await b.states()).values()).count("scheduled") == 2
    again = run_id(TaskId(low.task), HOUR, 2)
    [row] = await a.rows("SELECT starts_at FROM run WHERE id = $1", again)
    assert row[0] == HOUR + DURATION
    first = run_id(TaskId(low.task), HOUR, 1)
    assert await a.states() == {first: "displaced", again: "scheduled"}
    assert await b.state(run_id(TaskId(high.task), HOUR, 1)) == "scheduled"


# -- no time ---------------------------------------------------------------------------------------


async def test_a_silent_participant_makes_the_runs_wait(world: World) -> None:
    """Slots wait for an unreachable participant and name it; all are booked when it is back."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=_repeating(), duration=times.MINUTE)
    world.cut = {frozenset("ab")}
    await a.plan()
    assert set((await a.states()).values()) == {"waiting"}
    run = run_id(TaskId(task.task), HOUR, 1)
    since = "b cannot be reached since 2026-12-01T00:00:00Z"
    assert await a.reason(run) == f"{since}: the wire is cut"
    [decision] = await _decisions(a)
    assert (decision["outcome"], decision["placed"]) == ("unreachable", 0)
    agenda = await _agenda(a, task)
    assert START < agenda["plan_at"] <= START + times.SECOND
    world.cut = set()
    world.clock.move_to(agenda["plan_at"])
    await a.plan()
    assert list((await a.states()).values()) == ["scheduled"] * 12
    assert await b.states() == await a.states()
    assert (await _agenda(a, task))["failures"] == 0


async def test_a_silent_participant_is_introduced_to_when_it_is_back(world: World) -> None:
    """A participant that was away at creation is introduced to the task before it is planned."""
    a, b = await world.two()
    task = introduction([a, b], accepted=None, schedule=_repeating(), duration=times.MINUTE)
    await a.keep(task, a)
    world.cut = {frozenset("ab")}
    await a.plan()
    assert set((await a.states()).values()) == {"waiting"}
    world.cut = set()
    await world.pass_time(2 * times.SECOND)
    assert list((await b.states()).values()) == ["scheduled"] * 12
    [row] = await a.rows("SELECT participants, tool FROM task")
    assert [p["accepted"] for p in row["participants"]] == [True, True]


async def test_one_participant_refuses_the_task(world: World) -> None:
    """A task that a participant refuses at its introduction is refused with name and reason."""
    a, b = await world.two()
    b.node.capabilities._which = lambda _: None
    task = introduction([a, b], accepted=None, schedule=_repeating())
    await a.keep(task, a)
    with capture_logs([merge_contextvars]) as lines:
        await a.plan()
    [row] = await a.rows("SELECT state::text, reason FROM task")
    assert row["state"] == "refused"
    assert row["reason"] == "b: sleep: sleep is not installed; apt install coreutils"
    told = {line["event"]: line for line in lines if line.get("task") == str(task.task)}
    assert told["task refused"]["reason"] == row["reason"]
    assert told["task not accepted"]["reason"] == row["reason"].removeprefix("b: ")
    assert len({line["trace_id"] for line in told.values()}) == 1
    assert await a.states() == {}
    assert (await _agenda(a, task))["plan_at"] is None


async def test_a_refusal_is_not_forgotten_by_a_lead_that_dies(world: World) -> None:
    """A task whose refusal was stored when its lead died is refused by the next lead."""
    a, b = await world.two()
    task = introduction([a, b], accepted=None, schedule=_repeating())
    for site in (a, b):
        await site.keep(task, a)
    await b.execute("UPDATE task SET state = 'cancelled', reason = 'cancelled on a'")
    refuse = a.planner._refuse_task

    async def die(task: UUID, reason: str) -> None:
        a.planner._refuse_task = refuse
        raise DatabaseUnavailable(reason)

    a.planner._refuse_task = die
    await a.plan()
    assert await a.rows("SELECT state::text FROM task") == [("active",)]
    await world.pass_time(times.MINUTE)
    [row] = await a.rows("SELECT state::text, reason FROM task")
    reason = "b: the task is cancelled here: cancelled on a"
    assert (row["state"], row["reason"]) == ("refused", reason)


async def test_clocks_that_differ_do_not_plan_together(world: World) -> None:
    """A participant whose clock is off by 90 s is named with both times."""
    a = await world.site("a")
    b = await world.site("b", ManualClock(START + 90 * times.SECOND))
    task = await _led(a, (a, b), schedule=_repeating())
    await a.plan()
    reason = await a.reason(run_id(TaskId(task.task), HOUR, 1)) or ""
    assert reason.startswith("the clock of b is 90.0 s ahead of this node's (theirs ")
    assert "theirs 2026-12-01T00:01:30Z, ours 2026-12-01T00:00:00Z" in reason
    assert world.count("hold") == 0


async def test_a_busy_participant_is_named_with_what_keeps_it_busy(world: World) -> None:
    """A slot without time names the busy participant and what occupies it."""
    a, b = await world.two()
    await book_everywhere(introduction([b], priority=7), b, [b], [HOUR])
    task = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))
    with capture_logs([merge_contextvars]) as lines:
        await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    reason = await a.reason(run) or ""
    assert reason.startswith("b: no 5 min free: busy with an exclusive run that another")
    [line] = [line for line in lines if line["event"] == "not booked"]
    assert (line["task"], line["run"], line["reason"]) == (str(task.task), str(run), reason)
    assert len(line["trace_id"]) == 32


@pytest.mark.nightly
async def test_a_slot_is_tried_until_its_window_is_over(world: World) -> None:
    """A waiting slot is placed when time becomes free, until its window is over."""
    a, b = await world.two()
    once = Schedule(start=HOUR, slip=0)
    [blocking] = await book_everywhere(introduction([b], schedule=once), b, [b], [HOUR])
    task = await _led(a, (a, b), schedule=once)
    run = run_id(TaskId(task.task), HOUR, 1)
    await a.plan()
    assert await a.state(run) == "waiting"
    await world.pass_time(50 * times.MINUTE, 2 * times.MINUTE)
    assert await a.state(run) == "waiting"
    await b.node.termination.cancel_run(blocking)
    await world.pass_time(6 * times.MINUTE, times.MINUTE)
    assert await a.state(run) == "scheduled"
    assert await b.state(run) == "scheduled"


async def test_a_slot_whose_window_is_over_is_given_up(world: World) -> None:
    """A slot that never found time ends as unplaced and keeps the reason."""
    a, b = await world.two()
    await book_everywhere(introduction([b]), b, [b], [HOUR])
    task = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))
    await a.plan()
    await world.pass_time(times.HOUR + 10 * times.MINUTE, 5 * times.MINUTE)
    run = run_id(TaskId(task.task), HOUR, 1)
    assert await a.state(run) == "unplaced"
    assert "b: no 5 min free: busy with" in (await a.reason(run) or "")
    assert [row[0] for row in await a.rows("SELECT state::text FROM task")] == ["finished"]


async def test_a_refusal_of_one_run_is_kept_as_its_reason(world: World) -> None:
    """A run that one participant refuses waits at its lead with the reason; others are booked."""
    a, b = await world.two()
    thief = introduction([b], priority=3)
    await b.keep(thief, b)

    async def steal(call: Call, phase: str) -> None:
        if call == ("a", "b", "hold") and phase == "asked":
            request = hold_request(thief, [HOUR])
            exchange = await hold_everywhere(b, [b], request)
            await b.node.time_line.commit(exchange, commit_request(request))
            world.watch = None

    task = await _led(a, (a, b), schedule=_repeating(), duration=DURATION)
    world.watch = steal
    await a.plan()
    states = await a.states()
    lost = run_id(TaskId(task.task), HOUR, 1)
    assert states.pop(lost) == "waiting"
    assert set(states.values()) == {"scheduled"}
    assert await b.state(lost) is None
    reason = await a.reason(lost) or ""
    assert reason.startswith("b: its time was just taken by an exclusive run that another node")


async def test_a_lost_task_is_introduced_again(world: World) -> None:
    """A participant that lost its database is introduced to the task again and takes part."""
    a, b = await world.two()
    await _led(a, (a, b), schedule=_repeating(), duration=times.MINUTE)
    await b.execute("DELETE FROM task")
    await a.plan()
    assert set((await a.states()).values()) == {"waiting"}
    await world.pass_time(3 * times.SECOND)
    assert list((await a.states()).values()) == ["scheduled"] * 12
    assert await b.states() == await a.states()


async def _forget(site: Site, other: Site) -> None:
    """Let a node not know another one any more, whose tasks it has; as after a restore."""
    await site.execute("DELETE FROM node WHERE identity = $1", other.identity)
    await site.node.directory.refresh()


async def test_a_participant_that_is_not_known_any_more_makes_runs_wait(world: World) -> None:
    """The slots of a task with an unknown participant wait and name the reason."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=_repeating(), duration=times.MINUTE)
    await _forget(a, b)
    await a.plan()
    assert set((await a.states()).values()) == {"waiting"}
    reason = await a.reason(run_id(TaskId(task.task), HOUR, 1)) or ""
    assert reason.startswith("b: no node with the key ed25519:")


# -- workers ---------------------------------------------------------------------------------------


async def test_two_pools_plan_a_task_once(world: World) -> None:
    """Two concurrent worker pools share the tasks and plan none twice."""
    a, b = await world.two()
    for number in range(6):
        first = HOUR + number * times.HOUR
        await _led(a, (a, b), schedule=_repeating(2, first))
    pools = [a.new_workers("one"), a.new_workers("two")]
    await asyncio.gather(*(pool.run_once() for pool in pools))
    await asyncio.gather(*(task for pool in pools for task in pool._busy))
    assert len(await _decisions(a)) == 6
    assert list((await a.states()).values()) == ["scheduled"] * 12


async def test_a_worker_that_lost_its_lease_decides_nothing(world: World) -> None:
    """A worker that loses its lease commits nothing, and the newer worker plans the task."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=_repeating(), duration=times.MINUTE)

    async def overtake(call: Call, phase: str) -> None:
        if call == ("a", "b", "hold") and phase == "answered":
            world.watch = None
            await a.execute("UPDATE planning SET lease_epoch = lease_epoch + 1, lease_until = NULL")
            await a.execute("UPDATE planning SET plan_at = $1", START)

    world.watch = overtake
    await a.plan()
    assert await b.states() == {}
    assert await a.rows("SELECT FROM negotiation WHERE state = 'committed'") == []
    await world.pass_time(3 * times.SECOND)
    assert list((await b.states()).values()) == ["scheduled"] * 12
    assert (await _agenda(a, task))["lease_epoch"] == 3


async def test_a_task_cancelled_while_it_is_planned_books_nothing(world: World) -> None:
    """A cancellation between hold and decision wins: nothing is committed, and all time is free."""
    a, b = await world.two()
    task = await _led(a, (a, b), schedule=_repeating(), duration=times.MINUTE)

    async def cancel(call: Call, phase: str) -> None:
        if call == ("a", "b", "hold") and phase == "answered":
            world.watch = None
            await a.node.termination.cancel_task(task.task)

    world.watch = cancel
    await a.plan()
    await world.settle()
    await world.pass_time(6 * times.SECOND, 2 * times.SECOND)
    for site in (a, b):
        assert set((await site.states()).values()) <= {"cancelled"}
    assert await a.rows("SELECT FROM planning WHERE plan_at IS NOT NULL") == []


async def test_a_slot_that_came_to_wait_meanwhile_is_planned(world: World) -> None:
    """A run displaced while its task is being planned is planned again afterwards."""
    a, b = await world.two()
    first = HOUR - times.HOUR // 2
    task = await _led(
        a, (a, b), schedule=Schedule(start=first, repeat=DURATION), duration=times.MINUTE
    )
    await a.plan()
    lost = run_id(TaskId(task.task), first, 1)
    await a.execute("UPDATE planning SET plan_at = $1", START)

    async def lose(call: Call, phase: str) -> None:
        if call[2] == "propose":
            world.watch = None
            await a.node.termination.lose_run(lost, "b does not have it any more")

    world.watch = lose
    world.clock.advance(3 * times.HOUR)
    await a.plan()
    rows = await a.rows("SELECT plan_at FROM planning")
    assert rows[0][0] <= world.clock.now()


# -- commits that come late ------------------------------------------------------------------------


async def _cut_off_commit(world: World, a: Site, b: Site) -> tuple[Introduction, UUID]:
    """Let a decision fall while b cannot be reached until it drops the hold."""
    task = await _led(a, (a, b), schedule=Schedule(start=HOUR, slip=0))

    async def cut(call: Call, phase: str) -> None:
        if call == ("a", "b", "commit"):
            world.cut = {frozenset("ab")}

    world.watch = cut
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    assert (await a.state(run), await b.state(run)) == ("scheduled", "held")
    world.cut = {frozenset("ab")}
    await world.pass_time(2 * times.MINUTE, 4 * times.SECOND)
    assert (await a.state(run), await b.state(run)) == ("scheduled", None)
    world.watch = None
    world.cut = set()
    return task, run


@pytest.mark.nightly
async def test_a_late_commit_books_the_same_run_again(world: World) -> None:
    """A participant that dropped the hold books the same run again if its time is free."""
    a, b = await world.two()
    _, run = await _cut_off_commit(world, a, b)
    await world.pass_time(5 * times.MINUTE, 30 * times.SECOND)
    assert (await a.state(run), await b.state(run)) == ("scheduled", "scheduled")


@pytest.mark.nightly
async def test_a_late_commit_without_time_frees_the_run_everywhere(world: World) -> None:
    """A late commit without free time displaces the run everywhere, and its slot waits again."""
    a, b = await world.two()
    task, run = await _cut_off_commit(world, a, b)
    await book_everywhere(introduction([b]), b, [b], [HOUR])
    await world.pass_time(5 * times.MINUTE, 30 * times.SECOND)
    assert await a.state(run) == "displaced"
    assert hold_dropped("b") in (await a.reason(run) or "")
    assert await a.state(run_id(TaskId(task.task), HOUR, 2)) == "waiting"


@pytest.mark.nightly
async def test_a_late_commit_of_an_old_epoch_frees_the_run_everywhere(world: World) -> None:
    """A late commit under an old epoch displaces the run; the lead does not keep it alone."""
    a, b = await world.two()
    task, run = await _cut_off_commit(world, a, b)
    await b.execute("UPDATE task SET lease_epoch = 99")
    with pytest.raises(Conflict):
        await b.node.time_line.hold(exchange_of(task), a.identity, hold_request(task, [HOUR]))
    await world.pass_time(5 * times.MINUTE, 30 * times.SECOND)
    assert await a.state(run) == "displaced"
    assert await b.state(run) is None


@pytest.mark.nightly
async def test_a_late_commit_to_a_node_unknown_meanwhile_frees_the_run(world: World) -> None:
    """A late commit to a node that is not known any more displaces the run of the others."""
    a, b = await world.two()
    _, run = await _cut_off_commit(world, a, b)
    await _forget(a, b)
    await world.pass_time(5 * times.MINUTE, 30 * times.SECOND)
    assert await a.state(run) == "displaced"


@pytest.mark.nightly
async def test_a_second_hold_lives_no_longer_than_the_first(world: World) -> None:
    """A hold repeated for a late commit expires in time, too, if its lead falls silent."""
    a, b = await world.two()
    _, run = await _cut_off_commit(world, a, b)

    async def cut(call: Call, phase: str) -> None:
        if call == ("a", "b", "hold") and phase == "answered":
            world.cut = {frozenset("ab")}

    world.watch = cut
    for _ in range(60):
        world.clock.advance(30 * times.SECOND)
        await a.deliver()
        if await b.state(run) == "held":
            break
    assert await b.state(run) == "held"
    world.clock.advance(times.MINUTE)
    await b.tend()
    assert await b.state(run) is None


async def test_planning_goes_on_after_an_error(world: World) -> None:
    """After an unexpected error a task is planned again when the lease is over."""
    a, b = await world.two()
    await _led(a, (a, b), schedule=_repeating(), duration=times.MINUTE)

    async def fail(call: Call, phase: str) -> None:
        world.watch = None
        raise ParleyError("an unexpected error")

    world.watch = fail
    await a.plan()
    await world.pass_time(times.MINUTE, 5 * times.SECOND)
    assert list((await b.states()).values()) == ["scheduled"] * 12


async def test_a_background_task_shares_everything(world: World) -> None:
    """A background task is booked at the same time as an exclusive one."""
    a, b = await world.two()
    await book_everywhere(introduction([b]), b, [b], [HOUR])
    task = await _led(
        a,
        (a, b),
        scheduling_class=SchedulingClass.BACKGROUND,
        schedule=Schedule(start=HOUR, slip=0),
    )
    await a.plan()
    assert await b.state(run_id(TaskId(task.task), HOUR, 1)) == "scheduled"


async def test_a_claim_is_taken_once(world: World) -> None:
    """A leased task is claimed again only after its lease, with a newer epoch."""
    a = await world.site("a")
    await _led(a, (a,), schedule=_repeating())
    async with a.database.transaction() as connection:
        before, until = START + times.DAY, START + times.MINUTE
        first = LeaseRequest("one", START, until)
        [claim] = await planning.claim(connection, first, before, 9)
        early = LeaseRequest("two", until - 1, until)
        assert await planning.claim(connection, early, before, 9) == []
        late = LeaseRequest("two", until, until + 1)
        [reclaim] = await planning.claim(connection, late, before, 9)
    assert (claim.lease_epoch, reclaim.lease_epoch) == (1, 2)
