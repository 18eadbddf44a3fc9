"""Reserved time is closed to tasks that are not admitted: in proposals, holds and the database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import InvalidDocument
from node.model.spans import Span
from node.model.wire.participants import Closure, Obstacle
from node.model.wire.tasks import Schedule
from node.store.database import Notice
from node.store.reservations import ReservationFilter
from tests.support.booking import HOUR, REACH, BookingLead
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.reservations import WORDS, edit, reserve
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    World,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP

HALF = 30 * times.MINUTE
WINDOW = (HOUR, HOUR + REACH)
BEHIND = [(HOUR + HALF, HOUR + REACH)]
CLASSES = list(SchedulingClass)


@pytest.mark.parametrize("kind", CLASSES)
async def test_no_class_is_offered_reserved_time(
    booker: BookingLead, kind: SchedulingClass
) -> None:
    """Reserved time is not offered to any class or priority, and the reason names it."""
    reservation = await reserve(booker.site)
    task = await booker.task(1000, kind)
    answer = await booker.ask(task, WINDOW)
    assert (list(answer.free), answer.free_displacing) == (BEHIND, None)
    answer = await booker.ask(task, (HOUR, HOUR + HALF))
    assert (answer.free, answer.free_displacing) == ((), None)
    [closure] = answer.obstacles
    assert isinstance(closure, Closure)
    assert (closure.reservation, closure.starts_at, closure.ends_at) == (
        reservation.id,
        HOUR,
        HOUR + HALF,
    )
    reason = f"no 5 min free: {WORDS} 2026-12-01T01:30:00Z, reservation {reservation.id}"
    assert answer.reason == reason


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("displacing", [False, True])
@pytest.mark.mostly_nightly
async def test_a_hold_is_refused_in_reserved_time(
    booker: BookingLead, kind: SchedulingClass, *, displacing: bool
) -> None:
    """A hold is refused run by run with the same reason; what gave way is restored."""
    low = (await booker.book(await booker.task(1), HOUR + HALF - times.MINUTE)).runs[0].run
    reservation = await reserve(booker.site)
    task = await booker.task(2, kind, duration=2 * times.MINUTE)
    starts = [HOUR + HALF - times.MINUTE, HOUR + REACH]
    request = hold_request(task, starts, displacing=displacing)
    answer = await booker.hold(request)
    assert answer.held == (request.runs[1].run,)
    [refusal] = answer.refused
    expected = f"its time is {WORDS} 2026-12-01T01:30:00Z, reservation {reservation.id}"
    assert refusal.reason == expected or (
        # The earlier run overlaps more of this time.
        isinstance(refusal.obstacle, Obstacle) and not displacing
    )
    assert (await booker.site.states())[low] == "scheduled"


async def test_the_database_has_the_last_word(booker: BookingLead) -> None:
    """The database itself refuses a run in reserved time."""
    task = await booker.task()
    await reserve(booker.site)
    insert = """
        INSERT INTO run (
            id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at,
            state, created_at, changed_at
        )
        VALUES (gen_random_uuid(), $1, $2, 1, $4, 'background', 9, $2, $3, 'booked', $2, $2)
    """
    span = HOUR + HALF - 1, HOUR + HALF + times.MINUTE
    with pytest.raises(asyncpg.ExclusionViolationError, match="this time is reserved"):
        await booker.site.execute(insert, task.task, *span, 0)
    await booker.site.execute(insert, task.task, span[0] + 1, span[1], 0)
    await booker.site.execute(insert, task.task, *span, None)


async def test_nobody_books_beside_a_reservation_that_is_being_made(booker: BookingLead) -> None:
    """A hold in progress is awaited and listed inside; a later one is refused."""
    first, second = await booker.task(), await booker.task()
    node, waiting = booker.site.node, "SELECT count(*) FROM pg_locks WHERE NOT granted"
    async with booker.site.database.transaction() as connection:
        request = hold_request(first, [HOUR])
        hold = _hold(booker, request)
        [answer], _ = await node.time_line._holds.hold_in(connection, [hold])
        making = asyncio.create_task(reserve(booker.site))
        while not (await booker.site.rows(waiting))[0][0]:
            await booker.world.clock.sleep(0)
        late = asyncio.create_task(booker.hold(hold_request(second, [HOUR + DURATION])))
        while (await booker.site.rows(waiting))[0][0] < 2:  # the hold waits for the reservation
            await booker.world.clock.sleep(0)
    assert [run.run for run in (await making).inside or ()] == list(answer.held)  # type: ignore[union-attr]
    assert (await late).held == ()


def _hold(booker: BookingLead, request: Any) -> Any:
    from node.store.bookings import Hold  # noqa: PLC0415

    return Hold(exchange_of(request), booker.lead.identity, request)


@pytest.mark.parametrize(
    "access",
    [
        {"leads": ["a"]},
        {"tests": ["idle"]},
        {"classes": ["background", "exclusive"]},
        {"campaigns": ["ops"], "tests": ["rtt"], "leads": ["a"]},
    ],
)
async def test_who_meets_one_criterion_books_there(
    booker: BookingLead, access: dict[str, Any]
) -> None:
    """A task that meets one criterion is offered and gets the time."""
    await reserve(booker.site, access=access)
    task = await booker.task(3)
    assert (await booker.ask(task, WINDOW)).free == (WINDOW,)
    assert (await booker.hold(hold_request(task, [HOUR]))).held


@pytest.mark.parametrize(
    "access",
    [
        {},
        {"campaigns": ["ops"]},
        {"leads": ["b"]},
        {"tests": ["rtt"]},
        {"classes": ["background"]},
        {"priority": 4},
        {"tasks": [str(uuid4())]},
    ],
)
@pytest.mark.mostly_nightly
async def test_who_meets_none_does_not(booker: BookingLead, access: dict[str, Any]) -> None:
    """A task that meets no criterion is neither offered the time nor can hold it."""
    await reserve(booker.site, access=access)
    task = await booker.task(3)
    assert (await booker.ask(task, WINDOW)).free == tuple(BEHIND)
    assert not (await booker.hold(hold_request(task, [HOUR]))).held


@pytest.mark.parametrize("access", [{"campaigns": ["default"]}, {"priority": 3}])
async def test_the_word_of_another_lead_is_not_enough(
    booker: BookingLead, access: dict[str, Any]
) -> None:
    """Campaign and priority admit only tasks that the node leads itself; others need their lead."""
    reservation = await reserve(booker.site, access=access)
    theirs = await booker.task(3)
    assert (await booker.ask(theirs, WINDOW)).free == tuple(BEHIND)
    assert not (await booker.hold(hold_request(theirs, [HOUR]))).held
    own, site = introduction([booker.site], priority=3), booker.site
    await site.keep(own, site)
    itself = BookingLead(booker.world, site, site)
    assert (await itself.ask(own, WINDOW)).free == (WINDOW,)
    assert (await itself.hold(hold_request(own, [HOUR]))).held
    assert (await site.node.reservations.find(reservation.id)).inside == ()
    await edit(site, reservation, access={"leads": ["a"]})
    assert (await booker.hold(hold_request(theirs, [HOUR + DURATION], epoch=2))).held


async def test_every_stacked_reservation_must_admit(booker: BookingLead) -> None:
    """A task must be admitted by each of several overlapping reservations."""
    task = await booker.task()
    await reserve(booker.site, access={"tasks": [str(task.task)]})
    over = await reserve(booker.site, HOUR + HALF // 2, kind="maintenance", name="disks")
    free = (await booker.ask(task, WINDOW)).free
    assert free == ((HOUR, HOUR + HALF // 2), (HOUR + HALF // 2 + HALF, HOUR + REACH))
    answer = await booker.hold(hold_request(task, [HOUR, HOUR + HALF - times.MINUTE]))
    assert len(answer.held) == 1
    assert answer.refused[0].reason.endswith(f"reservation {over.id}")
    await edit(booker.site, over, access={"tests": ["idle"]})
    assert (await booker.ask(task, WINDOW)).free == ((HOUR + DURATION, HOUR + REACH),)


async def test_what_is_kept_in_memory_follows(booker: BookingLead) -> None:
    """A node that listens to its database knows of created, changed and removed reservations."""
    heard: asyncio.Queue[Notice] = asyncio.Queue()

    def hear(notice: Notice) -> None:
        booker.site.node.time_line.on_notice(notice)
        heard.put_nowait(notice)

    async def follows(free: Sequence[Span]) -> None:
        """Wait until this time is free, after any number of notifications."""
        async with asyncio.timeout(PATIENCE_S):
            while (await booker.ask(task, WINDOW)).free != tuple(free):
                await heard.get()

    task = await booker.task()
    listening = asyncio.create_task(booker.site.database.listen(hear, booker.site.clock))
    async with asyncio.timeout(PATIENCE_S):
        while (await heard.get()).kind != "wake":
            pass
    await follows([WINDOW])
    reservation = await reserve(booker.site)
    await follows(BEHIND)
    await edit(booker.site, reservation, access={"tests": ["idle"]})
    await follows([WINDOW])
    await edit(booker.site, reservation, access={"tests": ["rtt"]})
    await follows(BEHIND)
    await booker.site.node.reservations.remove(reservation.id)
    await follows([WINDOW])
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_lost_notification_refuses_nobody(booker: BookingLead) -> None:
    """After a lost notification, freed time is found when the refusal is checked."""
    task = await booker.task()
    reservation = await reserve(booker.site)
    booker.site.node.time_line.on_notice(Notice("wake", "", ()))
    span = (HOUR, HOUR + HALF)
    assert (await booker.ask(task, span)).free == ()
    await booker.site.node.reservations.remove(reservation.id)
    assert (await booker.ask(task, span)).free == (span,)


async def test_reserved_time_comes_nearer_while_it_is_kept(booker: BookingLead) -> None:
    """A reservation beyond the horizon is known when it comes within, without a notification."""
    horizon = booker.site.node.settings.horizon
    await reserve(booker.site, START + horizon + times.MINUTE)
    task, time_line = await booker.task(), booker.site.node.time_line
    time_line.on_notice(Notice("wake", "", ()))
    assert (await booker.ask(task, WINDOW)).free == (WINDOW,)
    booker.world.clock.advance(9 * times.MINUTE)
    window = (START + horizon, START + horizon + 8 * times.MINUTE)
    assert (await booker.ask(task, window)).free == ()
    booker.world.clock.advance(9 * times.MINUTE)
    assert (await booker.ask(task, window)).free == ()


async def test_a_run_set_aside_comes_back_into_reserved_time(booker: BookingLead) -> None:
    """A run set aside is restored into time that was reserved after it was booked."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    high = await booker.task(2)
    exchange = exchange_of(high)
    await booker.hold(hold_request(high, [HOUR], displacing=True), exchange)
    await reserve(booker.site)
    await booker.site.node.time_line.release(exchange, release_of(high))
    assert await booker.site.state(low) == "scheduled"


