"""Seats are lost, or terms edited, while an episode of their pool is in progress."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from asyncpg.pool import PoolConnectionProxy

from lead.exchange.planner import SEAT_MOVES_MAX
from node.model import times
from tests.support.booking import HOUR
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, known_as_they_are, pooled
from tests.support.reservations import reserve
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

ONE_TERM = {"max_runs": 2}
Meanwhile = Callable[[Pooled, UUID], Awaitable[None]]


async def _lose(pool: Pooled, task: UUID) -> None:
    """Lose the last seat, as seen by another process of the lead at the same moment."""
    rows = await pool.lead.rows(
        "SELECT task_id FROM seat WHERE pool_task = $1 AND lost_at IS NULL ORDER BY place", task
    )
    await pool.episodes._dependencies.take_back(rows[-1][0], "it is gone")
    await pool.episodes._empty_lost_seats()


async def _edit(pool: Pooled, task: UUID) -> None:
    """Edit the task to request one more seat."""
    await pool.edit(task, participants={"pool": "europe", "k": 3})


@pytest.mark.nightly
async def test_a_seat_that_is_lost_while_another_is_given_is_given_anew(world: World) -> None:
    """A seat lost during an episode does not leave the term full: both seats get nodes."""
    pool = await pooled(world, [{}, {}, {}])
    task = await pool.create(2, schedule=ONE_TERM)
    await _lose(pool, task)
    original = pool.episodes._driver.run

    async def run(episode_input: Any, membership: Any) -> Any:
        pool.episodes._driver.run = original  # type: ignore[method-assign]
        await _lose(pool, task)
        return await original(episode_input, membership)

    pool.episodes._driver.run = run  # type: ignore[method-assign]
    await pool.seat()
    assert list((await pool.seats(task))[0]) == [1, 2]


@pytest.mark.parametrize(("meanwhile", "seats"), [(_lose, [1, 2]), (_edit, [1, 2, 3])])
@pytest.mark.nightly
async def test_a_term_that_was_full_when_it_was_read(
    world: World, meanwhile: Meanwhile, seats: list[int]
) -> None:
    """Seats emptied while an episode is in progress are given before the term counts as done."""
    pool = await pooled(world, [{}, {}, {}])
    task = await pool.create(2, schedule=ONE_TERM)
    await _look_at(pool, task)
    await _as_it_is_read(pool, task, meanwhile)
    assert list((await pool.seats(task))[0]) == seats
    assert await pool.lead.rows("SELECT try_at FROM term WHERE pool_task = $1", task) == [(None,)]


async def test_a_term_is_not_given_up_under_whoever_edits_it(world: World) -> None:
    """A term that an edit extends during an episode is not given up, and gets its node."""
    pool = await pooled(world, [{}])
    task = await pool.create(1, seat=False, schedule={**ONE_TERM, "repeat": "PT20H"})
    await pool.episodes._open_terms()
    world.clock.advance(10 * times.MINUTE)

    async def edit(pool: Pooled, task: UUID) -> None:
        await pool.edit(task, schedule={"slip": "PT1H"})

    await _as_it_is_read(pool, task, edit)
    assert (await pool.seats(task))[0] == {1: "n1"}
    assert "given up" not in dict(await pool.told(task))


async def _look_at(pool: Pooled, task: UUID) -> None:
    """Make the term due although no seat is empty."""
    now = pool.lead.clock.now()
    await pool.lead.rows("UPDATE term SET try_at = $2 WHERE pool_task = $1", task, now)


async def _as_it_is_read(at: Pooled, task: UUID, meanwhile: Meanwhile) -> None:
    """Give seats while something happens after the first episode was read."""
    read = at.episodes._snapshots.read

    async def reading(
        membership: Any, pool: Any, tasks: Any, imagined: Any = (), due_by: int | None = None
    ) -> Any:
        at.episodes._snapshots.read = read  # type: ignore[method-assign]
        snapshot = await read(membership, pool, tasks, imagined, due_by)
        assert snapshot.over
        await meanwhile(at, task)
        return snapshot

    at.episodes._snapshots.read = reading  # type: ignore[method-assign]
    await at.seat()


@pytest.mark.nightly
async def test_looking_around_asks_no_more_for_more_tasks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storing what thousands of tasks lack needs few statements, and only for changes."""
    pool = await pooled(world, [{}])
    task = await pool.create(1, seat=False)
    names = await pool.lead.rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'task'::regclass AND attnum > 0 "
        "AND NOT attisdropped AND attgenerated = '' AND attname <> 'id'"
    )
    columns = ", ".join(row[0] for row in names)
    await pool.lead.execute(
        f"INSERT INTO task (id, {columns}) SELECT gen_random_uuid(), {columns} "
        "FROM task CROSS JOIN generate_series(2, 2000)"
    )
    await pool.lead.execute(
        "INSERT INTO pool_task (task_id, pool_id, request) SELECT task.id, pool_id, request "
        "FROM pool_task CROSS JOIN task WHERE task.id <> task_id"
    )
    await pool.nodes[0].node.own_card.set({"in": "asia"})
    await known_as_they_are(world)
    statements = _statements(monkeypatch)
    for _ in range(2):
        statements.clear()
        await pool.episodes._recheck_seats()
        assert len(statements) < 15
        rows = await pool.lead.rows("SELECT times FROM decision WHERE outcome = 'lacks nodes'")
        assert [row[0] for row in rows] == [1] * 2000
    assert len(await pool.told(task)) == 1


