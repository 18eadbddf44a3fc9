"""Time of a pool reserved at its lead: its seats get no runs there, and the reason is given."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.errors import InvalidDocument
from node.model.ids import TaskId, run_id
from node.model.times import format_instant
from node.model.wire.tasks import TaskDocument
from node.store import seats
from tests.support import previews
from tests.support.booking import HOUR
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, pooled
from tests.support.reservations import WORDS, edit, reserve
from tests.support.worlds import ON_ONE_LOOP, Call, Site, World

pytestmark = ON_ONE_LOOP

HALF = 30 * times.MINUTE
ALIKE: list[dict[str, Any]] = [{}, {}, {}]
UNTIL = {"start": "2026-12-01T01:00:00Z", "until": "2026-12-01T07:00:00Z"}
"""Six slots of one term."""
LONG = {"start": "2026-12-01T01:00:00Z", "until": "2026-12-03T00:00:00Z"}
LATE = START + 30 * times.HOUR
"""A slot of ``LONG`` beyond the first horizon."""


async def _pool(world: World) -> Pooled:
    return await pooled(world, ALIKE)


async def _reasons(pool: Pooled, task: UUID) -> Counter[tuple[str, str | None]]:
    """Count the states and reasons of the runs of a task's seats in the first slot."""
    rows = await pool.lead.rows(
        "SELECT state, reason FROM run_known "
        "WHERE slot = $2 AND task_id IN (SELECT id FROM task WHERE parent = $1)",
        task,
        HOUR,
    )
    return Counter((row[0], row[1]) for row in rows)


async def test_seats_get_no_runs_in_it(world: World) -> None:
    """A slot inside the reservation waits with its reason; the others of the term are booked."""
    pool = await _pool(world)
    reservation = await reserve(pool.lead, pool="europe")
    task = await pool.create(2, schedule=UNTIL)
    assert await pool.states(pool.lead, task) == {"scheduled": 10, "waiting": 2}
    reason = (
        f"pool europe: no 1 min free: {WORDS} 2026-12-01T01:30:00Z, reservation {reservation.id}"
    )
    assert await _reasons(pool, task) == {("waiting", reason): 2}
    [row] = await pool.lead.rows(
        "SELECT trace FROM decision INNER JOIN task ON task_id = task.id "
        "WHERE parent = $1 ORDER BY decision.id LIMIT 1",
        task,
    )
    offered = row["trace"]["offers"][-1]
    assert offered["node"] == "pool europe"
    assert [obstacle["reservation"] for obstacle in offered["obstacles"]] == [str(reservation.id)]


async def test_runs_go_behind_it_where_the_slip_allows(world: World) -> None:
    """Runs are booked after the reservation where their slip allows it."""
    pool = await _pool(world)
    await reserve(pool.lead, pool="europe")
    task = await pool.create(2, schedule={**UNTIL, "slip": "PT40M"})
    assert await pool.states(pool.lead, task) == {"scheduled": 12}
    rows = await pool.lead.rows("SELECT starts_at FROM run_known WHERE slot = $1", HOUR)
    assert [row[0] for row in rows] == [HOUR + HALF] * 2


@pytest.mark.parametrize("by", ["campaigns", "tests", "classes", "priority", "tasks"])
@pytest.mark.mostly_nightly
async def test_who_is_admitted_has_all_of_it(world: World, by: str) -> None:
    """A pool task that meets a criterion of the reservation, or is named by its id, is admitted."""
    pool = await _pool(world)
    task = await pool.create(2, seat=False, schedule=UNTIL, priority=2)
    access: dict[str, Any] = {
        "campaigns": ["default"],
        "tests": ["idle"],
        "classes": ["exclusive"],
        "priority": 2,
        "tasks": [str(task)],
    }
    await reserve(pool.lead, pool="europe", access={by: access[by]})
    await pool.seat()
    assert await pool.states(pool.lead, task) == {"scheduled": 12}


