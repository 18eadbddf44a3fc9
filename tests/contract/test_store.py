"""The databases of a node, the real one and the one in memory, are one to those who use them.

What nodes ask of their databases in the course of a troubled life is recorded, and played to both,
as it was and disturbed: the answers must be the same, and at the end the tables.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest

from lead.simulation.memory import MemoryDatabase
from node.model import times
from node.store.database import Database, PostgresDatabase
from tests.clocks import ManualClock
from tests.lives import Act, Life, acts
from tests.recorded import TABLES, Recorder, Transaction, contents, disturbed, play_to_both, stored
from tests.worlds import World

CLEAR = """
DELETE FROM task; DELETE FROM node; DELETE FROM access_token; DELETE FROM idempotency;
DELETE FROM outbox;
ALTER TABLE outbox ALTER COLUMN id RESTART; ALTER TABLE decision ALTER COLUMN id RESTART;
"""
SEEDS = range(6)


async def recorded(drawn: list[Act]) -> list[list[Transaction]]:
    """What each of three nodes asked of its database."""
    recorders: list[Recorder] = []

    async def lend(size: int) -> Database:
        recorders.append(Recorder())
        return recorders[-1]

    with tempfile.TemporaryDirectory() as directory:
        async with World(lend, ManualClock(), Path(directory)) as world:
            for name in ("a", "b", "c"):
                await world.site(name, horizon=6 * times.HOUR)
            await Life(world).live(drawn)
    return [recorder.asked for recorder in recorders]


async def same(database: PostgresDatabase, transactions: list[Transaction]) -> None:
    """Both give the same answers, and hold the same in the end."""
    memory = MemoryDatabase()
    async with database.connection() as real:
        await real.execute(CLEAR)
        for transaction in transactions:
            await play_to_both(real, memory, transaction)
        expected, found = await stored(real), contents(memory.tables)
    for name in TABLES:
        assert found[name] == expected[name], name


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_life(database: PostgresDatabase, seed: int) -> None:
    """Whatever three nodes live through, their databases say the same."""
    for asked in await recorded(acts(Random(seed), 40)):
        await same(database, asked)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_disturbed_life(database: PostgresDatabase, seed: int) -> None:
    """So they do when statements are missing, taken back, or come at another time, too."""
    rng = Random(-seed)
    for asked in await recorded(acts(Random(seed), 40)):
        await same(database, disturbed(asked, rng))
