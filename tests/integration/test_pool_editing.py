"""Pool tasks with many seats are paused, resumed, edited and cancelled while seats end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from tests.support.pool_worlds import Pooled, pooled
from tests.support.statements import asked_of_database
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

Change = Callable[[Pooled, UUID], Coroutine[Any, Any, None]]


async def _pause(pool: Pooled, task: UUID) -> None:
    await pool.lead.node.editing.pause(task)


async def _resume(pool: Pooled, task: UUID) -> None:
    await pool.lead.node.editing.resume(task)


async def _edit(pool: Pooled, task: UUID) -> None:
    await pool.edit(task, priority=7)


async def _cancel(pool: Pooled, task: UUID) -> None:
    await pool.lead.node.termination.cancel_task(task)


async def _parts(pool: Pooled, task: UUID) -> dict[UUID, tuple[str, int, int]]:
    rows = await pool.lead.rows(
        "SELECT id, state::text, priority, revision FROM task WHERE parent = $1", task
    )
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


@pytest.mark.parametrize(
    ("prepare", "change", "becomes"),
    [
        (None, _pause, ("paused", 0, 2)),
        (_pause, _resume, ("active", 0, 3)),
        (None, _edit, ("active", 7, 2)),
        (None, _cancel, ("cancelled", 0, 1)),
    ],
)
@pytest.mark.nightly
async def test_a_seat_that_ends_meanwhile_is_no_fault(
    world: World, prepare: Change | None, change: Change, becomes: tuple[str, int, int]
) -> None:
    """A change waits for a seat that is just ending and is applied to all others."""
    pool = await pooled(world, [{}, {}], choice="rotating")
    task = await pool.create(1)
    if prepare is not None:
        await prepare(pool, task)
    ended, *others = await _parts(pool, task)
    assert others, "each slot is a term with a seat of its own"
    async with pool.lead.database.transaction() as connection:
        [(process,)] = await connection.fetch("SELECT pg_backend_pid()")
        await connection.execute("UPDATE task SET state = 'finished' WHERE id = $1", ended)
        changing = asyncio.create_task(change(pool, task))
        while not await _waits_for(pool, process):
            pass
    await changing
    after = await _parts(pool, task)
    assert after.pop(ended)[0] == "finished"
    assert set(after.values()) == {becomes}
    assert set(after) == set(others)


async def _waits_for(pool: Pooled, process: int) -> bool:
    """Return whether a transaction waits for this process of the database."""
    waiting = "SELECT FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"
    return bool(await pool.lead.rows(waiting, process))


@pytest.mark.parametrize("change", [_pause, _resume, _edit, _cancel])
@pytest.mark.nightly
async def test_the_database_is_asked_as_often_for_many_seats(
    world: World, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    """A change needs as many statements for many seats as for few, except edits of their tasks."""
    pool = await pooled(world, [{}, {}], choice="rotating")
    few = await pool.create(1, schedule={"until": "PT4H"})
    many = await pool.create(1)
    if change is _resume:
        await _pause(pool, few)
        await _pause(pool, many)
    parts = {task: len(await _parts(pool, task)) for task in (few, many)}
    assert parts[many] >= 2 * parts[few] > 0
    statements = asked_of_database(monkeypatch)
    counts = {}
    for task in (few, many):
        statements.clear()
        await change(pool, task)
        counts[task] = len(statements)
    for_each = 3 if change is _edit else 0  # its campaign, itself, the priority of its runs
    assert counts[many] - counts[few] <= for_each * (parts[many] - parts[few])
