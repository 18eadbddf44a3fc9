"""An event loop in virtual time: waiting takes no real time, and every execution is repeatable.

The loop does no input or output. When no step is ready, time jumps to the next timer, so that
``asyncio.sleep``, ``timeout``, ``wait_for`` and ``gather`` work as usual, without delay. Timers of
the same instant fire in the order in which they were set. Time is counted in whole microseconds.

Every task belongs to the :class:`Process` in whose context it was created, and so do the tasks it
creates. A process can be killed at once or after a number of further steps; a step ends at each
await that can suspend the program.
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
"""Maximum number of steps without time passing before the loop assumes an endless loop."""
_PRUNE_FROM = 32


class NothingLeftToDo(RuntimeError):
    """Everything waits forever: no step is ready and no timer is set."""


class TimeStandsStill(RuntimeError):
    """The program keeps running steps without ever waiting."""


class Process:
    """A unit of failure: the tasks of one start of one service, which die together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.fuse: int | None = None
        """The number of steps after which the process dies; None if it is not set to die."""
        self._on_death: Callable[[], None] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = _PRUNE_FROM

    def start(self, work: AnyCoroutine[T], name: str | None = None) -> asyncio.Task[T]:
        """Run ``work`` as a task of this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return asyncio.get_running_loop().create_task(work, name=name, context=context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Add a task that dies with the process."""
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._prune_at = max(_PRUNE_FROM, 2 * len(self._tasks))

    def crash_after_steps(self, steps: int, on_death: Callable[[], None]) -> None:
        """Die before the step with this number, counted from 0; then call ``on_death``."""
        self.fuse = steps
        self._on_death = on_death

    @property
    def will_crash(self) -> bool:
        """Return whether the process is set to die."""
        return self.fuse is not None

    def cancel_crash(self) -> None:
        """Do not die after all."""
        self.fuse = None

    def step(self) -> None:
        """Count one step; when the count reaches its end the process dies before that step."""
        if self.fuse:
            self.fuse -= 1
        elif self._on_death is not None:
            self.fuse = None
            self._on_death()

    def kill(self) -> None:
        """Cancel every task of the process.

        The caller must take away the database and the network of the process first: what the
        cancelled tasks do to clean up then has no effect, as if the process had ended abruptly.
        """
        self.alive = False
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""The process of the current task; None for the tasks of the world itself."""


class _Step:
    """A callback to run now or later: asyncio's handle.

    Not derived from ``asyncio.Handle``, which takes twice as long to create; a world has millions.
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
        """Return the time of the step in seconds."""
        return self._at / SECOND

    def cancel(self) -> None:
        """Do not run the callback; a timer stays in the heap and is skipped."""
        self.gone = True

    def cancelled(self) -> bool:
        """Return whether the step was cancelled."""
        return self.gone


class VirtualLoop(asyncio.AbstractEventLoop):
    """An event loop that runs what is ready, then jumps to the next timer.

    Instants are microseconds from 0.
    """

    def __init__(self) -> None:
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
        """Return the seconds since the start."""
        return self.now / SECOND

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run the callback in the next step."""
        step = _Step(callback, args, context, self.now)
        self._ready.append(step)
        return step  # type: ignore[return-value] # has all methods of a handle that asyncio uses

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback at a time in seconds."""
        return self.call_in(round(when * SECOND) - self.now, callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback after some seconds."""
        return self.call_in(round(delay * SECOND), callback, *args, context=context)

    def call_in(
        self,
        delay: int,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback after some microseconds."""
        at = self.now + delay if delay > 0 else self.now
        timer = _Step(callback, args, context, at)
        self._order += 1
        heapq.heappush(self._timers, (at, self._order, timer))
        return timer  # type: ignore[return-value] # the same

    def create_future(self) -> asyncio.Future[Any]:
        """Return a new future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: AnyCoroutine[T], *, name: object = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Create a task in the process of its creator."""
        task: asyncio.Task[T] = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.adopt(task)
        return task

    def run_until_complete(self, future: Any) -> Any:
        """Run until ``future`` is done and return its result.

        :raises NothingLeftToDo: it will never be done.
        :raises TimeStandsStill: the program runs without ever waiting.
        """
        wanted = asyncio.ensure_future(future, loop=self)
        wanted.add_done_callback(lambda _: self.stop())
        self.run_forever()
        if not wanted.done():
            raise NothingLeftToDo("the loop was stopped before the future was done")
        return wanted.result()

    def run_forever(self) -> None:
        """Run until the loop is stopped."""
        self._stopping = False
        outer = events._get_running_loop()  # noqa: SLF001 - documented for writers of event loops
        self._running = True
        events._set_running_loop(self)  # noqa: SLF001 - the same
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._running = False
            events._set_running_loop(outer)  # noqa: SLF001 - the same

    def _turn(self) -> None:
        """Run what is ready, then let time pass to the next timer."""
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
            except Exception as error:  # noqa: BLE001 - recorded, as any event loop does
                self.call_exception_handler({"message": "a callback failed", "exception": error})
            self._since += 1
            if self._since > STANDSTILL_STEPS:
                self._since = 0
                who = getattr(step.callback, "__self__", step.callback)
                where = f"at {self.time():.6f} s: {who!r}"
                raise TimeStandsStill(f"too many steps without time passing {where}")
        if not self._stopping:
            self._jump()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].gone:
            heapq.heappop(timers)
        if not timers:
            raise NothingLeftToDo(f"no step and no timer is left after {self.time():.6f} s")
        if timers[0][0] > self.now:
            self.now = timers[0][0]
            self._since = 0
        while timers and timers[0][0] <= self.now:
            self._ready.append(heapq.heappop(timers)[2])

    def stop(self) -> None:
        """End :meth:`run_forever` after the current step."""
        self._stopping = True

    def is_running(self) -> bool:
        """Return whether the loop is running."""
        return self._running

    def is_closed(self) -> bool:
        """Return whether the loop was closed."""
        return self._closed

    def close(self) -> None:
        """Drop all steps and timers."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def get_debug(self) -> bool:
        """Return False: debug traces would slow down every handle."""
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's signature
        """Ignore the setting: there is no debug mode."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: the loop keeps no asynchronous generators."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Do nothing: the loop has no executor."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an uncaught error in ``faults``: in a simulation it is always a finding."""
        error = context.get("exception")
        self.faults.append(f"{context.get('message')}: {error!r}")


def run(work: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run ``work(loop)`` to its end in a new loop and return its result."""
    # VirtualLoop lacks the methods for input and output, so it is abstract to the type checker.
    loop = cast("Callable[[], VirtualLoop]", VirtualLoop)()
    try:
        result: T = loop.run_until_complete(work(loop))
        return result
    finally:
        loop.close()