async def test_no_node_is_asked_for_what_is_all_closed(world: World) -> None:
    """Seats wait with the reason while everything is reserved, and no node is asked."""
    pool = await _pool(world)
    reservation = await reserve(pool.lead, START, duration="PT7H", pool="europe")
    task = await pool.create(2, schedule=UNTIL)
    assert await pool.seats(task) == {}
    [(outcome, sentence)] = await pool.told(task)
    reason = (
        f"pool europe: no 1 min free: {WORDS} 2026-12-01T07:00:00Z, reservation {reservation.id}"
    )
    assert outcome == "not seated"
    assert sentence.endswith(f"; {reason}")
    [row] = await pool.lead.rows("SELECT reason FROM term")
    assert row[0] == reason
    assert world.count("propose") == 0
    await pool.lead.node.reservations.remove(reservation.id)
    await pool.changed()
    assert len((await pool.seats(task))[1]) == 2


async def test_the_pool_task_says_what_runs_of_its_seats_wait_for(world: World) -> None:
    """The pool task reports that runs of its seats wait for the reservation."""
    pool = await _pool(world)
    reservation = await reserve(pool.lead, duration="PT2H", pool="europe")
    task = await pool.create(2, schedule=UNTIL)
    assert (await pool.states(pool.lead, task))["waiting"] == 4
    async with pool.lead.database.connection() as connection:
        [waits] = await seats.waiting_reasons(connection, task, 3)
    nodes = sorted((await pool.seats(task))[1].values())
    assert (sorted(waits.nodes), waits.runs, waits.slot) == (nodes, 4, HOUR)
    assert waits.reason == (
        f"pool europe: no 1 min free: {WORDS} {format_instant(HOUR + 2 * times.HOUR)}, "
        f"reservation {reservation.id}"
    )


async def test_a_term_begins_behind_it(world: World) -> None:
    """A reservation over the first slots of a term does not block the seats of the others."""
    pool = await _pool(world)
    await reserve(pool.lead, START, duration="PT3H", pool="europe")
    task = await pool.create(2, schedule=UNTIL)
    assert len((await pool.seats(task))[1]) == 2
    assert (await pool.states(pool.lead, task))["scheduled"] == 2 * 4


@pytest.mark.parametrize("how", ["remove", "later", "access"])
@pytest.mark.mostly_nightly
async def test_time_given_back_is_planned_at_once(world: World, how: str) -> None:
    """Waiting runs are planned as soon as the reservation frees their time."""
    pool = await _pool(world)
    reservation = await reserve(pool.lead, pool="europe")
    task = await pool.create(2, schedule=UNTIL)
    match how:
        case "remove":
            await pool.lead.node.reservations.remove(reservation.id)
        case "later":
            start = format_instant(HOUR + HALF)
            await edit(pool.lead, reservation, schedule={"start": start})
        case _:
            await edit(pool.lead, reservation, access={"campaigns": ["default"]})
    await pool.seat()
    assert await pool.states(pool.lead, task) == {"scheduled": 12}


@pytest.mark.nightly
async def test_runs_inside_are_told_and_kept_or_displaced(world: World) -> None:
    """Runs inside a new reservation are listed and kept, or displaced and placed elsewhere."""
    pool = await _pool(world)
    task = await pool.create(2, schedule={**UNTIL, "slip": "PT40M"})
    await pool.create(1, schedule={**UNTIL, "start": format_instant(START + 45 * times.MINUTE)})
    reservation = await reserve(pool.lead, pool="europe")
    inside = reservation.inside or ()
    assert [(run.starts_at, run.displaced) for run in inside] == [(HOUR, False)] * 2
    assert await pool.states(pool.lead, task) == {"scheduled": 12}
    edited = await edit(pool.lead, reservation, displace=True)
    assert [run.displaced for run in edited.inside or ()] == [True] * 2
    await world.settle()
    await pool.lead.plan()
    await world.settle()
    [(state, reason)] = set(await _reasons(pool, task)) - {("scheduled", None)}
    reason_start = f"displaced by a reservation of pool europe: {WORDS} 2026-12-01T01:30:00Z"
    assert (state, reason) == ("displaced", f"{reason_start}, reservation {reservation.id}")
    assert await pool.states(pool.lead, task) == {"scheduled": 12, "displaced": 2}
    part = inside[0].task
    again = run_id(TaskId(part), HOUR, 2)
    [row] = await pool.lead.rows("SELECT starts_at FROM run WHERE id = $1", again)
    assert row[0] == HOUR + HALF


