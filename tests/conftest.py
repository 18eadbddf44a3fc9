"""Fixtures for all tests: a private Postgres, databases, a clock, nodes in this process."""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import os
import shutil
import signal
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator
from itertools import count
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Protocol

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from node.postgres.binaries import ServerBinaries, locate
from node.postgres.cluster import PrivateCluster
from node.store.database import Database, PostgresDatabase
from node.store.queries import PostgresConnection
from node.store.schema import digest_of_schema, schema_version
from tests.support.booking import BookingLead
from tests.support.clocks import ManualClock
from tests.support.databases import copy_database
from tests.support.manual_releases import follow_manual_clocks
from tests.support.patience import BUSY
from tests.support.worlds import World

pytest_plugins = ["tests.support.needs", "tests.support.nightly"]

# A deadline per example measures the machine, not the code: two cores are shared with real
# Postgres servers and real nodes. A test that hangs is ended by pytest-timeout. Each run chooses
# other examples; --hypothesis-profile=thorough tries twenty times as many.
settings.register_profile("parley", deadline=None, print_blob=True, max_examples=50)
settings.register_profile("thorough", settings.get_profile("parley"), max_examples=1000)
settings.load_profile("parley")

_IDLE_LIMIT_S = 60.0
_ENDING_S = 20.0
"""The longest that programs of interrupted tests may take to end."""


def pytest_configure(config: pytest.Config) -> None:
    """Let the programs that tests start be ended by Ctrl-C, and collect no garbage for now.

    What a shell starts in the background without job control ignores it, and so do all children.
    """
    if not hasattr(config, "workerinput"):
        _use_own_temporary_directory()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Nothing of thousands of new tests is garbage; looking for some takes a third of the time.
    gc.disable()


def _use_own_temporary_directory() -> None:
    """Have this process and all that it starts leave their files in one folder, until it ends.

    Every account may use it, as the one that it replaces. Folders of tests stay where they were:
    they are pytest's, which removes them, and longer names are too long for sockets in them.
    """
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    directory = Path(tempfile.mkdtemp(prefix="parley-"))
    directory.chmod(0o1777)
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None
    # After the folder that multiprocessing itself removes at the end, with priority -100.
    Finalize(None, _remove, args=(directory,), exitpriority=-200)


def _remove(directory: Path) -> None:
    """Remove what tests left, as those do that Ctrl-C has ended.

    What they started ends with them, but it may write a last file meanwhile.
    """
    until = time.monotonic() + _ENDING_S
    while directory.exists() and time.monotonic() < until:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Import the files of tests, each process from another one on, so that they share the work.

    Where no bytecode is cached, as in a new clone, compiling a file takes longer than all else; so
    each finds compiled by then what the others began with. What cannot be imported, or warns, is
    left to pytest, which says why.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not worker or session.config.args != session.config.getini("testpaths"):
        return
    files = sorted((session.config.rootpath / "tests").rglob("test_*.py"))
    first = len(files) * int(worker) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for file in (*files[first:], *files[:first]):
            name = ".".join(file.relative_to(session.config.rootpath).with_suffix("").parts)
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def pytest_collection_finish() -> None:
    """Collect garbage again."""
    gc.enable()


_LABS = "tests/acceptance/"
_OWN_LAB = "tests/acceptance/own_lab/"
_SHARED_SOURCES = "tests/architecture/"


