"""Five real nodes, each with a Postgres, a ``parley-node`` and a ``parley-lead`` of its own.

The last one is a single ``parley up``, which has all of that. Each process can be killed alone and
is started again after a pause, as systemd would do. Nodes know each other by the wires of
:mod:`tests.chaos.links`.
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
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg

from node.cli.lab import loopback
from node.cli.lab.nodes import module_environment, names
from node.execution import process
from node.execution.process import RunningProcess
from node.model.errors import HostError
from node.model.host_limits.document import EVERYTHING
from node.postgres import PrivateCluster, ServerBinaries, locate
from node.runtime.clock import SystemClock
from tests.chaos.hosts import Disk, HostClock, forget_shared_memory, library
from tests.chaos.links import Wire
from tests.chaos.plan import Plan
from tests.chaos.queries import SQL
from tests.chaos.servers import Server

RESTART_S = 0.5
READY_S = 90.0
END_S = 20.0
LAID_S = 5.0
COMMAND_S = 300.0
_DISK, _CLOCK_SET, _UP = 1, 2, 3
"""The nodes with a disk of their own, with a clock of its own, and (the last) of ``parley up``."""
_CLOCK = SystemClock()


def program(name: str) -> str:
    """Return the path of one of Parley's programs."""
    return str(Path(sys.executable).with_name(name))


class Service:
    """A process that is started again whenever it ends, until it is stopped."""

    def __init__(
        self, argv: Sequence[str], environment: dict[str, str], directory: Path, log: Path
    ) -> None:
        """Create a service without starting it; it works in ``directory``."""
        self.log = log
        self._argv = [program(argv[0]), *argv[1:]]
        self._environment = environment
        self._directory = directory
        self._running: RunningProcess | None = None
        self._stopping = True
        self._keeping: asyncio.Task[None] | None = None

    @property
    def started(self) -> bool:
        """Return whether the process is kept running."""
        return not self._stopping

    def start(self) -> None:
        """Start the process and keep it running."""
        self._stopping = False
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {self.log.stem}")

    async def _keep(self) -> None:
        while not self._stopping:
            self._running = await process.start(
                self._argv, env=self._environment, cwd=self._directory, log=self.log
            )
            try:
                await self._running.wait()
            finally:
                forget_shared_memory(self._running.pid)
            await _CLOCK.sleep(RESTART_S)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the current process."""
        if self._running is not None and not self._running.ended:
            self._running.send(number)

    def move(self, environment: dict[str, str], directory: Path) -> None:
        """Work with these settings and there from the next start on."""
        self._environment, self._directory = environment, directory

    async def stop(self, grace_s: float = 0) -> None:
        """End the process for good, or until it is started anew."""
        self._stopping = True
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._running is not None:
            self._running.send(signal.SIGCONT)
            await self._running.end(grace_s)
            forget_shared_memory(self._running.pid)


@dataclass
class Site:
    """A node with everything that belongs to it."""

    name: str
    url: str
    server: Server
    state: Path
    results: Path
    """The file with the results to which the tasks led here may deliver them."""
    node: Service
    lead: Service
    """The service that plans; that of ``parley up`` is the node's as well."""
    second_lead: Service | None = None
    disk: Disk | None = None
    clock: HostClock | None = None
    identity: str = ""
    token: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The settings of its services."""
    is_copied: bool = False
    """True while a copy of it is tried, which takes the node over unless the original answers."""
    dumped_at: datetime | None = None

    @property
    def dsn(self) -> str:
        """Return the DSN of the database."""
        return self.server.dsn

    @property
    def address(self) -> str:
        """Return the address that measurements use."""
        return self.url.removeprefix("http://").rpartition(":")[0]

    @property
    def dump(self) -> Path:
        """Return the file for backups of the database."""
        return self.state / "backup"

    @property
    def services(self) -> list[Service]:
        """Return all services, whether they are started or not."""
        every = [self.node, self.lead, self.second_lead]
        return list(dict.fromkeys(each for each in every if each is not None))

    @property
    def is_up(self) -> bool:
        """Return whether this node is a single ``parley up``."""
        return self.node is self.lead

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """Connect to the database, which may be recovering."""
        return await self.server.connect()

    async def type(self, *words: str) -> None:
        """Type a command on the host of the node.

        :raises HostError: it failed.
        """
        running = await process.start(
            [program("parley"), *words], env=self.environment, cwd=self.state
        )
        try:
            async with asyncio.timeout(COMMAND_S):
                finished = await running.wait()
        except TimeoutError:
            raise HostError(f"parley {' '.join(words)} took over {COMMAND_S:g} s") from None
        finally:
            await running.end(0)
        if finished.exit_code != 0:
            raise HostError(f"parley {' '.join(words)}: {process.tail(finished.stderr)}")


@dataclass(frozen=True)
class Restored:
    """A restore of a node's database: what was made in between is forgotten there."""

    node: str
    dumped_at: datetime
    restored_at: datetime