async def test_what_is_being_planned_meanwhile_is_planned_anew(world: World) -> None:
    """A planning attempt from before the reservation cannot commit any more."""
    pool = await _pool(world)
    task = await pool.create(1, seat=False, schedule=UNTIL)
    await pool.episodes.run_once()

    async def reserve_now(call: Call, phase: str) -> None:
        if call[2] == "hold" and phase == "answered":
            world.watch = None
            await reserve(pool.lead, pool="europe")

    world.watch = reserve_now
    await pool.lead.plan()
    await world.settle()
    await pool.lead.plan()
    await world.settle()
    assert world.watch is None
    assert await pool.states(pool.lead, task) == {"scheduled": 5, "waiting": 1}
    [rows] = await pool.lead.rows("SELECT id FROM reservation")
    assert (await pool.lead.node.reservations.find(rows[0])).inside == ()


_BLOCKED = (
    "SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
)


@pytest.mark.parametrize("seated", [True, False], ids=["claimed", "seated"])
@pytest.mark.nightly
async def test_what_is_begun_while_it_is_being_made_comes_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch, *, seated: bool
) -> None:
    """A claim or a seat given during the creation of a reservation books no run inside it."""
    pool = await pooled(world, ALIKE, term="P3D")
    await pool.create(1, schedule=LONG)
    if not seated:
        await pool.create(1, seat=False, schedule=LONG)
    hold_answered, seating = asyncio.Event(), list[asyncio.Task[None]]()
    tell = pool.lead.node.reservations._notify

    async def begin_seating(*arguments: Any) -> None:
        await tell(*arguments)
        seating.append(asyncio.create_task(pool.seat()))
        while not (hold_answered.is_set() or seating[0].done() or await pool.lead.rows(_BLOCKED)):
            pass

    async def watch(call: Call, phase: str) -> None:
        if (call[2], phase) == ("hold", "answered"):
            hold_answered.set()

    monkeypatch.setattr(pool.lead.node.reservations, "_notify", begin_seating)
    world.watch = watch
    world.clock.advance(12 * times.HOUR)
    reservation = await reserve(pool.lead, LATE, pool="europe")
    await seating[0]
    await pool.seat()
    rows = await pool.lead.rows("SELECT state FROM run_known WHERE slot = $1", LATE)
    assert [row[0] for row in rows] == ["waiting"] * (1 if seated else 2)
    assert (await pool.lead.node.reservations.find(reservation.id)).inside == ()


async def test_who_has_all_it_wants_is_not_planned_again(world: World) -> None:
    """A task with all its runs booked loses only its lease when a reservation is created."""
    pool = await pooled(world, ALIKE, term="P3D")
    await pool.create(1, schedule=LONG)
    query = "SELECT plan_at, next_run_at, lease_epoch FROM planning WHERE plan_at IS NOT NULL"
    [row_before] = await pool.lead.rows(query)
    await reserve(pool.lead, LATE, pool="europe")
    [row_after] = await pool.lead.rows(query)
    assert tuple(row_after) == (*tuple(row_before)[:2], row_before[2] + 1)


async def test_it_closes_no_node(world: World) -> None:
    """A reservation of a pool does not affect tasks with named participants."""
    pool = await _pool(world)
    reservation = await reserve(pool.lead, pool="europe")
    at: dict[str, Any] = {"schedule": {"start": format_instant(HOUR), "slip": "PT0S"}}
    document = previews.idle(pool.lead, pool.nodes[0], **at)
    await pool.lead.node.admission.create(TaskDocument.model_validate(document), None)
    await pool.lead.plan()
    await world.settle()
    rows = await pool.nodes[0].rows("SELECT starts_at, state FROM run_known")
    assert [tuple(row) for row in rows] == [(HOUR, "scheduled")]
    assert (await pool.lead.node.reservations.find(reservation.id)).inside == ()


