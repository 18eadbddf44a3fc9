"""A host's clock that is set, by mistake or to mend it, takes nothing from anybody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from lead.store import planning
from lead.store.planning import LeaseRequest
from node.model import times
from node.model.errors import NotAuthenticated
from node.model.readiness import LEAD_SILENT
from node.model.wire.tasks import Schedule
from node.runtime.clock import DOUBT
from node.store import nodes, outbox, readiness
from node.store.database import Notice
from node.trust.keys import NodeKey
from node.trust.signatures import sign
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import (
    HOLD_LIFE,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    book_everywhere,
    hold_everywhere,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

SOON = START + 10 * times.MINUTE
LATER = START + 5 * times.HOUR
_TARGET = "/v1/participant/work"


async def _look(site: Site) -> None:
    """Let the launcher look, and begin or mark what it finds."""
    launcher = site.node.launcher
    await launcher.run_once()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*launcher._tasks.values())


async def test_runs_to_come_are_not_missed_by_a_clock_set_forward(world: World) -> None:
    """Runs seem to be over while the clock is an hour ahead, and are still to come afterwards."""
    a, b = await world.two()
    [run] = await book_everywhere(introduction([a, b]), a, [a, b], [SOON])
    world.clock.step(times.HOUR)
    for site in (a, b):
        await _look(site)
        await site.node._end_overdue()
    world.clock.advance(DOUBT // 2)
    world.clock.step(-times.HOUR)
    for site in (a, b):
        await _look(site)
        await site.node._end_overdue()
    assert [await site.state(run) for site in (a, b)] == ["scheduled", "scheduled"]


async def test_a_clock_that_stays_forward_is_believed(world: World) -> None:
    """A run that is over by a clock which stays as it was set is missed after a minute."""
    [a] = [await world.site("a")]
    [run] = await book_everywhere(introduction([a]), a, [a], [SOON])
    world.clock.step(times.HOUR)
    await _look(a)
    assert await a.state(run) == "scheduled"
    world.clock.advance(DOUBT)
    await _look(a)
    assert await a.state(run) == "missed"


async def test_a_lead_gives_up_no_slot_while_its_clock_is_in_doubt(world: World) -> None:
    """Workers plan nothing in the minute after a step forward, and everything once it is undone."""
    a = await world.site("a")
    task = introduction([a], schedule=Schedule(start=SOON, slip=0))
    await a.keep(task, a)
    world.clock.step(times.HOUR)
    a.workers._poll_s = 0.01
    running = asyncio.create_task(a.workers.run())
    for _ in range(3):
        await asyncio.wait({running}, timeout=0.02)
    assert await a.states() == {}
    world.clock.step(-times.HOUR)
    async with asyncio.timeout(PATIENCE_S):
        while list((await a.states()).values()) != ["scheduled"]:
            await asyncio.wait({running}, timeout=0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_clock_set_back_and_right_again_stops_no_housekeeping(world: World) -> None:
    """Holds end after their life though the clock was an hour behind for a while."""
    a, b = await world.two()
    task = introduction([a, b])
    await b.keep(task, a)
    await hold_everywhere(a, [b], hold_request(task, [SOON]))
    housekeeper = b.node._housekeeper
    housekeeper.start(b.node._periodic_jobs())
    try:
        world.clock.step(-times.HOUR)
        await _pass(world, 4)
        world.clock.step(times.HOUR)
        world.clock.advance(2 * HOLD_LIFE)
        async with asyncio.timeout(PATIENCE_S):
            while await b.rows("SELECT FROM exchange WHERE state = 'held'"):
                await _pass(world, 1)
    finally:
        await housekeeper.stop()


async def test_a_step_is_told_and_everything_looks_again(world: World) -> None:
    """A step is logged and counted once, and all who wait for an instant are woken."""
    a = await world.site("a")
    heard = list[Notice]()
    a.node.add_notification_listener(heard.append)
    await a.node.watch_clock()
    assert heard == []
    world.clock.step(-times.HOUR)
    with capture_logs() as lines:
        for _ in range(2):
            await a.node.watch_clock()
    assert [notice.kind for notice in heard] == ["wake"]
    assert [(line["event"], line["by_s"]) for line in lines] == [
        ("the clock of this host was set", -3600.0)
    ]


async def _noticed(site: Site) -> None:
    """Let a process that runs notice that the clock was set."""
    await site.node.watch_clock()


async def _restarted(site: Site) -> None:
    """Start a process after the clock was set while none was there."""
    await site.world.restart(site)
    await site.node.begin_clock()


SetBack = Callable[[Site], Awaitable[None]]
set_back = pytest.mark.parametrize("hear", [_noticed, _restarted])
"""Both ways in which a node hears that its clock was set back."""


async def _set(world: World, by: int, hear: SetBack) -> None:
    """Set the clock of all nodes, and let them hear of it."""
    world.clock.step(by)
    for site in world.sites:
        await hear(site)


async def _share_task(a: Site, b: Site) -> None:
    """Let both nodes know a task of both that the first leads."""
    task = introduction([a, b], schedule=Schedule(start=LATER))
    for site in (a, b):
        await site.keep(task, a)


async def _ahead(world: World) -> tuple[Site, Site]:
    """Return two nodes whose clock is an hour ahead."""
    a, b = await world.two()
    await _set(world, 0, _noticed)
    await _set(world, times.HOUR, _noticed)
    return a, b


async def _booked(site: Site) -> list[str]:
    return list((await site.states()).values())


@set_back
async def test_messages_taken_by_a_clock_that_was_ahead_are_delivered(
    world: World, hear: SetBack
) -> None:
    """They are due as soon as the clock is right again, or when the node starts after that."""
    a, b = await _ahead(world)
    async with a.database.transaction() as connection:
        body = {"task": str(uuid4()), "state": "finished", "reason": "over"}
        kind, now = outbox.MessageKind.TASK_END, world.clock.now()
        await outbox.post(connection, [b.identity], kind, body, now)
        [taken] = await outbox.take_due(connection, now, now + 30 * times.SECOND, [kind], [])
    await _set(world, -times.HOUR, hear)
    async with a.database.transaction() as connection:
        now = world.clock.now()
        assert await outbox.take_due(connection, now, now, [kind], []) == [taken]


@set_back
async def test_a_task_posted_while_the_clock_was_ahead_is_planned(
    world: World, hear: SetBack
) -> None:
    """A task that was to be planned at once does not wait until the wrong hour."""
    a, _ = await _ahead(world)
    await a.keep(introduction([a], schedule=Schedule(start=LATER)), a)
    await _set(world, -times.HOUR, hear)
    await a.plan()
    assert await _booked(a) == ["scheduled"]


@set_back
async def test_a_task_edited_while_the_clock_was_ahead_is_planned(
    world: World, hear: SetBack
) -> None:
    """A task whose next slot is the instant of its edit, a day ahead, does not wait until then."""
    a, _ = await _ahead(world)
    await a.keep(introduction([a], schedule=Schedule(start=LATER)), a)
    await a.execute(
        "UPDATE planning SET plan_at = plan_at - interval '2 h',"
        " next_run_at = next_run_at + interval '1 day'"
    )
    await _set(world, -times.HOUR, hear)
    await a.plan()
    assert await _booked(a) == ["scheduled"]


@set_back
async def test_who_did_not_answer_a_clock_that_was_ahead_is_asked_again(
    world: World, hear: SetBack
) -> None:
    """Neither the task that waits for a participant nor the question to it wait for an hour."""
    a, b = await _ahead(world)
    await _share_task(a, b)
    world.cut = {frozenset("ab")}
    await a.plan()
    assert await _booked(a) == ["waiting"]
    await _set(world, -times.HOUR, hear)
    world.cut = set()
    for _ in range(2):  # one asks, and the others follow its answer
        await a.plan()
    assert [await _booked(site) for site in (a, b)] == [["scheduled"]] * 2


@set_back
@pytest.mark.nightly
async def test_a_run_that_seemed_over_waits_for_its_start(world: World, hear: SetBack) -> None:
    """Its lead does not measure; parts of those that do are still to come."""
    a, b = await world.two()
    await _set(world, 0, _noticed)
    task = introduction([b], schedule=Schedule(start=world.clock.now() + 50 * times.MINUTE))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    await _set(world, times.HOUR, _noticed)
    await a.execute("UPDATE run SET state = 'merging'")
    await _set(world, -times.HOUR, hear)
    assert await _booked(a) == await _booked(b) == ["scheduled"]


async def test_a_question_that_the_clock_was_set_back_under_counts_from_now(world: World) -> None:
    """A participant that was asked by a clock that was ahead is away since now, not later."""
    a, b = await _ahead(world)
    await _share_task(a, b)

    async def step(call: Call, phase: str) -> None:
        if call == ("a", "b", "propose") and phase == "asked":
            world.watch, world.cut = None, {frozenset("ab")}
            await _set(world, -times.HOUR, _noticed)

    world.watch = step
    await a.plan()
    found = a.reachability.unreachable_among([b.identity])
    assert found is not None
    now = world.clock.now()
    assert found[1].since <= now < found[1].ask_at <= now + times.SECOND


@set_back
async def test_the_lease_of_a_dead_worker_ends(world: World, hear: SetBack) -> None:
    """A lease that was taken while the clock was ahead lasts no longer than any other."""
    a, _ = await _ahead(world)
    await a.keep(introduction([a], schedule=Schedule(start=LATER)), a)
    lease, now = a.node.settings.lease, world.clock.now()
    async with a.database.transaction() as connection:
        wanted = LeaseRequest("dead", now, now + lease)
        assert await planning.claim(connection, wanted, now + times.DAY, 1)
    await _set(world, -times.HOUR, hear)
    world.clock.advance(lease - 1)
    await a.plan()
    assert await _booked(a) == []
    world.clock.advance(1)
    await a.plan()
    assert await _booked(a) == ["scheduled"]


@set_back
async def test_holds_end_that_were_made_while_the_clock_was_ahead(
    world: World, hear: SetBack
) -> None:
    """A hold occupies its time for its life, and so does an exchange that nobody decides."""
    a, b = await _ahead(world)
    await _share_task(a, b)

    async def die(call: Call, phase: str) -> None:
        if call == ("a", "b", "hold") and phase == "answered":
            raise asyncio.CancelledError

    world.watch = die
    await asyncio.gather(a.plan(), return_exceptions=True)
    world.watch = None
    for worker in list(a.workers._busy):
        worker.cancel()
    assert await b.states() != {}
    await _set(world, -times.HOUR, hear)
    life = a.node.settings.hold_life
    world.clock.advance(life)
    await b.tend()
    assert await b.states() == {}


async def test_stale_negotiations_are_ended_after_the_clock_was_set_back(world: World) -> None:
    """A lead that looked for them while its clock was ahead looks again within seconds."""
    a, _ = await _ahead(world)
    task = introduction([a])
    await a.keep(task, a)
    await a.plan()
    await _set(world, -times.HOUR, _noticed)
    now = world.clock.now()
    await a.execute(
        "INSERT INTO negotiation (id, task_id, lease_epoch, run_ids, opened_at, expires_at)"
        " VALUES (gen_random_uuid(), $1, 0, '{}', $2, $2)",
        task.task,
        now,
    )
    world.clock.advance(times.SECOND)
    await a.plan()
    [row] = await a.rows("SELECT state::text FROM negotiation WHERE lease_epoch = 0")
    assert row[0] == "aborted"


@set_back
async def test_decisions_made_while_the_clock_was_ahead_are_compared(
    world: World, hear: SetBack
) -> None:
    """A lead compares the runs of a task two minutes after the clock is right again."""
    a, b = await _ahead(world)
    await _share_task(a, b)
    await a.plan()
    await _set(world, -times.HOUR, hear)
    await b.execute("DELETE FROM run")
    world.clock.advance(3 * times.MINUTE)
    assert (await a.lead.reconciler.run_once(a.node.peer(b.identity))).found == 1


@set_back
async def test_tasks_created_while_the_clocks_were_ahead_are_confirmed(
    world: World, hear: SetBack
) -> None:
    """A participant asks about them, though by the right clock they come from the future."""
    a, b = await _ahead(world)
    task = introduction([a, b]).model_copy(update={"created_at": world.clock.now()})
    await b.keep(task, a)
    await _set(world, -times.HOUR, hear)
    assert await b.node.confirmer.run_once() == 1


@set_back
async def test_who_was_there_by_a_clock_that_was_ahead_is_not_there_for_an_hour(
    world: World, hear: SetBack
) -> None:
    """Neither a dead lead nor a silent node counts as present until the wrong hour."""
    a, b = await _ahead(world)
    now = world.clock.now()
    async with a.database.transaction() as connection:
        await readiness.keep_lead(connection, "dead", now, 0)
        await nodes.note_heard(connection, [b.identity], now)
        await nodes.note_answered(connection, [b.identity], now)
        await nodes.note_unanswered(connection, b.identity, now, "away")
    await _set(world, -times.HOUR, hear)
    query = "SELECT heard_at, seen_at, unreachable_since FROM node WHERE NOT is_self"
    assert [tuple(row) for row in await a.rows(query)] == [(world.clock.now(),) * 3]
    for leads in (True, False):
        async with a.database.connection() as connection:
            facts = await readiness.planning_facts(connection, world.clock.now() - LEAD_SILENT, 0)
        assert facts.leads == leads
        world.clock.advance(LEAD_SILENT)


@set_back
async def test_a_node_that_answers_is_not_away_since_the_clock_is_right(
    world: World, hear: SetBack
) -> None:
    """A node seen by a clock that was ahead was seen now, and nothing else is said of it."""
    a, b = await _ahead(world)
    async with a.database.transaction() as connection:
        await nodes.note_answered(connection, [b.identity], world.clock.now())
    await _set(world, -times.HOUR, hear)
    query = "SELECT seen_at, heard_at, unreachable_since FROM node WHERE NOT is_self"
    assert [tuple(row) for row in await a.rows(query)] == [(world.clock.now(), None, None)]


@set_back
async def test_results_that_failed_while_the_clock_was_ahead_are_delivered(
    world: World, hear: SetBack
) -> None:
    """The next attempt is now; one that is under way is left alone."""
    a, _ = await _ahead(world)
    [run] = await book_everywhere(introduction([a]), a, [a], [LATER])
    await a.execute(
        "INSERT INTO destination (digest, archiver, spec, label, ordered)"
        " VALUES ('', 'file', '{}', '', false)"
    )
    now = world.clock.now()
    await a.execute(
        "INSERT INTO archive (id, name, destination_id, runs, created_at, changed_at)"
        " SELECT gen_random_uuid(), 'files', id, 'all', $1, $1 FROM destination",
        now,
    )
    for edition in (1, 2):
        await a.execute(
            "INSERT INTO archiving (archive_id, destination_id, run_id, edition, outcome, taken,"
            " created_at, first_tried_at, tried_at, next_at)"
            " SELECT archive.id, destination_id, $1, $2, 'finished', $2::smallint = 2,"
            " $3, $3, $3, $3"
            " FROM archive",
            run,
            edition,
            now,
        )
    await _set(world, -times.HOUR, hear)
    rows = await a.rows("SELECT next_at, first_tried_at FROM archiving ORDER BY edition")
    right = world.clock.now()
    assert [tuple(row) for row in rows] == [(right, right), (now, right)]


@set_back
async def test_terms_put_off_while_the_clock_was_ahead_begin(world: World, hear: SetBack) -> None:
    """Seats are given and terms opened without waiting for the wrong hour."""
    a, _ = await _ahead(world)
    task = introduction([a])
    await a.keep(task, a)
    now = world.clock.now()
    await a.execute(
        "INSERT INTO pool (name, match, policy_set, created_at, changed_at)"
        " VALUES ('all', '{}', 'fair', $1, $1)",
        now,
    )
    await a.execute(
        "INSERT INTO pool_task (task_id, pool_id, request, next_slot, due_at)"
        " SELECT $1, id, '{}', $2, $3 FROM pool",
        task.task,
        LATER,
        now,
    )
    await a.execute(
        "INSERT INTO term (pool_task, starts_at, ends_at, over_at, seats, try_at)"
        " VALUES ($1, $2, $3, $3, 1, $4)",
        task.task,
        LATER,
        LATER + times.HOUR,
        now,
    )
    await _set(world, -times.HOUR, hear)
    rows = await a.rows("SELECT due_at, try_at FROM pool_task INNER JOIN term ON true")
    assert [tuple(row) for row in rows] == [(world.clock.now(),) * 2]


async def test_an_ordinary_start_makes_nothing_due(world: World) -> None:
    """Tasks that the schedule has put off stay put off where no clock was set."""
    a, b = await world.two()
    await _set(world, 0, _restarted)
    schedule = Schedule(start=LATER, repeat=times.HOUR, until=LATER + 3 * times.DAY)
    task = introduction([a, b], schedule=schedule)
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    [before] = await a.rows("SELECT plan_at FROM planning")
    assert before[0] > world.clock.now()
    world.clock.advance(times.MINUTE)
    await _set(world, 0, _restarted)
    assert await a.rows("SELECT plan_at FROM planning") == [before]


async def test_a_start_long_before_by_a_wrong_clock_refuses_nobody(world: World) -> None:
    """Requests are not older than a node that was started while its clock was ahead."""
    a, _ = await _ahead(world)
    await _set(world, 0, _restarted)
    world.clock.advance(times.MINUTE)
    await _set(world, -times.HOUR, _noticed)
    key, target, now = NodeKey.generate(), f"http://a{_TARGET}", world.clock.now()
    async with a.database.transaction() as connection:
        await nodes.pin(connection, key.identity, "c", now)
    await a.node.directory.refresh()
    for age_s, accepted in ((0, True), (61, False)):
        created = now // times.SECOND - age_s
        signed = sign(key, "GET", target, b"", created=created, nonce="n" * 16, to=a.identity)
        with nullcontext() if accepted else pytest.raises(NotAuthenticated):
            a.node.verifier.check_head(method="GET", target=_TARGET, headers=signed, now=now)


async def _pass(world: World, seconds: int) -> None:
    """Let seconds pass, each with time for what is due in it."""
    for _ in range(seconds):
        world.clock.advance(times.SECOND)
        for site in world.sites:
            await site.rows("SELECT 1")
