"""A clock that tests move by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Generator
from itertools import count

from node.model import times

START = times.parse_instant("2026-12-01T00:00:00Z")


class _Turn:
    """Awaiting it lets the others run once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class ManualClock:
    """Implements :class:`node.clock.Clock`; stands still until it is moved."""

    def __init__(self, now: int = START) -> None:
        """Start at an instant in microseconds."""
        self._now = now
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()

    def now(self) -> int:
        """The instant it was moved to."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until it has been moved so far; zero or less only lets others run."""
        if seconds <= 0:
            await _Turn()
        else:
            await self.sleep_until(self._now + round(seconds * times.SECOND))

    async def sleep_until(self, instant: int) -> None:
        """Wait until it has been moved to an instant."""
        if instant > self._now:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._sleepers, (instant, next(self._order), woken))
            await woken

    def advance(self, duration: int) -> None:
        """Move on by microseconds; sleepers whose time has come wake in order."""
        self._now += duration
        while self._sleepers and self._sleepers[0][0] <= self._now:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    def move_to(self, instant: int) -> None:
        """Move on to an instant, never back."""
        self.advance(max(0, instant - self._now))
