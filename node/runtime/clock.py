"""The clock: the only module that reads the time or sleeps. All others take a :class:`Clock`.

Because nothing else reads the time, tests and simulations move it, and what was decided can be
repeated. There are three kinds of time. *Wall time* (:meth:`Clock.now`) is what hosts agree on, and
somebody may set it. *Monotonic time* is never set: durations and pauses are measured by it. *Time
since boot* counts on while a program is down, and shows at the next start how far the wall clock
may have moved.

The wall clock is compared with the monotonic one (:class:`StepWatcher`): where the two differ, it
was set. A clock that was set far, or is far from what the database knew, is doubted for a while,
since giving up runs by a wrong clock cannot be undone, and waiting can. Nothing here corrects a
clock.
"""

from __future__ import annotations

import ctypes
import time
from binascii import crc32
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from node.model.times import MINUTE, SECOND

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    """The time for a service."""

    def now(self) -> int:
        """Return the current instant, in microseconds since 1970."""
        ...

    def monotonic(self) -> int:
        """Return microseconds of a clock that is never set; only differences mean anything.

        :meth:`sleep` waits by this clock.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; zero or less only yields to other tasks."""
        ...

    async def sleep_until(self, instant: int) -> None:
        """Wait until an instant (µs since 1970); return at once if it has passed."""
        ...

    def synchronised(self) -> bool:
        """Return whether it is known to be synchronised, and was not set since."""
        ...

    def uptime(self) -> Uptime | None:
        """Return for how long the host runs since it booted; None if that is not known."""
        ...


@dataclass(frozen=True)
class Uptime:
    """The time since a boot in microseconds, with the time asleep, and which boot it was.

    No setting of the clock changes it, and a program that ends takes nothing of it along.
    """

    boot: str
    elapsed: int


class SystemClock:
    """The host's clock."""

    def now(self) -> int:
        """Return the current instant, in microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic(self) -> int:
        """Return microseconds of the host's monotonic clock."""
        return time.monotonic_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; zero or less only yields to other tasks."""
        import asyncio  # slow to load, and commands that only look at the time do not need it

        await asyncio.sleep(max(0.0, seconds))

    async def sleep_until(self, instant: int) -> None:
        """Wait until an instant; a step of the clock is noticed within a minute."""
        import asyncio

        while (remaining := instant - self.now()) > 0:
            await asyncio.sleep(min(remaining / SECOND, 60.0))

    def synchronised(self) -> bool:
        """Return whether the kernel reports the clock as synchronised; setting it ends that."""
        return synchronisation().synchronised is True

    def uptime(self) -> Uptime | None:
        """Return the time since boot (CLOCK_BOOTTIME) and the id of the boot; None if unknown."""
        boot = identity()
        return Uptime(boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000) if boot else None


class BlockingClock(SystemClock):
    """The host's clock for a program without an event loop: who sleeps blocks its thread."""

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        time.sleep(max(0.0, seconds))  # noqa: ASYNC251 - there is no loop that it could block


STEP_MIN = SECOND // 2
"""A clock that was set by less disturbs no agreement between nodes."""
DOUBT = 60 * SECOND
"""Least time for which a clock that was set forward by more is doubted, if nothing confirms it."""
ABSENCE_MAX = 2 * MINUTE
"""More than the time between two notes of the clock, so that a quick restart casts no doubt."""