async def test_a_hold_made_before_is_committed(booker: BookingLead) -> None:
    """A reservation does not prevent the commit of an earlier hold."""
    task = await booker.task()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR])
    await booker.hold(request, exchange)
    reservation = await reserve(booker.site)
    assert [run.run for run in reservation.inside or ()] == [request.runs[0].run]
    answer = await booker.site.node.time_line.commit(exchange, commit_request(request))
    assert not answer.late
    assert await booker.site.state(request.runs[0].run) == "scheduled"


async def test_a_lead_that_takes_no_part_is_not_closed(world: World) -> None:
    """The reservation of a lead does not affect tasks in which it takes no part."""
    a, b = await world.two()
    await reserve(a)
    task = introduction([b])
    for site in (a, b):
        await site.keep(task, a)
    await a.execute("UPDATE planning SET next_run_at = $1", HOUR)
    request = hold_request(task, [HOUR])
    answer = await b.node.time_line.hold(exchange_of(request), a.identity, request)
    assert answer.held


async def test_the_word_of_another_lead_on_a_pool_task_is_not_enough(booker: BookingLead) -> None:
    """A reservation that names a pool task admits it only from the lead that it names."""
    pool_task, site, acceptance = uuid4(), booker.site, booker.site.node.acceptance
    reference = f"{pool_task}@{booker.lead.name}"
    with pytest.raises(InvalidDocument, match="nobody is not a node known here"):
        await reserve(site, access={"tasks": [f"{pool_task}@nobody"]})
    reservation = await reserve(site, access={"tasks": [reference]})
    assert reservation.access.tasks == (reference,)
    slots = Schedule(start=START, repeat=DURATION, slip=0)
    tasks = [introduction([site], schedule=slots) for _ in range(3)]
    assert (await acceptance.consider(booker.lead.identity, tasks[2])).accepted
    tasks = [task.model_copy(update={"pool_task": pool_task}) for task in tasks]
    other = await booker.world.site("c")
    leads = (other, other, booker.lead)
    for lead, task in zip(leads, tasks, strict=True):
        assert (await acceptance.consider(lead.identity, task)).accepted
    theirs = BookingLead(booker.world, other, site)
    assert not (await theirs.hold(hold_request(tasks[1], [HOUR]))).held
    assert (await booker.ask(tasks[2], WINDOW)).free == (WINDOW,)
    assert (await booker.hold(hold_request(tasks[2], [HOUR]))).held


async def test_a_removed_reservation_displaces_no_more(
    booker: BookingLead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reservation that is taken back while it displaces many runs leaves the rest of them."""
    node = booker.site.node
    await booker.book(await booker.task(), HOUR, HOUR + DURATION)
    lose_runs = node.termination.lose_runs

    async def lose_and_take_back(reasons: Mapping[UUID, str]) -> None:
        await lose_runs(reasons)
        (made,) = await node.reservations.page(ReservationFilter())
        await node.reservations.remove(made.id)

    monkeypatch.setattr("node.timetable.reservations._AT_ONCE", 1)
    monkeypatch.setattr(node.termination, "lose_runs", lose_and_take_back)
    made = await reserve(booker.site, displace=True)
    assert (made.inside_count, made.displaced_count) == (2, 1)
    assert sorted((await booker.site.states()).values()) == ["displaced", "scheduled"]
