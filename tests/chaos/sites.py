"""Five real nodes, each with a Postgres, a ``parley-node`` and a ``parley-lead`` of its own.

Each process can be killed alone and is started again after a pause, as systemd would do. Nodes
know each other by the wires of :mod:`tests.chaos.links`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from node.clock import SystemClock
from node.execution import process
from node.execution.process import RunningProcess
from node.lab import loopback
from node.lab.nodes import module_environment, names
from node.model.errors import DatabaseUnavailable
from node.postgres import PrivateCluster, ServerBinaries, locate
from tests.chaos.links import Wire
from tests.chaos.plan import Plan
from tests.chaos.queries import SQL

RESTART_S = 0.5
READY_S = 90.0
_CLOCK = SystemClock()


class Service:
    """A process that is started again whenever it ends, until it is stopped."""

    def __init__(
        self, name: str, program: str, environment: dict[str, str], directory: Path, log: Path
    ) -> None:
        """Create a service without starting it; ``name`` is for messages."""
        self.name = name
        self.starts = 0
        self._argv = [str(Path(sys.executable).with_name(program))]
        self._environment = environment
        self._directory = directory
        self._log = log
        self._running: RunningProcess | None = None
        self._stopping = False
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the process and keep it running."""
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {self.name}")

    async def _keep(self) -> None:
        while not self._stopping:
            self._running = await process.start(
                self._argv, env=self._environment, cwd=self._directory, log=self._log
            )
            self.starts += 1
            await self._running.wait()
            await _CLOCK.sleep(RESTART_S)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the current process."""
        if self._running is not None and not self._running.ended:
            self._running.send(number)

    async def stop(self) -> None:
        """End the process for good."""
        self._stopping = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._running is not None:
            self._running.send(signal.SIGCONT)
            await self._running.end(0)


@dataclass
class Site:
    """A node with everything that belongs to it."""

    name: str
    url: str
    cluster: PrivateCluster
    state: Path
    node: Service
    lead: Service
    identity: str = ""
    token: str = ""
    down: bool = False
    log_files: tuple[Path, ...] = ()

    @property
    def dsn(self) -> str:
        """Return the DSN of the database."""
        return self.cluster.dsn(self.name)

    @property
    def address(self) -> str:
        """Return the address that measurements use."""
        return self.url.removeprefix("http://").rpartition(":")[0]

    @property
    def results(self) -> Path:
        """Return the file to which the tasks led here may deliver their results."""
        return self.state / "results" / "results.jsonl"

    async def restart_database(self, pause_s: float) -> None:
        """Shut the database down at once, as after a power failure, and start it after a pause."""
        self.down = True
        try:
            server = self.cluster._server
            if server is not None:
                server.send(signal.SIGQUIT)
                await server.wait()
            await _CLOCK.sleep(pause_s)
            await self.cluster.start()
        finally:
            self.down = False

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """Connect to the database, which may be recovering."""
        for _ in range(100):
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                return await asyncpg.connect(self.dsn)
            await _CLOCK.sleep(0.2)
        raise DatabaseUnavailable(f"the database of {self.name} did not recover in time")


@dataclass
class Sites:
    """All nodes and the wires between them."""

    plan: Plan
    work: Path
    all: list[Site] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)

    def between(self, source: Site, target: Site) -> Wire:
        """Return the wire from one node to another."""
        return next(w for w in self.wires if w.source == source.name and w.target == target.name)

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Wait until all nodes report that they are ready."""
        async with asyncio.timeout(READY_S):
            for site in self.all:
                while not await _answers(session, f"{site.url}/readyz"):
                    await _CLOCK.sleep(0.1)


@contextlib.asynccontextmanager
async def running(plan: Plan, *, keep: list[Path]) -> AsyncIterator[Sites]:
    """Start all nodes; afterwards stop them and remove the directory unless it is in ``keep``."""
    work = Path(tempfile.mkdtemp(prefix=f"parley-chaos-{os.getpid()}-"))
    work.chmod(0o711)
    sites = Sites(plan, work)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(_remove, work, keep)
        claim = loopback.claim(plan.nodes)
        stack.callback(claim.release)
        listeners = zip(itertools.islice(names(), plan.nodes), claim.addresses, strict=True)
        sites.all = await asyncio.gather(
            *(_make(plan, work, name, f"{address}:{claim.port}") for name, address in listeners)
        )
        for site in sites.all:
            stack.push_async_callback(site.cluster.stop)
        services = [service for site in sites.all for service in (site.node, site.lead)]
        stack.push_async_callback(_stop, services)
        await asyncio.gather(*(_start(site) for site in sites.all))
        async with aiohttp.ClientSession() as session:
            await sites.ready(session)
            await _introduce(sites, session)
        await _wire(sites, stack)
        for site in sites.all:
            site.lead.start()
        yield sites


def _remove(work: Path, keep: Sequence[Path]) -> None:
    if work not in keep:
        shutil.rmtree(work, ignore_errors=True)


async def _make(plan: Plan, work: Path, name: str, listen: str) -> Site:
    binaries = locate()
    assert isinstance(binaries, ServerBinaries), "chaos makes its own databases"
    cluster = await PrivateCluster.create(work / f"{name}.postgres", binaries)
    state = work / name
    state.mkdir(mode=0o700)
    (state / "results").mkdir()
    environment = {
        **module_environment(),
        **plan.environment,
        "PARLEY_NAME": name,
        "PARLEY_LISTEN": listen,
        "PARLEY_DSN": cluster.dsn(name),
        "PARLEY_STATE_DIR": str(state),
        "PARLEY_ARCHIVE_DIRECTORIES": str(state / "results"),
    }
    logs = (work / f"{name}.node.log", work / f"{name}.lead.log")
    return Site(
        name=name,
        url=f"http://{listen}",
        cluster=cluster,
        state=state,
        node=Service(f"node {name}", "parley-node", environment, state, logs[0]),
        lead=Service(f"lead {name}", "parley-lead", environment, state, logs[1]),
        log_files=logs,
    )


async def _start(site: Site) -> None:
    await site.cluster.start()
    await site.cluster.create_database(site.name)
    site.node.start()


async def _stop(services: Sequence[Service]) -> None:
    await asyncio.gather(*(service.stop() for service in services))


async def _introduce(sites: Sites, session: aiohttp.ClientSession) -> None:
    """Add every node to every other one, as an operator would do."""
    for site in sites.all:
        site.token = (site.state / "token").read_text().strip()
        async with session.get(f"{site.url}/v1/nodes/self") as response:
            site.identity = (await response.json())["identity"]
    for one, other in itertools.permutations(sites.all, 2):
        async with session.post(
            f"{one.url}/v1/nodes",
            json={"url": other.url},
            headers={"Authorization": f"Bearer {one.token}"},
        ) as response:
            response.raise_for_status()


async def _wire(sites: Sites, stack: contextlib.AsyncExitStack) -> None:
    """Connect each node with each other one by a wire that can be cut."""
    for one, other in itertools.permutations(sites.all, 2):
        host, _, port = other.url.removeprefix("http://").rpartition(":")
        wire = Wire(one.name, other.name, host, int(port))
        await wire.open()
        stack.push_async_callback(wire.close)
        sites.wires.append(wire)
        connection: Any = await one.connect()
        try:
            await connection.execute(SQL["lead_over"], other.identity, wire.url)
            await connection.execute(SQL["notify_node"], f"node {other.name} added")
        finally:
            await connection.close()


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
