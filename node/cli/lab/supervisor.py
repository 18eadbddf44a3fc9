"""A lab: several full nodes on this host, each a process with a database of its own.

::

    Lab ── PrivateCluster ── one database per node
     ├──── Namespaces + emulator        (or loopback addresses)
     └──── a, b, c, …                   one process each, in a session of its own

Every step of the set-up pushes its undoing on one stack, so that a stop undoes exactly what was set
up, in reverse order, however far it got. If this process is killed outright, the kernel ends the
nodes, the emulator and the database; the next lab removes the namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

from node.cli.lab import loopback, nodes, wan
from node.cli.lab.namespaces import Namespaces, NamespaceSite
from node.cli.lab.nodes import CommandFactory, LabNode, NodePlan, node_command
from node.cli.lab.wan import WanSettings
from node.execution import process
from node.execution.process import RunningProcess
from node.model.errors import DatabaseUnavailable, NotFound
from node.postgres import PrivateCluster, ServerBinaries, locate

HTTP_PORT = 8642
READY_S = 60.0
GRACE_S = 15.0
"""The time that a node gets to finish or mark its runs when the lab stops."""

_CONNECTIONS_PER_NODE = 30

_Outcome = TypeVar("_Outcome")


def _silent(*_: str) -> None:
    """Ignore the call: the default of the callbacks."""


class Lab:
    """``count`` nodes, on loopback addresses or, with ``wan_settings``, in namespaces.

    They speak plain HTTP to each other, or TLS with ``tls``.
    ``progress`` gets short texts about the progress of the start; ``died`` gets a name and a
    sentence when a node, the database or the emulator ends unexpectedly. The others continue.
    """

    def __init__(
        self,
        count: int,
        wan_settings: WanSettings | None = None,
        *,
        tls: bool = False,
        progress: Callable[[str], None] = _silent,
        died: Callable[[str, str], None] = _silent,
        command: CommandFactory = node_command,
        binaries: ServerBinaries | None = None,
        ready_s: float = READY_S,
    ) -> None:
        """Describe the lab; nothing is started yet."""
        self.nodes: list[LabNode] = []
        self.wan_report: dict[str, Any] | None = None
        self._names = list(itertools.islice(nodes.names(), count))
        self._wan_settings = wan_settings
        self._scheme = "https" if tls else "http"
        self._progress = progress
        self._died = died
        self._command = command
        self._binaries = binaries
        self._ready_s = ready_s
        self._plans: dict[str, NodePlan] = {}
        self._running: dict[str, RunningProcess] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._undo = contextlib.AsyncExitStack()
        self._stopping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start the lab; if that fails, stop what has been started."""
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the lab."""
        await self.stop()

    async def start(self) -> None:
        """Start everything; return when every node knows every other.

        :raises HostError: this host cannot run a lab, or a node did not become ready; call
            :meth:`stop` even then.
        """
        # First in, last out: directory, addresses, database, nodes.
        if settings := nodes.settings_given(os.environ):
            self._progress(f"every node gets {', '.join(settings)} from this environment")
        work = _work_directory()
        self._undo.callback(shutil.rmtree, work, ignore_errors=True)
        plans = await self._addresses(work)
        cluster = await self._database(work / "postgres")
        self._watch("database", cluster.wait())
        self._undo.push_async_callback(self._end_nodes)
        for plan in plans:
            await cluster.create_database(plan.name)
            self._plans[plan.name] = _plan_with_dsn(plan, cluster.dsn(plan.name))
        self.nodes = await _gather(self._start_node(plan) for plan in self._plans.values())
        pairs = itertools.permutations(self.nodes, 2)
        await _gather(nodes.introduce(one, other) for one, other in pairs)
        self._progress("every node knows every other")

    async def stop(self) -> None:
        """End everything and leave nothing behind; repeatable, even while it is under way."""
        if self._stopping is None:
            for watch in self._watches.values():
                watch.cancel()
            self._stopping = asyncio.create_task(self._undo.aclose(), name="stop lab")
        await asyncio.shield(self._stopping)

    def pid(self, name: str) -> int:
        """Return the process id of a node."""
        return self._running[name].pid

    async def kill(self, name: str) -> None:
        """Kill a node outright, like a power failure; ``died`` is not called."""
        running = self._forget(name)
        running.send(signal.SIGKILL)
        await running.wait()

    async def restart(self, name: str) -> LabNode:
        """Restart a node, ending it first if it still runs; same address, database and state.

        :raises HostError: it did not become ready.
        """
        await self._forget(name).end(GRACE_S)
        restarted = await self._start_node(self._plans[name])
        self.nodes = [restarted if node.name == name else node for node in self.nodes]
        return restarted

    async def restart_ended(self) -> None:
        """Restart the nodes that have ended, for whatever reason.

        :raises HostError: one did not become ready.
        """
        ended = [name for name, running in self._running.items() if running.ended]
        await _gather(self.restart(name) for name in ended)

    async def _addresses(self, work: Path) -> list[NodePlan]:
        if self._wan_settings is None:
            claim = loopback.claim(len(self._names))
            self._undo.callback(claim.release)
            return [
                self._plan(work, name, address, claim.port, address)
                for name, address in zip(self._names, claim.addresses, strict=True)
            ]
        namespaces = Namespaces(self._names)
        # Not in a thread: a cancelled start must not go on creating namespaces.
        sites = namespaces.create()
        self._undo.callback(namespaces.remove)
        await self._start_wan(sites, self._wan_settings)
        self._progress(f"{len(sites)} network namespaces joined by a WAN")
        return [
            self._plan(work, name, site.management, HTTP_PORT, site.address, site.namespace)
            for name, site in zip(self._names, sites, strict=True)
        ]

    def _plan(
        self,
        work: Path,
        name: str,
        host: str,
        port: int,
        address: str,
        namespace: str | None = None,
    ) -> NodePlan:
        listen, state, log = f"{host}:{port}", work / name, work / f"{name}.log"
        url = f"{self._scheme}://{listen}"
        return NodePlan(name, listen, url, address, "", state, log, namespace)

    async def _start_wan(self, sites: list[NamespaceSite], settings: WanSettings) -> None:
        words = wan.arguments([site.site for site in sites], settings)
        emulator = await process.start(
            [sys.executable, "-m", "node.cli.lab.wan", *words], env=nodes.module_environment()
        )
        self._undo.push_async_callback(self._end_wan, emulator)
        await emulator.wait_for_output(wan.READY)
        self._watch("wan", emulator.wait())

    async def _end_wan(self, emulator: RunningProcess) -> None:
        await emulator.end(GRACE_S)
        printed = (await emulator.wait()).stdout.partition(wan.READY)[2]
        if printed:
            self.wan_report = json.loads(printed)

    async def _database(self, directory: Path) -> PrivateCluster:
        binaries = self._binaries or locate()
        if not isinstance(binaries, ServerBinaries):
            raise DatabaseUnavailable(
                "a lab creates its own databases and cannot use a server's address"
            )
        connections_max = max(300, _CONNECTIONS_PER_NODE * len(self._names))
        cluster = await PrivateCluster.create(directory, binaries, connections_max=connections_max)
        self._undo.push_async_callback(cluster.stop)
        await cluster.start()
        self._progress(f"Postgres {binaries.major} started")
        return cluster

    async def _start_node(self, plan: NodePlan) -> LabNode:
        running = await nodes.start(plan, self._command)
        self._running[plan.name] = running
        node = await nodes.ready(plan, running, self._ready_s)
        self._watch(plan.name, running.wait())
        self._progress(f"node {plan.name} is ready at {plan.url}")
        return node

    async def _end_nodes(self) -> None:
        await _gather(running.end(GRACE_S) for running in self._running.values())

    def _forget(self, name: str) -> RunningProcess:
        """Return the node's process, and stop reporting its end."""
        if name not in self._running:
            raise NotFound(f"the lab has no node {name}; it has {', '.join(self._plans)}")
        if watch := self._watches.pop(name, None):
            watch.cancel()
        return self._running[name]

    def _watch(self, name: str, end: Awaitable[object]) -> None:
        async def watch() -> None:
            await end
            plan = self._plans.get(name)
            log = f". Its log ends:\n{process.tail_of(plan.log)}" if plan else ""
            self._died(name, f"{name} has ended unexpectedly{log}")

        self._watches[name] = asyncio.create_task(watch(), name=f"watch {name}")


