"""What every test may ask for: a private Postgres, databases, a clock, nodes in this process."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import settings

from node.postgres.binaries import ServerBinaries, locate
from node.postgres.cluster import PrivateCluster
from node.store.database import Connection, Database
from tests.clocks import ManualClock
from tests.worlds import World

# A deadline per example measures the machine, not the code: two cores are shared with real
# Postgres servers and real nodes. A test that hangs is ended by pytest-timeout.
settings.register_profile("parley", deadline=None, print_blob=True)
settings.load_profile("parley")

_TEMPLATE = "parley_template"
_ROLLED_BACK = "parley_rolled_back"
_NUMBERS = count(1)

NewDatabase = Callable[[str], Awaitable[str]]
"""``new_database(template)`` makes a database and gives its address."""


@pytest.fixture(scope="session")
def cluster_directory() -> Iterator[Path]:
    """A folder that the server's account may enter; pytest's own belong to their user alone."""
    directory = Path(tempfile.mkdtemp(prefix="parley-tests-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(cluster_directory: Path) -> AsyncIterator[PrivateCluster]:
    """One Postgres for all tests, with a template that has the schema."""
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    made = await PrivateCluster.create(cluster_directory / "postgres", binaries, durable=False)
    await made.start()
    try:
        for name in (_TEMPLATE, _ROLLED_BACK):
            await made.create_database(name)
            database = Database(made.dsn(name))
            await database.open()
            await database.close()
        yield made
    finally:
        await made.stop()


@pytest.fixture
async def new_database(cluster: PrivateCluster) -> AsyncIterator[NewDatabase]:
    """Makes databases that go with the test."""
    made: list[str] = []
    server = await asyncpg.connect(cluster.dsn("postgres"))

    async def new(template: str) -> str:
        name = f"test_{next(_NUMBERS)}"
        await server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        made.append(name)
        return cluster.dsn(name)

    yield new
    for name in made:
        await server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    await server.close()


@pytest.fixture
async def dsn(new_database: NewDatabase) -> str:
    """A database of this test's own, with the schema."""
    return await new_database(_TEMPLATE)


@pytest.fixture
async def empty_dsn(new_database: NewDatabase) -> str:
    """A database of this test's own with nothing in it."""
    return await new_database("template0")


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    """An opened database with the schema."""
    opened = Database(dsn)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def rolled_back(cluster: PrivateCluster) -> AsyncIterator[Connection]:
    """One connection to a common database, in a transaction that is rolled back: fast."""
    opened = Database(cluster.dsn(_ROLLED_BACK), size=1)
    await opened.open()
    async with opened.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield connection
        await transaction.rollback()
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
async def world(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[World]:
    """Nodes in this process, each with a database of its own; they speak without HTTP."""

    async def new() -> str:
        return await new_database(_TEMPLATE)

    async with World(new, clock, tmp_path) as made:
        yield made
