"""A database that is damaged or worn out is told with what to do, and repaired by one command."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
import structlog

from lead.assembly.with_node import lead_of
from node.model.errors import DatabaseDamaged
from node.postgres import ServerBinaries, locate
from node.postgres.cluster import PrivateCluster
from node.runtime.clock import LatchedEvent
from node.store import maintenance
from node.store.faults import fault_of
from tests.support import damage
from tests.support.clocks import ManualClock
from tests.support.damage import RESERVED_IDS, SEGMENT_IDS, WRAP
from tests.support.served_nodes import Asker, asker

pytestmark = pytest.mark.timeout(120)

TASK = {"test": {"type": "idle", "spec": {"duration": "PT1S"}}}


class Server:
    """A Postgres of its own with the database of a node; its files are damaged while it is down."""

    def __init__(self, binaries: ServerBinaries, cluster: PrivateCluster) -> None:
        """Use a cluster that runs."""
        self._binaries, self._cluster = binaries, cluster
        self.dsn = cluster.dsn("parley")
        self._away: Path

    async def execute(self, statement: str) -> str | int | None:
        """Execute a statement; return its first value."""
        return await damage.execute(self.dsn, statement)

    def let_vacuum(self) -> None:
        """Give the server the table back that it could not vacuum."""
        damage.let_vacuum(self._away)

    async def restart(self) -> None:
        """Stop it and start it again."""
        await self._cluster.stop()
        await self._cluster.start()

    async def damage(self, relation: str) -> None:
        """Overwrite all pages of an index."""
        await damage.overwrite(self._cluster, self.dsn, relation)

    async def use_up_ids(self) -> None:
        """Go on with an id close to the last, at a server that cannot vacuum one of its tables."""
        self._away = await damage.use_up_ids(self._binaries, self._cluster, self.dsn)


@pytest.fixture(name="server")
async def _server() -> AsyncIterator[Server]:
    """Return a server with an empty database."""
    place = Path(tempfile.mkdtemp(prefix="parley-test-"))
    place.chmod(0o711)
    binaries = locate()
    assert isinstance(binaries, ServerBinaries)
    cluster = await PrivateCluster.create(place / "postgres", binaries, durable=False)
    await cluster.start()
    try:
        await cluster.create_database("parley")
        yield Server(binaries, cluster)
    finally:
        await cluster.stop()
        shutil.rmtree(place, ignore_errors=True)


class _Waiting(LatchedEvent):
    """An event for which nobody waits; the sixth who would is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        if len(self.pauses) == 6:
            raise asyncio.CancelledError
        return False