async def serve(lab: Lab, ready: Callable[[Lab], None]) -> None:
    """Start a lab, call ``ready``, keep it until INT, TERM or HUP, and leave nothing behind.

    A signal during the start aborts it; further signals during the stop are ignored. Runs in the
    main thread, whose signal handlers it replaces meanwhile.

    :raises HostError: the lab could not be started; all of it has been undone.
    """
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, stop_requested.set)
    try:
        async with _task_until(stop_requested) as stop:
            starting = asyncio.create_task(lab.start(), name="start lab")
            await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                ready(lab)
                await stop
            else:
                starting.cancel()
                await asyncio.wait({starting})
    finally:
        await lab.stop()
        for number in signals:
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _task_until(event: asyncio.Event) -> AsyncIterator[asyncio.Task[bool]]:
    """Yield a task that ends with the event, or with the block."""
    task = asyncio.create_task(event.wait())
    try:
        yield task
    finally:
        task.cancel()


def _work_directory() -> Path:
    """Return a new directory that the database's account may traverse, but not list."""
    work = Path(tempfile.mkdtemp(prefix=f"parley-lab-{os.getpid()}-"))
    work.chmod(0o711)
    return work


def _plan_with_dsn(plan: NodePlan, dsn: str) -> NodePlan:
    return dataclasses.replace(plan, dsn=dsn)


async def _gather(coroutines: Iterable[Coroutine[Any, Any, _Outcome]]) -> list[_Outcome]:
    """Run coroutines concurrently and return their outcomes; the first fault cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in coroutines]
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from None
    return [task.result() for task in tasks]