@dataclass(frozen=True)
class Trouble:
    """A time for which two nodes could not be sure to hear each other, or one (twice) nobody."""

    one: str
    other: str
    began: datetime
    ended: datetime


@dataclass(frozen=True)
class Stepped:
    """A time for which a node's clock was wrong, as that clock told it; and when it was right."""

    node: str
    began: datetime
    ended: datetime
    right_at: datetime


@dataclass
class Sites:
    """All nodes and the wires between them."""

    plan: Plan
    work: Path
    spare: str = ""
    """The place where a copy of a node may listen: an address and a port."""
    moves: int = 0
    """The number of nodes that were moved."""
    all: list[Site] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    restored: list[Restored] = field(default_factory=list)
    stepped: list[Stepped] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """The faults that this host does not allow, each with the reason."""

    def between(self, source: Site, target: Site) -> Wire:
        """Return the wire from one node to another."""
        return next(w for w in self.wires if w.source == source.name and w.target == target.name)

    def move(self, site: Site, state: Path, environment: dict[str, str]) -> None:
        """Have a node, which is stopped, go on with another state directory and at the spare place.

        Nodes that know it over a wire still reach it so.
        """
        self.spare, listen = site.url.removeprefix("http://"), self.spare
        site.url, site.state, site.environment = f"http://{listen}", state, environment
        site.dumped_at = None
        for service in site.services:
            service.move(environment, state)
        for wire in self.wires:
            if wire.target == site.name:
                wire.host, _, port = listen.rpartition(":")
                wire.port = int(port)

    async def lay(self, wire: Wire) -> bool:
        """Have a node reach another one over a wire; return whether its database could be told.

        A node whose database was restored or failed over says anew where it is, and the others
        follow it there, past the wire.
        """
        named = {site.name: site for site in self.all}
        one, other = named[wire.source], named[wire.target]
        with contextlib.suppress(OSError, TimeoutError, asyncpg.PostgresError):
            connection: Any = await asyncpg.connect(one.dsn, timeout=LAID_S)
            try:
                for query, *words in (
                    ("lead_over", other.identity, wire.url),
                    ("notify_node", f"node {other.name} added"),
                ):
                    await connection.execute(SQL[query], *words, timeout=LAID_S)
                await connection.close(timeout=LAID_S)
            finally:
                connection.terminate()  # one that did not answer in time says no farewell
            return True
        return False

    async def ready(self, session: aiohttp.ClientSession) -> None:
        """Wait until all nodes report that they are ready."""
        async with asyncio.timeout(READY_S):
            for site in self.all:
                while not await answers(session, f"{site.url}/readyz"):
                    await _CLOCK.sleep(0.1)


@contextlib.asynccontextmanager
async def running(plan: Plan, *, keep: list[Path]) -> AsyncIterator[Sites]:
    """Start all nodes; afterwards stop them and remove the directory unless it is in ``keep``."""
    work = Path(tempfile.mkdtemp(prefix=f"parley-chaos-{os.getpid()}-"))
    work.chmod(0o711)
    sites = Sites(plan, work)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(_remove, work, keep)
        claim = loopback.claim(plan.nodes + 1)
        stack.callback(claim.release)
        *addresses, spare = (f"{address}:{claim.port}" for address in claim.addresses)
        sites.spare = spare
        listeners = zip(itertools.islice(names(), plan.nodes), addresses, strict=True)
        sites.all = await asyncio.gather(
            *(
                _make(sites, number, name, listen, stack)
                for number, (name, listen) in enumerate(listeners)
            )
        )
        for site in sites.all:
            stack.push_async_callback(_keep_disk, site, keep, work)
        for site in sites.all:
            stack.push_async_callback(site.server.stop)
        stack.push_async_callback(_stop, sites)
        await asyncio.gather(*(_start(site) for site in sites.all))
        async with aiohttp.ClientSession() as session:
            await sites.ready(session)
            await _introduce(sites, session)
        await _wire(sites, stack)
        for site in sites.all:
            if not site.is_up:
                site.lead.start()
        yield sites