class _FilesAndLabs(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives each file to one process, and all files that share a lab, or sources, to the same."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_SHARED_SOURCES):
            return _SHARED_SOURCES
        return _lab_of(nodeid) or str(super()._split_scope(nodeid))


def _lab_of(nodeid: str) -> str | None:
    """Return the place whose tests share a lab with this one; None if it shares no lab.

    All folders share one, because starting and ending a lab takes ten seconds of a processor.
    """
    if not nodeid.startswith(_LABS) or nodeid.startswith(_OWN_LAB):
        return None
    is_in_folder = "/" in nodeid.removeprefix(_LABS).partition("::")[0]
    return f"{_LABS}*/" if is_in_folder else _LABS


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Return what decides which process runs which tests, where there are several."""
    return _FilesAndLabs(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start what takes longest first, so that at the end no process waits for another.

    First the tests that share a lab, all in one process, then those with the longest timeout.

    A test's ``timeout`` is how long it may take on an idle host, in seconds. What ends a test that
    hangs is longer, because others may be busy on the same host.
    """
    items.sort(key=lambda item: (_lab_of(item.nodeid) is not None, _idle_limit(item)), reverse=True)
    for item in items:
        if (limit := _idle_limit(item)) < math.inf:
            item.add_marker(pytest.mark.timeout(BUSY * limit), append=False)


def _idle_limit(item: pytest.Item) -> float:
    limit = item.get_closest_marker("timeout")
    return float(limit.args[0]) or math.inf if limit else _IDLE_LIMIT_S


TEMPLATE = "parley_template"
_ROLLED_BACK = "parley_rolled_back"
_NUMBERS = count(1)

CLEAR_CAMPAIGNS = """
DELETE FROM charge; DELETE FROM charge_hour; DELETE FROM pool; DELETE FROM campaign WHERE id > 1;
DELETE FROM campaign_lead;
UPDATE campaign SET parent_id = NULL, parent_depth = NULL, weight = 1, level = 5, revision = 1,
    target_seats = NULL, target_share = NULL, target_borrow = NULL, target_lend = NULL,
    budget = NULL, limits = '{}', owner = NULL, timed_weights = '[]', leads = '{}',
    changed_at = created_at;
ALTER TABLE campaign ALTER COLUMN id RESTART WITH 2;
"""
"""Restores the initial state of the campaigns: only the default one exists, unchanged."""

_NEWLY_SET_UP = "UPDATE schema_version SET applied_at = now() + interval '1 day';"
"""A copy of the template would count as a database that was restored a minute after it was made."""
_GIVEN = "UPDATE generation SET place = '';"
"""The owner has made the copies, so that none of them is in doubt."""
_CLEAR = f"""
DELETE FROM task; DELETE FROM node; DELETE FROM access_token; DELETE FROM idempotency;
DELETE FROM reservation; DELETE FROM lead_share; DELETE FROM lead_question;
DELETE FROM limit_quota; DELETE FROM limit_use; DELETE FROM limit_return; DELETE FROM limit_rate;
DELETE FROM limit_reached; DELETE FROM archive; DELETE FROM destination; DELETE FROM webhook;
DELETE FROM resource; DELETE FROM mesh_recount; DELETE FROM outbox; DELETE FROM lead_process;
DELETE FROM secret;
DELETE FROM pscheduler_booking; DELETE FROM pscheduler_membership;
DELETE FROM lead_absence; DELETE FROM revocation; DELETE FROM mesh_refusal; {CLEAR_CAMPAIGNS}
SELECT purge_audit('infinity', 1000000);
UPDATE generation
SET
    successor = NULL, copy_of = NULL, host = NULL, sealed_by = NULL, clock_at = NULL,
    believed_at = NULL, believed_boot = NULL, believed_uptime = NULL, aged_at = NULL,
    former_url = NULL;
UPDATE schema_version SET version = {schema_version()}, digest = '{digest_of_schema()}';
{_NEWLY_SET_UP}
DO $$
DECLARE
    name text;
    holds boolean;
BEGIN
    FOR name IN
        SELECT tablename FROM pg_tables WHERE schemaname = 'public'
        AND tablename NOT IN ('schema_version', 'generation', 'campaign')
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO holds;
        IF holds THEN RAISE EXCEPTION 'the next test would find rows in table %', name; END IF;
    END LOOP;
END $$;
"""


class NewDatabase(Protocol):
    """The type of ``new_database()``, which returns the DSN of a database, with schema or empty."""

    def __call__(self, *, empty: bool = False) -> Awaitable[str]:
        """Create a database for this test."""
        ...


@pytest.fixture(scope="session")
def cluster_directory() -> Iterator[Path]:
    """A folder that the server's account may enter; pytest's own folders are private."""
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
        for name in (TEMPLATE, _ROLLED_BACK):
            await made.create_database(name)
            database = PostgresDatabase(made.dsn(name))
            await database.open()
            async with database.connection() as connection:
                await connection.execute(_NEWLY_SET_UP + _GIVEN)
            await database.close()
        yield made
    finally:
        await made.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def spare() -> list[str]:
    """Databases with the schema only: clearing one is faster than creating one."""
    return []


@pytest.fixture
async def new_database(cluster: PrivateCluster, spare: list[str]) -> AsyncIterator[NewDatabase]:
    """Creates databases for a test, with the schema or empty."""
    lent: list[str] = []
    made: list[str] = []

    async def new(*, empty: bool = False) -> str:
        if spare and not empty:
            lent.append(spare.pop())
            return cluster.dsn(lent[-1])
        name = f"test_{next(_NUMBERS)}"
        template = "template0" if empty else TEMPLATE
        await copy_database(cluster.dsn("postgres"), name, template)
        (made if empty else lent).append(name)
        return cluster.dsn(name)

    yield new
    for name in lent:
        await _execute(cluster, name, _CLEAR)
    spare.extend(lent)
    for name in made:
        await _execute(cluster, "postgres", f'DROP DATABASE "{name}" WITH (FORCE)')


async def _execute(cluster: PrivateCluster, name: str, statements: str) -> None:
    connection = await asyncpg.connect(cluster.dsn(name))
    await connection.execute(statements)
    await connection.close()


@pytest.fixture
async def dsn(new_database: NewDatabase) -> str:
    """The DSN of a database of this test's own, with the schema."""
    return await new_database()


@pytest.fixture
async def empty_dsn(new_database: NewDatabase) -> str:
    """The DSN of an empty database of this test's own."""
    return await new_database(empty=True)


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[PostgresDatabase]:
    """An open database with the schema."""
    opened = PostgresDatabase(dsn)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def rolled_back(cluster: PrivateCluster) -> AsyncIterator[PostgresConnection]:
    """A connection to a shared database, in a transaction that is rolled back, which is fast."""
    opened = PostgresDatabase(cluster.dsn(_ROLLED_BACK), size=1)
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


class Lender:
    """Open databases that tests share one after another: connecting takes longer than a test."""

    def __init__(self, cluster: PrivateCluster) -> None:
        """Start without databases."""
        self._cluster = cluster
        self._free: dict[int, list[PostgresDatabase]] = defaultdict(list)
        self._all: list[PostgresDatabase] = []

    async def lend(self, size: int) -> PostgresDatabase:
        """Return a database with nothing but the schema, and at most ``size`` connections."""
        if self._free[size]:
            return self._free[size].pop()
        name = f"test_{next(_NUMBERS)}"
        await copy_database(self._cluster.dsn("postgres"), name, TEMPLATE)
        database = PostgresDatabase(self._cluster.dsn(name), size=size)
        await database.open()
        self._all.append(database)
        return database

    async def take_back(self, database: Database) -> None:
        """Clear a database for the next test."""
        assert isinstance(database, PostgresDatabase)
        async with database.connection() as connection:
            await connection.execute(_CLEAR)
        database.was_restored, database.copy_of = False, None
        self._free[database._size].append(database)

    async def close(self) -> None:
        """Close all databases."""
        for database in self._all:
            await database.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def lender(cluster: PrivateCluster) -> AsyncIterator[Lender]:
    """Open databases, for tests that run on the session's loop."""
    made = Lender(cluster)
    yield made
    await made.close()


@pytest.fixture
def own_lender(cluster: PrivateCluster) -> Lender:
    """Open databases for a test with its own loop, which closes them there."""
    return Lender(cluster)


@pytest_asyncio.fixture(loop_scope="session")
async def world(
    lender: Lender, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """Nodes in this process, each with its own database; they communicate without HTTP.

    Their connections outlive the test, so its module says ``pytestmark = ON_ONE_LOOP``.
    """
    follow_manual_clocks(monkeypatch)
    async with World(lender.lend, clock, tmp_path) as made:
        yield made
    for site in made.sites:
        await lender.take_back(site.database)


@pytest_asyncio.fixture(loop_scope="session")
async def booker(world: World) -> BookingLead:
    """A lead and a participant."""
    return BookingLead(world, await world.site("a"), await world.site("b"))
