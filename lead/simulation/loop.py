"""An event loop in virtual time: what waits costs nothing, and the same program runs the same way.

There is no input or output. When nothing is ready, time jumps to the next timer, so that
``asyncio.sleep``, ``timeout``, ``wait_for`` and ``gather`` work as ever, only at once. Timers of
the same instant fire in the order in which they were set. Time is counted in whole microseconds.

Every task belongs to the :class:`Process` in whose context it was made, and so do the tasks it
makes itself. A process can be killed, at once or after so many more of its steps: every await at
which a program can be interrupted is the end of one step.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

from node.model.times import SECOND

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
AnyCoroutine = Generator[Any, None, T] | Coroutine[Any, Any, T]

STANDSTILL_STEPS = 200_000
"""So many steps without time passing are no program but an endless loop."""
_PRUNE_FROM = 32


class NothingLeftToDo(RuntimeError):
    """Whoever waits waits for ever: no step is ready and no timer is set."""


class TimeStandsStill(RuntimeError):
    """Something goes round in circles without ever waiting."""


class Process:
    """What dies together: the tasks of one start of one service."""

    def __init__(self, name: str) -> None:
        """Alive, with no tasks yet."""
        self.name = name
        self.alive = True
        self.fuse: int | None = None
        """After how many steps it dies; None: not by itself."""
        self._on_death: Callable[[], None] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = _PRUNE_FROM

    def start(self, work: AnyCoroutine[T], name: str | None = None) -> asyncio.Task[T]:
        """Run something in this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return asyncio.get_running_loop().create_task(work, name=name, context=context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """One more task that dies with it."""
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = [kept for kept in self._tasks if not kept.done()]
            self._prune_at = max(_PRUNE_FROM, 2 * len(self._tasks))

    def crash_after_steps(self, steps: int, on_death: Callable[[], None]) -> None:
        """Die after so many more steps: before the one with this number, counted from 0."""
        self.fuse = steps
        self._on_death = on_death

    @property
    def will_crash(self) -> bool:
        """Whether it will die soon."""
        return self.fuse is not None

    def cancel_crash(self) -> None:
        """Put the fuse out."""
        self.fuse = None

    def step(self) -> None:
        """The fuse burns by one step; at its end the process dies before that step."""
        if self.fuse:
            self.fuse -= 1
        elif self._on_death is not None:
            self.fuse = None
            self._on_death()

    def kill(self) -> None:
        """End every task where it stands.

        Whoever kills a process first takes its database and its network away: what its tasks do to
        tidy up behind themselves then reaches nobody, as if it had not been done.
        """
        self.alive = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""The process that the present task belongs to; none for the world's own tasks."""


class _Step:
    """Something to be done, now or later: what asyncio calls a handle.

    Not derived from asyncio's own, which takes twice as long to make; a world has millions.
    """

    __slots__ = ("_at", "args", "callback", "context", "gone")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        at: int,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.gone = False
        self._at = at

    def when(self) -> float:
        """At which second."""
        return self._at / SECOND

    def cancel(self) -> None:
        """It is not done any more; a timer stays where it is and is passed over."""
        self.gone = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.gone


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs what is ready, then jumps to the next timer; instants are microseconds from 0."""

    def __init__(self) -> None:
        """At instant 0, with nothing to do."""
        self.now = 0
        self.faults: list[str] = []
        self._ready: deque[_Step] = deque()
        self._timers: list[tuple[int, int, _Step]] = []
        self._order = 0
        self._stopping = False
        self._closed = False
        self._running = False
        self._since = 0

    def time(self) -> float:
        """Seconds since its start."""
        return self.now / SECOND

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Do it in the next step."""
        step = _Step(callback, args, context, self.now)
        self._ready.append(step)
        return step  # type: ignore[return-value] # all of a handle that anybody uses

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Do it at a time in seconds."""
        return self.call_in(round(when * SECOND) - self.now, callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Do it after some seconds."""
        return self.call_in(round(delay * SECOND), callback, *args, context=context)

    def call_in(
        self,
        delay: int,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Do it after some microseconds."""
        at = self.now + delay if delay > 0 else self.now
        timer = _Step(callback, args, context, at)
        self._order += 1
        heapq.heappush(self._timers, (at, self._order, timer))
        return timer  # type: ignore[return-value] # the same

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: AnyCoroutine[T], *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """A task, in the process of who makes it."""
        task: asyncio.Task[T] = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.adopt(task)
        return task

    def run_until_complete(self, future: Any) -> Any:
        """Run until it is done; its result.

        :raises NothingLeftToDo: it never will be.
        :raises TimeStandsStill: something goes round in circles.
        """
        wanted = asyncio.ensure_future(future, loop=self)
        wanted.add_done_callback(lambda _: self.stop())
        self.run_forever()
        if not wanted.done():
            raise NothingLeftToDo("stopped before it was done")
        return wanted.result()

    def run_forever(self) -> None:
        """Run until stopped."""
        self._stopping = False
        before = events._get_running_loop()  # noqa: SLF001 - documented for writers of event loops
        self._running = True
        events._set_running_loop(self)  # noqa: SLF001 - the same
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._running = False
            events._set_running_loop(before)  # noqa: SLF001 - the same

    def _turn(self) -> None:
        """Do what is ready, then let time pass to the next timer."""
        ready = self._ready
        while ready and not self._stopping:
            step = ready.popleft()
            if step.gone:
                continue
            process = step.context.get(PROCESS)
            if process is not None and process.fuse is not None and process.alive:
                process.step()
            try:
                step.context.run(step.callback, *step.args)
            except Exception as error:  # noqa: BLE001 - what fails is kept, as by any event loop
                self.call_exception_handler({"message": "a callback failed", "exception": error})
            self._since += 1
            if self._since > STANDSTILL_STEPS:
                self._since = 0
                who = getattr(step.callback, "__self__", step.callback)
                where = f"at {self.time():.6f} s: {who!r}"
                raise TimeStandsStill(f"no time passes any more {where}")
        if not self._stopping:
            self._jump()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].gone:
            heapq.heappop(timers)
        if not timers:
            raise NothingLeftToDo(f"nothing will ever happen again after {self.time():.6f} s")
        if timers[0][0] > self.now:
            self.now = timers[0][0]
            self._since = 0
        while timers and timers[0][0] <= self.now:
            self._ready.append(heapq.heappop(timers)[2])

    def stop(self) -> None:
        """End :meth:`run_forever` after the present step."""
        self._stopping = True

    def is_running(self) -> bool:
        """Whether it runs."""
        return self._running

    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def get_debug(self) -> bool:
        """Never: traces would make every handle slow."""
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's signature
        """Nothing to set."""

    async def shutdown_asyncgens(self) -> None:
        """None are kept."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """There is none."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody caught is kept in ``faults``: in a simulation it is always a finding."""
        error = context.get("exception")
        self.faults.append(f"{context.get('message')}: {error!r}")


def run(work: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run ``work(loop)`` in a loop of its own, to its end."""
    # The methods that are missing are those of input and output: there is none.
    loop = cast("Callable[[], VirtualLoop]", VirtualLoop)()
    try:
        result: T = loop.run_until_complete(work(loop))
        return result
    finally:
        loop.close()
