"""The clock: the only module that reads the time or sleeps. All others take a :class:`Clock`."""

from __future__ import annotations

import ctypes
import time
from binascii import crc32
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from node.model.times import SECOND

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


STEP_MIN = SECOND // 2
"""A clock that was set by less disturbs no agreement between nodes."""
DOUBT = 60 * SECOND
"""Longest time for which a clock that was set forward may still be set right again."""


class StepWatcher:
    """Notices that a clock was set: that it moved by another time than its monotonic one."""

    def __init__(self, clock: Clock) -> None:
        """Watch this clock from now on."""
        self._clock = clock
        self._offset = clock.now() - clock.monotonic()
        self._ahead = 0
        self._doubted_until = clock.monotonic()
        self.count = 0
        """Number of times that the clock was set."""
        self.set_back = 0
        """Number of these times that it was set back."""
        self.last = 0
        """The last change in microseconds; negative if it was set back."""

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
        self._ahead = max(0, self._ahead + step)
        if step > 0:
            # To wait for longer than the clock may be ahead would cost more than it saves.
            self._doubted_until = monotonic + min(DOUBT, self._ahead)

    @property
    def doubtful(self) -> bool:
        """True while the clock may be ahead, and nothing should be given up.

        What seems to be over by such a clock may be yet to come.
        """
        return self.doubt > 0

    @property
    def doubt(self) -> int:
        """Microseconds for which a clock that was set forward may still be set right again.

        As long as the step was, and at most a minute; 0 if the clock is trusted.
        """
        self.look()
        left = self._doubted_until - self._clock.monotonic()
        if left <= 0:
            self._ahead = 0
        return left if self._ahead >= STEP_MIN else 0


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
            _end(waiting)

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
        timer = loop.call_later(max(0.0, seconds), _end, waiting)
        self._waiting.append(waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._waiting.remove(waiting)
        return self._set


def _end(waiting: asyncio.Future[None]) -> None:
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
