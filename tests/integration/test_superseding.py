"""A slot that is asked for again although its first run goes on somewhere is not run twice."""

from __future__ import annotations

from uuid import UUID, uuid4

from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.participants import HoldAnswer, HoldRequest, Introduction
from node.model.wire.tasks import TaskDocument
from node.store import runs
from tests.support.clocks import START
from tests.support.worlds import (
    ON_ONE_LOOP,
    Site,
    World,
    commit_request,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

AB = frozenset("ab")
SLOT = START + times.HOUR


async def _booked(world: World) -> tuple[Site, Site, Introduction, UUID]:
    """Two nodes and a task; b has the first run of its slot."""
    a, b = await world.two()
    task = introduction([a, b])
    await b.node.acceptance.consider(a.identity, task.model_copy(update={"participant": 1}))
    exchange, request = uuid4(), hold_request(task, [SLOT])
    await b.node.time_line.hold(exchange, a.identity, request)
    await b.node.time_line.commit(exchange, commit_request(request))
    return a, b, task, request.runs[0].run


def _again(task: Introduction, starts_at: int) -> HoldRequest:
    """The second run of the same slot."""
    request = hold_request(task, [starts_at], epoch=2)
    run = run_id(TaskId(task.task), SLOT, 2)
    second = request.runs[0].model_copy(update={"run": run, "slot": SLOT, "attempt": 2})
    return request.model_copy(update={"runs": (second,)})


async def _hold(a: Site, b: Site, request: HoldRequest) -> HoldAnswer:
    return await b.node.time_line.hold(uuid4(), a.identity, request)


async def test_an_attempt_that_has_not_begun_gives_way(world: World) -> None:
    """The lead has given it up; its time is free for the new one, even for the same seconds."""
    a, b, task, first = await _booked(world)
    request = _again(task, SLOT)
    answered = await _hold(a, b, request)
    assert answered.held == (request.runs[0].run,)
    assert await b.state(first) == "cancelled"
    assert f"anew, as run {request.runs[0].run}" in (await b.reason(first) or "")


async def test_an_attempt_that_has_begun_refuses_the_next(world: World) -> None:
    """Whatever became of it: its slot has been run here."""
    a, b, task, first = await _booked(world)
    world.clock.move_to(SLOT)
    async with b.database.connection() as connection:
        assert await runs.begin(connection, first, SLOT)
    answered = await _hold(a, b, _again(task, SLOT + times.MINUTE * 10))
    assert answered.held == ()
    assert answered.refused[0].reason.startswith(
        f"this slot has been run here already: run {first} began at 2026-"
    )
    assert await b.state(first) == "running"


async def test_a_slot_paused_behind_a_cut_wire_is_run_once(world: World) -> None:
    """Its participant measured it before it heard of the pause: resumed, it is not run again."""
    a, b = await world.two()
    document = {
        "test": {"type": "idle", "spec": {"duration": "PT1M", "participants": ["a", "b"]}},
        "schedule": {"start": times.format_instant(SLOT), "slip": "PT1H"},
    }
    task, _ = await a.node.admission.create(TaskDocument.model_validate(document), None)
    await a.plan()
    await world.settle()
    first = (await b.rows("SELECT id FROM run"))[0][0]
    world.cut = {AB}
    await a.node.editing.pause(task)
    world.clock.move_to(SLOT)
    async with b.database.connection() as connection:
        assert await runs.begin(connection, first, SLOT)
        await runs.keep_process(connection, first, SLOT, process=1, ticks=0)
    world.cut = set()
    await a.node.editing.resume(task)
    await world.pass_time(2 * times.HOUR, 5 * times.MINUTE)
    attempts = await b.rows("SELECT id FROM run WHERE started_at IS NOT NULL OR state = 'booked'")
    assert [row[0] for row in attempts] == [first]
    (slot,) = await a.rows("SELECT state::text, reason FROM run WHERE state <> 'cancelled'")
    assert slot[0] == "unplaced"
    assert f"run {first} began" in slot[1]