class StepWatcher:
    """Notices that a clock was set: that it moved by another time than its monotonic one.

    And says for how long it is to be doubted. A clock that is ahead by an hour makes everything of
    that hour seem to be over, and by one that is behind what truly is over seems to have been ended
    before its start. So nothing is given up, ended, deleted, begun, or taken back by a clock in
    doubt. That is one that was set forward while this process ran, one that was set far back, and,
    at a start, one that is far from what the database knew last (:meth:`begin`): either the host
    was off for so long, or its clock is wrong, or it was before, and one reading does not tell.

    Doubt ends when the clock is set right, when it is synchronised, when somebody confirms it
    (:meth:`confirm`), or at the latest after the time by which it may be wrong: to wait for longer
    would cost more than it saves. And it has a longest time, or a host that nobody tells the time
    would never go on.
    """

    def __init__(self, clock: Clock, unconfirmed: int) -> None:
        """Watch this clock from now on; doubt it for at most ``unconfirmed`` (µs)."""
        self._clock = clock
        self._unconfirmed = unconfirmed
        self._offset = clock.now() - clock.monotonic()
        self._off = 0
        self._doubted_until = self._unconfirmed_until = clock.monotonic()
        self._newborn = False
        self.count = 0
        """Number of times that the clock was set."""
        self.set_back = 0
        """Number of these times that it was set back."""
        self.last = 0
        """The last change in microseconds; negative if it was set back."""

    def begin(self, known: int | None) -> None:
        """Doubt the first reading of this process if it is far from the latest known instant.

        That is the last reading that was believed, and if the host has not booted since, so much
        later as its kernel has counted (:meth:`Clock.uptime`).
        """
        self.look()
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if known is None or abs(now - known) <= ABSENCE_MAX:
            return
        self._off = now - known
        self._unconfirmed_until = monotonic + min(self._unconfirmed, abs(self._off))
        self._newborn = True

    def look(self) -> None:
        """Compare the clock with its monotonic one."""
        monotonic = self._clock.monotonic()
        offset = self._clock.now() - monotonic
        step, self._offset = offset - self._offset, offset
        if abs(step) < STEP_MIN:
            return
        self.count += 1
        self.set_back += step < 0
        self.last = step
        before, self._off = self._off, self._off + step
        if self._newborn and (step < 0 < before or before < 0 <= self._off + ABSENCE_MAX):
            self.confirm()  # whoever set it right knew the time
            return
        if -ABSENCE_MAX <= self._off < 0:
            self._off = 0
        if step > 0 or self._off < 0:
            self._doubted_until = monotonic + min(DOUBT, max(0, self._off))
            self._unconfirmed_until = monotonic + min(self._unconfirmed, abs(self._off))

    def confirm(self) -> None:
        """Doubt no longer: somebody who knows the time says the same."""
        self._off, self._newborn = 0, False

    @property
    def doubtful(self) -> bool:
        """True while the clock may be wrong, and nothing should be given up.

        What seems to be over by such a clock may be yet to come.
        """
        return self.doubt > 0

    @property
    def newborn(self) -> bool:
        """True while the first reading of this process is doubted: it has not begun its work."""
        return self.doubtful and self._newborn

    @property
    def ahead(self) -> int:
        """Microseconds by which a clock in doubt is ahead of what was believed before."""
        return max(0, self._off) if self.doubtful else 0

    @property
    def behind(self) -> int:
        """Microseconds by which a clock in doubt is behind what was believed before."""
        return max(0, -self._off) if self.doubtful else 0

    @property
    def doubt(self) -> int:
        """Microseconds for which the clock is still doubted; 0 if it is trusted."""
        self.look()
        if abs(self._off) < STEP_MIN:
            return 0
        left = self._doubted_until - self._clock.monotonic()
        if left <= 0 and not self._clock.synchronised():
            left = self._unconfirmed_until - self._clock.monotonic()
        if left <= 0:
            self.confirm()
        return max(0, left)


class LatchedEvent:
    """An event with a timeout: once set it stays set until it is cleared."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        """Start unset."""
        self._set = False
        self._waiting: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Set the event and wake all that wait for it."""
        self._set = True
        for waiting in self._waiting:
            _wake(waiting)

    def clear(self) -> None:
        """Make the event unset again."""
        self._set = False

    @property
    def is_set(self) -> bool:
        """True once the event was set and not cleared since."""
        return self._set

    async def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the event; return whether it was set.

        It uses one future and one timer, because all loops of a service call it constantly, and
        ``asyncio.timeout`` around an ``asyncio.Event`` takes three times as long.
        """
        if self._set:
            return True
        from asyncio import get_running_loop

        loop = get_running_loop()
        waiting = loop.create_future()
        timer = loop.call_later(max(0.0, seconds), _wake, waiting)
        self._waiting.append(waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting.remove(waiting)
        return self._set


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def steady_ns() -> int:
    """Return the nanoseconds of a clock that is never set; only differences are meaningful."""
    return time.monotonic_ns()


def set_off_ns() -> int:
    """Return by how much the host's clock is ahead of its steady one (ns); it moves when it is set.

    Both clocks are slewed alike. Of three readings the least interrupted one counts.
    """
    readings = []
    for _ in range(3):
        before, now, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after - before, now - (before + after) // 2))
    return min(readings)[1]


@dataclass(frozen=True)
class Synchronisation:
    """The kernel's report on its clock; ``error_bound`` in microseconds, None if unknown."""

    synchronised: bool | None
    error_bound: int | None


class _Timex(ctypes.Structure):
    """``struct timex`` of adjtimex(2), as on 64-bit Linux."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


_CLOCK_ERROR = 5  # TIME_ERROR: the kernel considers the clock not synchronised


def synchronisation() -> Synchronisation:
    """Ask the kernel (adjtimex with no change) whether the clock is synchronised, and how well."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return Synchronisation(None, None)
    timex = _Timex()
    state = adjtimex(ctypes.byref(timex))
    if state < 0:
        return Synchronisation(None, None)
    disciplined = state != _CLOCK_ERROR
    return Synchronisation(disciplined, int(timex.maxerror) if disciplined else None)


@cache
def identity() -> str:
    """Return a text that is equal for all programs under one kernel, hence one clock; a digest."""
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return ""
    return f"{crc32(booted):08x}"
