"""A clock that tests move by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Generator
from itertools import count

from node.model import times
from node.runtime.clock import Uptime

START = times.parse_instant("2026-12-01T00:00:00Z")


class _Turn:
    """Awaiting it lets the others run once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


_Sleepers = list[tuple[int, int, asyncio.Future[None]]]
"""Sleepers by wake-up time and order of arrival, each with its future."""


class ManualClock:
    """Implements :class:`node.runtime.clock.Clock`; stands still until it is moved."""

    def __init__(self, now: int = START) -> None:
        """Start at an instant in microseconds."""
        self._now = now
        self._elapsed = 0
        self._sleeping: _Sleepers = []
        self._sleeping_until: _Sleepers = []
        self._order = count()
        self.confirmed = True
        """True if it is known to be synchronised."""
        self.boot: str | None = None
        """The name of the boot of its host, if the host knows."""

    def now(self) -> int:
        """The instant it was moved to."""
        return self._now

    def monotonic(self) -> int:
        """Return by how many microseconds it was advanced; steps do not count."""
        return self._elapsed

    def synchronised(self) -> bool:
        """Return what the test says."""
        return self.confirmed

    def uptime(self) -> Uptime | None:
        """Return by how much it was advanced, if the test says in which boot."""
        return None if self.boot is None else Uptime(self.boot, self._elapsed)

    async def sleep(self, seconds: float) -> None:
        """Wait until it has been moved so far; zero or less only lets others run."""
        if seconds <= 0:
            await _Turn()
        else:
            await self._sleep(self._sleeping, self._elapsed + round(seconds * times.SECOND))

    async def sleep_until(self, instant: int) -> None:
        """Wait until it has been moved to an instant."""
        if instant > self._now:
            await self._sleep(self._sleeping_until, instant)

    async def _sleep(self, sleepers: _Sleepers, at: int) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(sleepers, (at, next(self._order), woken))
        await woken

    def advance(self, duration: int) -> None:
        """Move on by microseconds; sleepers whose time has come wake in order."""
        self._elapsed += duration
        self.step(duration)

    def step(self, duration: int) -> None:
        """Set the clock by microseconds, back if negative: no time passes meanwhile."""
        self._now += duration
        due = []
        for sleepers, at in (
            (self._sleeping, self._elapsed),
            (self._sleeping_until, self._now),
        ):
            while sleepers and sleepers[0][0] <= at:
                until, order, woken = heapq.heappop(sleepers)
                due.append((until - at, order, woken))
        for _, _, woken in sorted(due, key=lambda each: each[:2]):
            if not woken.done():
                woken.set_result(None)

    def move_to(self, instant: int) -> None:
        """Move on to an instant, never back."""
        self.advance(max(0, instant - self._now))