def _statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which every statement from now on is added."""
    statements: list[str] = []

    def recording(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def ask(connection: Any, query: str, *args: Any) -> Any:
            statements.append(query)
            return await real(connection, query, *args)

        return ask

    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        real = getattr(PoolConnectionProxy, name)
        monkeypatch.setattr(PoolConnectionProxy, name, recording(real))
    return statements


async def _give_seats(pool: Pooled) -> None:
    while not await pool.episodes.run_once():
        pass


async def test_a_seat_whose_time_is_taken_before_it_is_booked_is_moved(world: World) -> None:
    """A seat whose time is taken before its runs are booked moves to another node in its term."""
    pool = await pooled(world, [{}, {}])
    task = await pool.create(1, seat=False, schedule=ONE_TERM)
    await _give_seats(pool)
    [first] = (await pool.seats(task)).values()
    [site] = [site for site in pool.nodes if site.name == first[1]]
    await reserve(site, START, duration="PT8H")
    await pool.lead.plan()
    await pool.seat()
    [second] = (await pool.seats(task)).values()
    assert {first[1], second[1]} == {"n1", "n2"}
    assert await pool.states(pool.lead, task) == {"cancelled": 2, "scheduled": 2}
    [sentence] = [text for outcome, text in await pool.told(task) if outcome == "seat lost"]
    assert sentence.startswith(
        f"seat 1 ({first[1]}): has no time any more: {first[1]}: no 1 min free: reserved for demo"
    )


async def test_a_seat_stays_while_most_of_its_window_is_beyond_the_horizon(world: World) -> None:
    """A seat stays if its found start is taken but most of its window lies beyond the horizon."""
    pool = await pooled(world, [{}, {}])
    begins = START + 17 * times.HOUR
    schedule = {"start": times.format_instant(begins), "slip": "PT8H", "repeat": None}
    task = await pool.create(1, seat=False, schedule=schedule)
    await _give_seats(pool)
    [seat] = (await pool.seats(task)).values()
    [site] = [site for site in pool.nodes if site.name == seat[1]]
    await reserve(site, begins, duration="PT7H")
    await pool.lead.plan()
    assert list((await pool.seats(task)).values()) == [seat]
    assert await pool.states(pool.lead, task) == {"waiting": 1}
    world.clock.advance(2 * times.HOUR)
    await pool.lead.plan()
    assert await pool.states(pool.lead, task) == {"scheduled": 1}


@pytest.mark.nightly
async def test_a_seat_is_not_moved_for_ever(world: World) -> None:
    """A seat moves a limited number of times, even if each node turns out to have no time."""
    pool = await pooled(world, [{}] * (SEAT_MOVES_MAX + 2))
    task = await pool.create(1, seat=False, schedule=ONE_TERM)
    seat: dict[int, str] = {}
    for _ in range(SEAT_MOVES_MAX + 1):
        await _give_seats(pool)
        [seat] = (await pool.seats(task)).values()
        [site] = [site for site in pool.nodes if site.name == seat[1]]
        await reserve(site, START, duration="PT8H")
        await pool.lead.plan()
    await pool.seat()
    assert list((await pool.seats(task)).values()) == [seat]
    assert await pool.states(pool.lead, task) == {"cancelled": 2 * SEAT_MOVES_MAX, "waiting": 2}


async def test_a_seat_that_has_time_for_some_runs_stays(world: World) -> None:
    """A seat with time for some of its runs stays, and the other runs wait."""
    pool = await pooled(world, [{}, {}])
    task = await pool.create(1, seat=False, schedule=ONE_TERM)
    await _give_seats(pool)
    [seat] = (await pool.seats(task)).values()
    for site in pool.nodes:
        await reserve(site, HOUR)
    await pool.seat()
    assert list((await pool.seats(task)).values()) == [seat]
    assert await pool.states(pool.lead, task) == {"scheduled": 1, "waiting": 1}