async def _said(a: Asker) -> tuple[list[str], str]:
    """Return what the status says of the database, and the line of the metric of damage."""
    code, status = await a.ask("GET", "/v1/status")
    assert code == 200, status
    async with a.session.get(f"{a.node.card.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    [line] = [line for line in lines if line.startswith("parley_database_damaged ")]
    told = [each["what"] for each in status["attention"] if each["subject"] == "database"]
    return told, line


@pytest.mark.nightly
async def test_a_damaged_index_is_told_and_made_anew(
    server: Server, clock: ManualClock, tmp_path: Path
) -> None:
    """A damaged index gives 503 and what to do; the status has what can be read without it."""
    async with asker("a", server.dsn, clock, tmp_path) as a:
        assert (await a.ask("POST", "/v1/tasks", TASK))[0] == 201
        await server.damage("planning_due")
        code, problem = await a.ask("GET", "/readyz")
        assert (code, problem["type"].rsplit("/", 1)[-1]) == (503, "database-damaged"), problem
        assert problem["detail"].startswith("the database is damaged: ")
        assert "repair it with parley admin repair" in problem["detail"]
        code, status = await a.ask("GET", "/v1/status")
        assert (status["planning"], status["runs"]["running"]) == (None, 0)
        assert status["database"]["schema_version"] is not None
        told, metric = await _said(a)
        assert [each.startswith("the database is damaged: ") for each in told] == [True]
        assert "(not read: due tasks, planning" in told[0]
        assert metric == "parley_database_damaged 1.0"
        done = await maintenance.repair(server.dsn)
        assert (done.vacuumed[0], "public.planning" in done.indexed) == ("parley", True)
        _, status = await a.ask("GET", "/v1/status")
        assert status["planning"]["due_tasks"] == 1


@pytest.mark.nightly
async def test_a_lead_tells_once_that_it_cannot_plan(
    server: Server, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lead whose database is damaged says so once, and asks less often from time to time."""
    async with asker("a", server.dsn, clock, tmp_path) as a:
        assert (await a.ask("POST", "/v1/tasks", TASK))[0] == 201
        await server.damage("planning_due")
        workers = lead_of(a.node, owner="a:1", rng=random.Random(1)).workers
        woken = _Waiting()
        monkeypatch.setattr(workers, "_woken", woken)
        with structlog.testing.capture_logs() as lines, pytest.raises(asyncio.CancelledError):
            await workers.run()
    [line] = [line for line in lines if line["event"] == "cannot plan"]
    assert "parley admin repair" in line["error"]
    assert woken.pauses == [5, 10, 20, 40, 60, 60]


@pytest.mark.nightly
async def test_a_damaged_index_of_a_constraint_refuses_a_booking(
    server: Server, clock: ManualClock, tmp_path: Path
) -> None:
    """A booking that needs a damaged index is not made; the node is not ready, and says why."""
    async with asker("a", server.dsn, clock, tmp_path) as a:
        assert (await a.ask("POST", "/v1/tasks", TASK))[0] == 201
        workers = lead_of(a.node, owner="a:1", rng=random.Random(1)).workers
        await workers.run_once()
        await asyncio.gather(*workers._busy)
        assert len(await a.rows("SELECT FROM run WHERE state = 'booked'")) == 1
        await server.damage("run_no_overlap")
        with pytest.raises(DatabaseDamaged, match="invalid page"):
            await a.rows("UPDATE run SET lane = '[0,1)'")
        code, problem = await a.ask("GET", "/readyz")
        assert (code, problem["detail"].partition(":")[0]) == (503, "the database is damaged")
        assert [each[:23] for each in (await _said(a))[0]] == ["the database is damaged"]
        await maintenance.repair(server.dsn)
        await a.rows("UPDATE run SET lane = '[0,1)'")


@pytest.mark.nightly
async def test_used_up_transaction_ids_are_told(
    server: Server, clock: ManualClock, tmp_path: Path
) -> None:
    """A server without transaction ids answers what can be read, and says how it gets new ones."""
    async with asker("a", server.dsn, clock, tmp_path) as a:
        assert (await a.ask("GET", "/v1/tasks"))[0] == 200
        await server.use_up_ids()
        code, problem = await a.ask("POST", "/v1/tasks", TASK)
        assert (code, problem["type"].rsplit("/", 1)[-1]) == (503, "database-damaged"), problem
        assert "its transaction ids are used up: database is not accepting" in problem["detail"]
        assert (await a.ask("GET", "/v1/tasks"))[0] == 200
        assert (await a.ask("GET", "/readyz"))[0] == 503
        _, status = await a.ask("GET", "/v1/status")
        assert WRAP - 2 * RESERVED_IDS < status["database"]["oldest_id_age"] < WRAP
        assert status["planning"]["due_tasks"] == 0
        told, metric = await _said(a)
        assert [each.partition(":")[0].partition(" is ")[0] for each in told] == [
            "the database takes no change, because its transaction ids are used up",
            "the oldest transaction id of the database's server",
        ]
        assert metric == "parley_database_damaged 1.0"
        server.let_vacuum()
        await maintenance.repair(server.dsn)
        assert (await a.ask("POST", "/v1/tasks", TASK))[0] == 201
        _, status = await a.ask("GET", "/v1/status")
        assert status["database"]["oldest_id_age"] < SEGMENT_IDS


@pytest.mark.needs("icu")
@pytest.mark.nightly
async def test_a_server_that_sorts_otherwise_is_told(
    server: Server, clock: ManualClock, tmp_path: Path
) -> None:
    """Another version of the library that sorts texts needs attention until indexes are new."""
    words = "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' TEMPLATE template0"
    await server.execute(f"CREATE DATABASE sorted {words}")
    dsn = server.dsn.replace("/parley?", "/sorted?")
    assert dsn != server.dsn
    async with asker("a", dsn, clock, tmp_path) as a:
        assert (await _said(a))[0] == []
        await server.execute("UPDATE pg_database SET datcollversion = '1' WHERE datname = 'sorted'")
        [told] = (await _said(a))[0]
        assert "indexes were made, and by another order they miss rows" in told
        await maintenance.repair(dsn)
        assert (await _said(a))[0] == []


@pytest.mark.parametrize("damaged", ["task", pytest.param("node", marks=pytest.mark.nightly)])
@pytest.mark.nightly
async def test_a_damaged_table_is_told(
    server: Server, clock: ManualClock, tmp_path: Path, damaged: str
) -> None:
    """Damaged rows are told by what needs them, and the status has what can still be read."""
    async with asker("a", server.dsn, clock, tmp_path) as a:
        assert (await a.ask("POST", "/v1/tasks", TASK))[0] == 201
        await server.damage(damaged)
        code, problem = await a.ask("POST", "/v1/tasks", TASK)
        assert (code, problem["type"].rsplit("/", 1)[-1]) == (503, "database-damaged"), problem
        assert (await a.ask("GET", "/readyz"))[0] == 503
        told, metric = await _said(a)
        assert told[0].startswith("the database is damaged: ")
        assert metric == "parley_database_damaged 1.0"


@pytest.mark.nightly
async def test_a_server_that_takes_no_change_says_so(
    server: Server, clock: ManualClock, tmp_path: Path
) -> None:
    """A read-only server refuses changes with its reason, and is read."""
    async with asker("a", server.dsn, clock, tmp_path) as a:
        await server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        await server.restart()
        code, problem = await a.ask("POST", "/v1/tasks", TASK)
        assert (code, problem["detail"].partition(";")[0].partition(":")[0]) == (
            503,
            "the database takes no change",
        )
        assert (await a.ask("GET", "/v1/tasks"))[0] == 200
        assert (await a.ask("GET", "/readyz"))[0] == 503


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (asyncpg.PostgresIOError("could not read block 3: Input/output error"), "is damaged"),
        (asyncpg.UndefinedFileError('could not open file "base/1/2"'), "is damaged"),
        (asyncpg.DataCorruptedError("missing chunk number 0"), "is damaged"),
        (asyncpg.InternalServerError("cache lookup failed"), "may be damaged"),
        (asyncpg.InsufficientPrivilegeError("Read-only file system"), "takes no change"),
        (asyncpg.LockNotAvailableError("lock timeout"), "have kept locked for 8 s"),
    ],
)
def test_what_an_error_of_postgres_means(error: asyncpg.PostgresError, says: str) -> None:
    """Errors of the server's disk and files are told as what its owner has to repair."""
    fault = fault_of(error, 8)
    assert fault is not None
    assert (fault.status, says in fault.detail) == (503, True)


def test_a_limit_of_the_program_is_its_own_fault() -> None:
    """A row that is too large for an index is no fault of the database."""
    assert fault_of(asyncpg.ProgramLimitExceededError("index row size 3000 exceeds"), 8) is None