async def test_one_of_a_node_is_heard_by_its_pools_lead(world: World) -> None:
    """The lead of a pool respects a node's own reservation and reports it."""
    pool = await _pool(world)
    reservation = await reserve(pool.nodes[0], START, duration="PT7H")
    task = await pool.create(3, request={"min_k": 2}, schedule=UNTIL)
    assert set((await pool.seats(task))[1].values()) == {"n2", "n3"}
    outcome, sentence = (await pool.told(task))[0]
    assert outcome == "partly seated"
    assert (
        f"n1: no 1 min free: {WORDS} 2026-12-01T07:00:00Z, reservation {reservation.id}" in sentence
    )


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"pool": "eurpe"}, "/pool: there is no pool eurpe; did you mean europe?"),
        (
            {"pool": "europe", "access": {"leads": ["n1"]}},
            "/access/leads: all seats of a pool are given by this node; leave it out",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(
    world: World, fields: dict[str, Any], fault: str
) -> None:
    """An invalid reservation is refused with the field and the remedy, and is not stored."""
    pool = await _pool(world)
    with pytest.raises(InvalidDocument) as error:
        await reserve(pool.lead, **fields)
    assert error.value.detail == fault
    assert await pool.lead.rows("SELECT id FROM reservation") == []


def _named(pool: Pooled, site: Site, task: UUID) -> str:
    """Return the id of a pool task as its own lead writes it, or as others do."""
    return str(task) if site is pool.lead else f"{task}@{pool.lead.name}"


async def test_one_of_a_node_admits_a_pool_task_by_its_id(world: World) -> None:
    """A node's reservation admits the tasks of the seats of the pool task that it names."""
    pool = await pooled(world, ALIKE[:1], match={"tool:sleep": True})
    task = await pool.create(2, seat=False, schedule=UNTIL)
    reservations = [
        await reserve(site, START, duration="PT8H", access={"tasks": [_named(pool, site, task)]})
        for site in world.sites
    ]
    await pool.seat()
    assert await pool.states(pool.lead, task) == {"scheduled": 12}
    other = await pool.create(1, schedule=UNTIL)
    assert await pool.seats(other) == {}
    for site, reservation in zip(world.sites, reservations, strict=True):
        assert (await site.node.reservations.find(reservation.id)).inside == ()
        await edit(site, reservation, access={"tasks": [_named(pool, site, other)]})
        assert (await site.node.reservations.find(reservation.id)).inside_count == 6


async def test_one_of_a_pool_names_pool_tasks_by_their_ids_alone(world: World) -> None:
    """A pool's reservation names pool tasks by plain ids, as this node leads them all."""
    pool = await _pool(world)
    task = "00000000-0000-0000-0000-000000000001"
    for reference, fault in (
        (f"{task}@n1", "this node gives the pool's seats; write the id alone"),
        (f"{task}@", "is not the id of a task; write ID, or ID@NODE with the node that leads it"),
    ):
        with pytest.raises((InvalidDocument, ValueError)) as error:
            await reserve(pool.lead, pool="europe", access={"tasks": [reference]})
        assert fault in str(error.value)


async def test_it_goes_with_its_pool(world: World) -> None:
    """The reservations of a pool are deleted with it."""
    pool = await _pool(world)
    await reserve(pool.lead, pool="europe")
    await pool.lead.node.pools.remove("europe")
    assert await pool.lead.rows("SELECT id FROM reservation") == []


async def test_policies_know_of_it(world: World) -> None:
    """The view of an episode contains the reservation, which reduces the time to share."""
    pool = await _pool(world)
    admitted = await pool.create(1, seat=False, schedule=UNTIL)
    await pool.create(1, seat=False, schedule=UNTIL, kind="background")
    created = await reserve(pool.lead, pool="europe", access={"tasks": [str(admitted)]})
    snapshots = []
    original = pool.episodes._driver.run

    async def run(episode_input: Any, membership: Any) -> Any:
        snapshots.append(episode_input.view)
        return await original(episode_input, membership)

    pool.episodes._driver.run = run  # type: ignore[method-assign]
    await pool.episodes.run_once()
    [reservation] = snapshots[0].reservations
    assert (reservation.start, reservation.end) == (HOUR, HOUR + HALF)
    assert (reservation.name, list(reservation.nodes)) == (str(created.id), ["n1", "n2", "n3"])
    assert [name.split()[0] for name in reservation.tasks] == [str(admitted)]
    assert {it.task.split()[0] for it in snapshots[0].candidates} > {str(admitted)}
