"""Hosts whose node and lead are two processes that can die one without the other.

The launcher is the real one. Only the programs that it starts are virtual: they take their time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from copy import deepcopy
from typing import Any
from unittest import mock
from uuid import UUID

from lead.simulation.history import History
from lead.simulation.loop import PROCESS, Process
from lead.simulation.memory.database import MemoryDatabase
from lead.simulation.memory.tables import Tables
from lead.simulation.node import Host, SimulatedNode
from node.clock import LatchedEvent
from node.execution import leftovers, process
from node.execution.launcher import Launcher, LaunchOutcome
from node.execution.process import FinishedProcess
from node.housekeeping import PeriodicJob
from node.model import times
from node.model.ids import Generation
from node.plugins.contracts import PartContext
from node.store.runs import DueRun

CONFIRM_S = 60.0
_NO_PROCESS = 2**22 + 1
"""A number that no process of this host has."""


class SharedDatabase(MemoryDatabase):
    """A database that outlives the processes which use it, each through an object of its own.

    A process that dies leaves its transactions open; they are rolled back as its tasks end.
    """

    def sibling(self) -> SharedDatabase:
        """Return the same database as another process opens it."""
        other = SharedDatabase(self.point)
        other.tables, other._alone, other._listeners = self.tables, self._alone, self._listeners
        other.generation, other.fresh = self.generation, self.fresh
        return other

    @classmethod
    def restored(cls, tables: Tables, now: int) -> SharedDatabase:
        """Return a database with the tables of a backup, as the next start finds it."""
        made = cls()
        made.tables, made.fresh = tables, True
        made.generation = Generation(UUID(int=now))
        for row in tables.plannings.rows.values():
            tables.plannings.change(row, lease_epoch=max(row.lease_epoch, now))
        tables.journal.commit()
        return made

    def survivor(self) -> SharedDatabase:
        """Close this object for good; return the database for the next start."""
        self._closed = True
        return self.sibling()

    def finish(self) -> None:
        """Commit; a process that is dead commits nothing."""
        if self._closed:
            self.tables.journal.roll_back()
        self.check()
        super().finish()


class _Node(SimulatedNode):
    """A node that also asks leads which tasks are open, as real ones do."""

    def _periodic_jobs(self) -> tuple[PeriodicJob, ...]:
        confirm = PeriodicJob("confirm tasks", CONFIRM_S, self.confirmer.run_once)
        return (*super()._periodic_jobs(), confirm)


class _Program:
    """A program that runs for some virtual time, from its release on."""

    pid = _NO_PROCESS
    started_ticks = 0

    def __init__(self, argv: Sequence[str], now: int, *, held: bool) -> None:
        self.started_at = now
        self._released = asyncio.Event()
        self._over = asyncio.Event()
        self._life = asyncio.create_task(self._live(float(argv[-1]) if argv[0] == "sleep" else 1))
        if not held:
            self._released.set()

    async def _live(self, seconds: float) -> FinishedProcess:
        await self._released.wait()
        begun, ended = _MEASURING.get()
        begun()
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return FinishedProcess(0, b"", b"")
        finally:
            ended()
        return FinishedProcess(-15, b"", b"")

    def release(self, now: Callable[[], int], at: int, _latest: int) -> None:
        asyncio.get_running_loop().call_later(max(0, at - now()) / times.SECOND, self._begin, now)

    def _begin(self, now: Callable[[], int]) -> None:
        self.started_at = now()
        self._released.set()

    async def begun(self, _now: Callable[[], int], timeout_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._released.wait()
        return self._released.is_set()

    @property
    def ended(self) -> bool:
        return self._life.done()

    async def wait(self) -> FinishedProcess:
        return await asyncio.shield(self._life)

    async def end(self, _grace_s: float) -> None:
        self._over.set()
        if self._released.is_set():
            await asyncio.wait({self._life})
        else:
            self._life.cancel()

    async def records(self) -> AsyncIterator[bytes]:
        for record in list[bytes]():
            yield record


_MEASURING: ContextVar[tuple[Callable[[], None], Callable[[], None]]] = ContextVar("measuring")


async def _start(
    argv: Sequence[str], *, now: Callable[[], int], held: bool, **_others: Any
) -> _Program:
    return _Program(argv, now(), held=held)


class _Unobserved:
    """Stands for the observation of a host: a simulated one has no processors or interfaces."""

    versions = None

    def observe(self, *_of: Any) -> _Unobserved:
        return self

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    async def circumstances(self, *_of: Any) -> None:
        return None


async def _unchecked(
    _test: Any, _tool: Any, context: PartContext, _patience_s: float
) -> PartContext:
    """Return the part as it is: the names of simulated hosts cannot be looked up."""
    return context


class _Launcher(Launcher):
    """The real launcher; what it measures is recorded."""

    def __init__(self, *args: Any, node: str, history: History, **options: Any) -> None:
        super().__init__(*args, **options)
        self._targets.checked = _unchecked  # type: ignore[assignment, method-assign] # no look-ups
        self._observer = _Unobserved()  # type: ignore[assignment] # all that is asked of one
        self._host, self._history = node, history

    async def _measure(self, run: DueRun, cancelled: LatchedEvent) -> LaunchOutcome:
        began = self._clock.now()
        test = self._capabilities.tests[run.test]
        scheduling_class = test.scheduling_class(self._capabilities.spec(test, run.spec))

        def begins() -> None:
            self._history.begins(self._host, run, scheduling_class)

        def ends() -> None:
            self._history.ends(self._host, run, self._clock.now() - began)

        _MEASURING.set((begins, ends))
        return await super()._measure(run, cancelled)


class TwoProcessHost(Host):
    """A host with a process for the node, and one for the lead."""

    node_type = _Node
    launcher_type = _Launcher

    def __init__(self, *args: Any, **options: Any) -> None:
        """Create a host that is down."""
        super().__init__(*args, **options)
        self.database: SharedDatabase = SharedDatabase(self.database.point)
        self._database_of_lead = self.database.sibling()
        self.lead_process = Process(f"{self.name} lead")
        self.lead_process.alive = False

    async def _start(self) -> None:
        node = self.build_node(self.database)
        if self.broken is not None:
            self.broken(node, self.build_lead(node))
        await node.start()
        self.service = node
        self.up_since = self._loop.now

    def boot(self) -> asyncio.Task[None]:
        """Start node and lead; the task ends when other nodes can reach the node, or it died."""
        started = super().boot()
        if not self.lead_process.alive:
            self.boot_lead()
        return asyncio.create_task(_ended(started))

    def boot_lead(self) -> None:
        """Start the lead, as after a crash."""
        self.starts += 1
        self.lead_process = Process(f"{self.name} lead")
        self._database_of_lead = self._database_of_lead.survivor()
        self.lead_process.start(self._lead(), f"lead of {self.name}")

    async def _lead(self) -> None:
        """Plan beside the node, as ``parley-lead`` does."""
        node = self.build_node(self._database_of_lead)
        node.hold_served = self._hold_served  # type: ignore[method-assign] # the node's loop
        self.lead = lead = self.build_lead(node)
        if self.broken is not None:
            self.broken(node, lead)
        while self.identity not in {known.identity for known in node.directory.all}:
            await node.directory.refresh()
            await self.clock.sleep(0.2)
        await node.campaigns.refresh()
        listening = asyncio.create_task(node.listen(lead.on_notice), name="listen")
        await lead.start()
        await listening

    def _hold_served(self) -> None:
        if self.service is not None:
            self.service.hold_served()

    def crash_process(self, dying: Process) -> Callable[[], Any]:
        """Kill one process of this host, as ``kill -9`` does; return what starts it again."""
        if dying is self.lead_process:
            self._database_of_lead = self._database_of_lead.survivor()
            dying.kill()
            return self.boot_lead
        super().crash()
        return self.boot

    def back_up(self) -> Tables:
        """Return a copy of the tables."""
        return deepcopy(self.database.tables)

    def restore(self, tables: Tables) -> None:
        """Kill both processes, put back the tables of a backup, and start again."""
        self.crash()
        self.database = SharedDatabase.restored(tables, self.clock.now())
        self._database_of_lead = self.database.sibling()
        self.boot()

    def crash(self) -> None:
        """Kill both processes."""
        super().crash()
        self._database_of_lead = self._database_of_lead.survivor()
        self.lead_process.kill()


async def _ended(started: asyncio.Task[None]) -> None:
    await asyncio.wait({started})


def dying_here() -> Process | None:
    """Return the living process that runs now; None in the world itself and in the dead."""
    running = PROCESS.get()
    return running if running is not None and running.alive else None


@contextlib.contextmanager
def virtual_programs() -> Iterator[None]:
    """Let launchers start virtual programs, and search for none that are left over."""
    with (
        mock.patch.object(process, "start", _start),
        mock.patch.object(leftovers, "kill_recorded"),
        mock.patch.object(leftovers, "kill_orphans", return_value=0),
    ):
        yield
