"""A database that hangs makes nobody wait for long, and loses nobody who comes back."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from structlog.testing import capture_logs

from node.model.errors import DatabaseUnavailable
from node.model.times import SECOND
from node.store.database import Connection, Database, Notice, PostgresDatabase
from node.store.hangs import HangLimits
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S
from tests.support.stalling import StallingProxy, stalling_proxy

IMPATIENT = HangLimits(use_s=0.05, probe_s=0.5)
PATIENT = HangLimits(use_s=0.05, probe_s=PATIENCE_S)


@pytest.fixture
async def way(new_database: NewDatabase) -> AsyncIterator[StallingProxy]:
    """A way to a database that can stand still."""
    with tempfile.TemporaryDirectory(prefix="parley-test-") as directory:
        async with stalling_proxy(await new_database(), Path(directory)) as opened:
            yield opened


class Probed(PostgresDatabase):
    """A database that counts how often it is probed."""

    def __init__(self, dsn: str) -> None:
        """Allow two connections."""
        super().__init__(dsn, size=2, hang_limits=PATIENT)
        self.probes = asyncio.Semaphore(0)

    async def _probe(self) -> None:
        await super()._probe()
        self.probes.release()


@pytest.fixture
async def behind(way: StallingProxy) -> AsyncIterator[Probed]:
    """A database behind that way."""
    opened = Probed(way.dsn)
    await opened.open()
    yield opened
    way.flow()
    await opened.close()


@contextlib.contextmanager
def stalled(way: StallingProxy, behind: Probed) -> Iterator[None]:
    """Let the database hang meanwhile."""
    behind._hangs._limits = IMPATIENT
    way.stall()
    yield
    behind._hangs._limits = PATIENT
    way.flow()


OUTAGE = (
    *("the database hangs", "the database answers again"),
    *("the database is away", "the database is back"),
)
"""The lines of the log about one outage: of the server, and of the connection for notices."""


async def ask(database: Database) -> int:
    """Ask the database for something."""
    async with database.transaction() as connection:
        return int(await connection.fetchval("SELECT 1"))


async def test_whoever_waits_for_a_hanging_database_is_told(
    way: StallingProxy, behind: Probed
) -> None:
    """Statements under way, and uses that wait for a connection, fail; later ones fail at once."""
    with stalled(way, behind):
        asking = [asyncio.create_task(ask(behind)) for _ in range(5)]
        async with asyncio.timeout(PATIENCE_S):
            told = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(error) for error in told} == {DatabaseUnavailable}
        assert {str(error)[:18] for error in told} == {"the database hangs"}
        with pytest.raises(DatabaseUnavailable, match="the database hangs"):
            async with behind.connection():
                pytest.fail("it does not even get a connection")


async def test_a_database_that_goes_on_is_used_again(way: StallingProxy, behind: Probed) -> None:
    """All connections can be used at once when the server answers again, and loops look again."""
    disconnected, woken = asyncio.Event(), asyncio.Semaphore(0)

    def hear(notice: Notice) -> None:
        (disconnected.set if notice.kind == "disconnected" else woken.release)()

    clock = ManualClock()
    listening = asyncio.create_task(behind.listen(hear, clock))
    async with asyncio.timeout(PATIENCE_S):
        await woken.acquire()
        with capture_logs() as lines:
            with stalled(way, behind), pytest.raises(DatabaseUnavailable):
                await ask(behind)
            await behind.probes.acquire()
            await disconnected.wait()
            clock.advance(SECOND)
            await woken.acquire()
            assert await asyncio.gather(*(ask(behind) for _ in range(5))) == [1] * 5
    assert Counter(line["event"] for line in lines) == dict.fromkeys(OUTAGE, 1)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_statement_that_is_broken_off_between_its_steps_is_no_fault_of_the_program(
    behind: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is taken away after a statement was prepared means: no answer."""
    prepare: Any = getattr(asyncpg.Connection, "_get_statement")  # noqa: B009

    async def prepared(*words: Any, **options: Any) -> Any:
        statement = await prepare(*words, **options)
        behind._hangs._break_off()
        behind._hangs._hangs = False
        return statement

    async with behind.connection():
        pass
    monkeypatch.setattr(asyncpg.Connection, "_get_statement", prepared)
    with pytest.raises(DatabaseUnavailable, match="broken off"):
        async with behind.connection() as connection:
            await connection.fetch("SELECT 1")


async def test_a_long_statement_is_no_hanging_database(behind: Probed) -> None:
    """A statement may take as long as it needs while the server answers others."""
    async with behind.connection() as other, behind.connection() as connection:
        await other.execute("SELECT pg_advisory_lock(1)")
        waiting = asyncio.create_task(connection.fetchval("SELECT pg_advisory_lock(1)"))
        for _ in range(IMPATIENT.probes + 1):
            await asyncio.wait_for(behind.probes.acquire(), PATIENCE_S)
        await other.execute("SELECT pg_advisory_unlock(1)")
        await asyncio.wait_for(waiting, PATIENCE_S)
    assert await ask(behind) == 1


async def test_a_locked_table_makes_nobody_wait_for_long(dsn: str) -> None:
    """A statement that waits for a lock too long fails, and succeeds once the lock is given up."""
    waiting = PostgresDatabase(dsn, hang_limits=HangLimits(lock_s=0.1))
    locking = PostgresDatabase(dsn)
    await asyncio.gather(waiting.open(), locking.open())
    async with locking.transaction() as locked:
        await locked.execute("LOCK TABLE run")
        with pytest.raises(DatabaseUnavailable, match="have kept locked for"):
            async with waiting.connection() as connection:
                await connection.fetch("SELECT FROM run")
    async with waiting.connection() as connection:
        assert await connection.fetch("SELECT FROM run") == []
    await asyncio.gather(waiting.close(), locking.close())


@pytest.mark.nightly
async def test_a_connection_of_which_only_the_farewell_arrived_is_replaced(
    way: StallingProxy, behind: Probed
) -> None:
    """A statement on a connection that the server has ended fails as if it were away."""
    way.hold_ends()
    async with behind.connection() as other:
        with pytest.raises(DatabaseUnavailable, match="the database does not answer"):
            await _ask_after_the_end(behind, other)
    assert await asyncio.gather(*(ask(behind) for _ in range(2))) == [1] * 2


async def _ask_after_the_end(behind: Probed, other: Connection) -> None:
    """Use a connection whose server process has ended."""
    async with behind.connection() as connection:
        process = await connection.fetchval("SELECT pg_backend_pid()")
        await other.execute("SELECT pg_terminate_backend($1)", process)
        living = "SELECT FROM pg_stat_activity WHERE pid = $1"
        async with asyncio.timeout(PATIENCE_S):
            while await other.fetchrow(living, process):
                pass
        await connection.fetchval("SELECT 1")


async def test_a_database_that_is_away_takes_no_connection(new_database: NewDatabase) -> None:
    """A server that has no such database, as during a restore, may have it again a while later."""
    dsn = await new_database()
    name = urlsplit(dsn).path.removeprefix("/")
    server = await asyncpg.connect(await new_database(empty=True))
    database = PostgresDatabase(dsn)
    await database.open()
    await server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1"
    await server.execute(end, name)
    await server.execute(f"ALTER DATABASE {name} RENAME TO {name}_away")
    for reason in (None, "takes no connection: .* does not exist"):
        with pytest.raises(DatabaseUnavailable, match=reason):
            async with database.connection() as connection:
                await connection.fetchval("SELECT 1")
    await server.execute(f"ALTER DATABASE {name}_away RENAME TO {name}")
    await server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT 1") == 1
    await database.close()
    await server.close()