def _remove(work: Path, keep: Sequence[Path]) -> None:
    if work not in keep:
        shutil.rmtree(work, ignore_errors=True)


async def _make(
    sites: Sites, number: int, name: str, listen: str, stack: contextlib.AsyncExitStack
) -> Site:
    """Make the node, and what its number says of its host."""
    binaries = locate()
    assert isinstance(binaries, ServerBinaries), "chaos makes its own databases"
    plan, work = sites.plan, sites.work
    disk = clock = None
    if plan.host_faults and number == _DISK:
        disk = await _disk(sites, work / f"{name}.disk", stack)
    if plan.host_faults and number == _CLOCK_SET:
        clock = _clock(sites, work / f"{name}.clock")
    up = plan.host_faults and number == plan.nodes - 1 >= _UP
    state = (disk.directory if disk else work) / name
    state.mkdir(mode=0o711 if up else 0o700)
    (state / "results").mkdir()
    (state / "limits.toml").write_text(f'{EVERYTHING}[[resource]]\nname = "link"\nnumber = 2\n')
    if up:
        server = Server(
            PrivateCluster(state / "postgres", binaries), "parley", binaries, ours=False
        )
    else:
        cluster = await PrivateCluster.create(state.with_suffix(".postgres"), binaries)
        # A disk in memory has no room for a second one.
        standby = None if disk else PrivateCluster(state.with_suffix(".standby"), binaries)
        server = Server(cluster, name, binaries, ours=True, standby=standby)
    environment = {
        **module_environment(),
        **plan.environment,
        **(clock.environment if clock else {}),
        "PARLEY_NAME": name,
        "PARLEY_LISTEN": listen,
        "PARLEY_STATE_DIR": str(state),
        "PARLEY_LIMITS": str(state / "limits.toml"),
        "PARLEY_ARCHIVE_DIRECTORIES": str(state / "results"),
        **({} if up else {"PARLEY_DSN": server.dsn}),
    }

    def service(kind: str, *argv: str) -> Service:
        return Service(argv, environment, state, work / f"{name}.{kind}.log")

    node = service("up", "parley", "up") if up else service("node", "parley-node")
    return Site(
        name=name,
        url=f"http://{listen}",
        server=server,
        state=state,
        results=state / "results" / "results.jsonl",
        node=node,
        lead=node if up else service("lead", "parley-lead"),
        second_lead=None if up else service("second-lead", "parley-lead"),
        disk=disk,
        clock=clock,
        environment=environment,
    )


async def _disk(sites: Sites, directory: Path, stack: contextlib.AsyncExitStack) -> Disk | None:
    disk = Disk(directory)
    try:
        await disk.mount()
    except HostError as error:
        directory.rmdir()
        sites.left_out["disk full"] = error.detail
        return None
    stack.push_async_callback(disk.unmount)
    return disk


def _clock(sites: Sites, file: Path) -> HostClock | None:
    found = library()
    if found is None:
        sites.left_out["clock set"] = "libfaketime is not installed (package faketime)"
        return None
    return HostClock(file, found)


async def _keep_disk(site: Site, keep: Sequence[Path], work: Path) -> None:
    """Copy what is on a disk of our own, if the round is to be kept."""
    if site.disk is not None and work in keep:
        await asyncio.to_thread(
            shutil.copytree, site.disk.directory, work / f"{site.name}.kept", symlinks=True
        )


async def _start(site: Site) -> None:
    if site.server.ours:
        await site.server.start()
        await site.server.cluster.create_database(site.name)
    site.node.start()


async def _stop(sites: Sites) -> None:
    """End all services; that of ``parley up`` gets the time to end its Postgres."""
    await asyncio.gather(
        *(
            service.stop(END_S if site.is_up else 0)
            for site in sites.all
            for service in site.services
        )
    )
    for site in sites.all:
        if site.is_up:
            site.server.send(signal.SIGKILL)


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
        async with asyncio.timeout(READY_S):
            while not await sites.lay(wire):
                await _CLOCK.sleep(0.2)


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    """Return whether 200 is the answer of a URL."""
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=2)) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
