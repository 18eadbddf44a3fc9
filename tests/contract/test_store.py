"""The databases of a node, the real one and the one in memory, are one to those who use them.

What nodes ask of their databases in the course of a troubled life is recorded and played to both;
then both are asked anything at all, about few things: the answers must be the same, and what is
told, and at the end the tables.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import signature
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from lead.simulation.memory import MemoryDatabase
from lead.simulation.memory.statements import Twins
from lead.simulation.memory.twins import FILES
from node.model import times
from node.store.database import (
    CHANNEL,
    Database,
    Notice,
    PostgresDatabase,
    parse_notice,
)
from node.store.queries import PostgresConnection
from tests.conftest import CLEAR_CAMPAIGNS
from tests.support.clocks import ManualClock
from tests.support.pool_worlds import known_as_they_are, pooled
from tests.support.random_operations import RandomHistory, acts
from tests.support.random_queries import RandomQuerier
from tests.support.recorded_queries import (
    NOT_SIMULATED,
    ROWS,
    TABLES,
    Recorder,
    Transaction,
    column_names,
    contents,
    play_to_both,
    stored,
)
from tests.support.worlds import World

CLEAR = f"""
DELETE FROM task; DELETE FROM node; DELETE FROM access_token; DELETE FROM idempotency;
DELETE FROM reservation; DELETE FROM lead_share; DELETE FROM lead_question;
DELETE FROM outbox; {CLEAR_CAMPAIGNS}
ALTER TABLE pool ALTER COLUMN id RESTART;
ALTER TABLE outbox ALTER COLUMN id RESTART;
ALTER TABLE decision ALTER COLUMN id RESTART;
"""
COLUMNS = """
SELECT tables.table_name, columns.column_name
FROM information_schema.tables
INNER JOIN information_schema.columns USING (table_schema, table_name)
WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
    AND table_name NOT IN ('schema_version', 'generation')
    AND is_generated = 'NEVER'
"""
SEEDS = range(5)
MONKEYS = range(20)
ACTS = 60


async def recorded(live: Callable[[World], Awaitable[None]]) -> list[list[Transaction]]:
    """The queries of each node of a world."""
    recorders: list[Recorder] = []

    async def lend(size: int) -> Database:
        recorders.append(Recorder())
        return recorders[-1]

    with tempfile.TemporaryDirectory() as directory, capture_logs():
        async with World(lend, ManualClock(), Path(directory)) as world:
            await live(world)
    return [recorder.asked for recorder in recorders]


async def seated(world: World) -> None:
    """Seats are given, lost with a node, given anew, and forgotten long after they are over."""
    pool = await pooled(world, [{}, {}, {}])
    tasks = [await pool.create(2), await pool.create(1)]
    await pool.nodes[0].node.own_card.set({"in": "asia"})
    await known_as_they_are(world)
    await pool.changed()
    await pool.lead.node.termination.cancel_task(tasks[1])
    world.clock.advance(times.DAY)
    for site in world.sites:
        await site.node.launcher.recover()
        await site.node.termination.finish_tasks()
    await pool.seat()
    for _ in range(3):
        world.clock.advance(31 * times.DAY)
        for site in world.sites:
            await site.node.purger.run_once()


async def same(database: PostgresDatabase, transactions: list[Transaction]) -> None:
    """Both give the same answers, tell the same, and hold the same in the end."""
    memory = MemoryDatabase()
    told_by_memory: list[Notice] = []
    listening = asyncio.create_task(memory.listen(told_by_memory.append, ManualClock()))
    async with database.connection() as real, told(real) as told_by_real:
        await real.execute(CLEAR)
        told_by_real.clear()
        for transaction in transactions:
            await play_to_both(real, memory, transaction)
        expected, found = await stored(real), contents(memory.tables)
    listening.cancel()
    for name in TABLES:
        assert found[name] == expected[name], name
    assert Counter(told_by_memory[1:]) == Counter(told_by_real)


@asynccontextmanager
async def told(real: PostgresConnection) -> AsyncIterator[list[Notice]]:
    """The notifications on a connection."""
    notices: list[Notice] = []

    def heard(*said: object) -> None:
        notices.append(parse_notice(str(said[-1])))

    await real.add_listener(CHANNEL, heard)
    try:
        yield notices
    finally:
        await real.remove_listener(CHANNEL, heard)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_life(database: PostgresDatabase, seed: int) -> None:
    """The two implementations answer alike in the life of three nodes."""

    async def live(world: World) -> None:
        for name in ("a", "b", "c"):
            await world.site(name, horizon=6 * times.HOUR)
        await RandomHistory(world).live(acts(Random(seed), ACTS))

    for asked in await recorded(live):
        await same(database, asked)


async def test_seats(database: PostgresDatabase) -> None:
    """The two implementations answer alike when seats are granted, lost, and purged."""
    for asked in await recorded(seated):
        await same(database, asked)


@pytest.mark.parametrize("seed", MONKEYS)
async def test_anything_may_be_asked(database: PostgresDatabase, seed: int) -> None:
    """The two implementations answer alike for random queries about a few objects."""
    await same(database, RandomQuerier(Random(seed)).transactions(400))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.file)
async def test_parameters_and_columns(database: PostgresDatabase, file: Twins) -> None:
    """A twin has as many parameters as its query, and answers with the same columns."""
    async with database.connection() as real:
        for name, statement in file.statements.items():
            prepared = await real.prepare(statement.text)
            columns = tuple(attribute.name for attribute in prepared.get_attributes())
            parameters = len(signature(statement.twin).parameters) - 1
            assert (columns, len(prepared.get_parameters())) == (statement.columns, parameters), (
                name
            )


async def test_rows_are_those_of_the_schema(database: PostgresDatabase) -> None:
    """A row in memory has the columns of its table, and every table that is simulated has rows."""
    async with database.connection() as real:
        found: dict[str, set[str]] = {}
        for table, column in await real.fetch(COLUMNS):
            found.setdefault(table, set()).add(column)
    simulated = {table: names for table, names in found.items() if table not in NOT_SIMULATED}
    assert found.keys() >= NOT_SIMULATED
    assert simulated == {table: set(column_names(row)) for table, row in ROWS.items()}
