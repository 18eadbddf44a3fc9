"""Hosts whose node and lead are two processes that can die one without the other.

The launcher is the real one. Only the programs that it starts are virtual: they take their time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any
from unittest import mock

from lead.simulation.clock import START
from lead.simulation.history import History
from lead.simulation.loop import PROCESS, Process
from lead.simulation.node import Host, LeadProcess, SimulatedNode
from node.execution import process
from node.execution.launcher import Launcher, LaunchOutcome
from node.execution.process import FinishedProcess
from node.model import times
from node.plugins.contracts import PartContext
from node.runtime.clock import LatchedEvent
from node.runtime.housekeeping import PeriodicJob
from node.store.runs import DueRun

CONFIRM_S = 60.0
_NO_PROCESS = 2**22 + 1
"""A number that no process of this host has."""


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
    _test: Any, _tool: Any, context: PartContext, _strangers: Any, _patience_s: float
) -> PartContext:
    """Return the part as it is: the names of simulated hosts cannot be looked up."""
    return context


class _Launcher(Launcher):
    """The real launcher; what it measures is recorded."""

    def __init__(self, *args: Any, node: str, history: History, **options: Any) -> None:
        super().__init__(*args, **options)
        self._targets.checked_part = _unchecked  # type: ignore[assignment, method-assign] # no look-ups
        self._observer = _Unobserved()  # type: ignore[assignment] # all that is asked of one
        self._host, self._history = node, history

    def _end_recorded(self, pid: int, ticks: int) -> None:
        """End nothing: this host has no programs of a simulated one."""

    def _end_orphans(self) -> None:
        """End nothing."""

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
        self.leading = LeadProcess(self, "lead")
        self.beside = [self.leading]

    async def _begin(self) -> None:
        node = self.build_node(self.database)
        if self.broken is not None:
            self.broken(node, self.build_lead(node))
        await node.start()
        self._serve(node)

    def boot(self) -> asyncio.Task[None]:
        """Start node and lead; the task ends when other nodes can reach the node, or it died."""
        return asyncio.create_task(_ended(super().boot()))

    def crash_process(self, dying: Process) -> Callable[[], Any]:
        """Kill one process of this host, as ``kill -9`` does; return what starts it again."""
        if dying is self.leading.process:
            self.leading.crash()
            return self.leading.boot
        self.crash_service()
        return self.boot

    def back_up(self) -> None:
        """Keep a copy of all rows."""
        self.store.back_up()
        self._dumped_at = START + self._loop.now

    def forgot(self, since: int | None) -> None:
        """Note that the database has just lost what it had since an instant, or one run."""
        now = START + self._loop.now
        self._history.restored.append((self.name, now if since is None else since, now))

    def restore(self) -> None:
        """Kill both processes, put back the rows of the backup, and start again."""
        self.crash()
        self.store.restore()
        self.forgot(since=self._dumped_at)
        self.database = self.database.restored_database(self.clock.now())
        self.boot()


async def _ended(started: asyncio.Task[None]) -> None:
    await asyncio.wait({started})


def dying_here() -> Process | None:
    """Return the living process that runs now; None in the world itself and in the dead."""
    running = PROCESS.get()
    return running if running is not None and running.alive else None


@contextlib.contextmanager
def virtual_programs() -> Iterator[None]:
    """Let launchers start virtual programs."""
    with mock.patch.object(process, "start", _start):
        yield
