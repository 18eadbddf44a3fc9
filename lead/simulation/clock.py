"""The clock of a simulated node: virtual time, seen through an error that can be set.

The error is a constant offset, a drift in parts per million, and steps. Timeouts and pauses run on
the loop's time and ignore the error, as a real host's monotonic clock ignores a wrong date.
"""

from __future__ import annotations

import asyncio

from lead.simulation.loop import VirtualLoop
from node.model.times import SECOND

START = 1_767_571_200 * SECOND
"""2026-01-05T00:00:00Z, a Monday: the instant at which every simulation begins."""

_MILLION = 1_000_000


async def pause(duration: int = 0) -> None:
    """Wait for ``duration`` microseconds of true virtual time; 0 only yields to other tasks."""
    await asyncio.sleep(duration / SECOND)


class SimulatedClock:
    """The time as one simulated node reads it. Instants are microseconds since 1970."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Create a clock without error."""
        self._loop = loop
        self._offset = START
        self._drift_ppm = 0
        self._drifts_since = 0
        self.stepped_at = 0

    def now(self) -> int:
        """Return the current instant as this node believes it to be."""
        there = self._loop.now
        return self._offset + there + (there - self._drifts_since) * self._drift_ppm // _MILLION

    def monotonic(self) -> int:
        """Return true virtual time in microseconds; steps and drift do not change it."""
        return self._loop.now

    @property
    def error(self) -> int:
        """Return how far this clock is ahead of true time, in microseconds."""
        return self.now() - START - self._loop.now

    def step(self, by: int) -> None:
        """Jump by ``by`` microseconds, back if negative."""
        self._offset += by
        self.stepped_at = self._loop.now

    def drift(self, ppm: int) -> None:
        """Run ``ppm`` parts per million too fast from now on, too slow if negative."""
        self._offset += self.error - (self._offset - START)
        self._drifts_since = self._loop.now
        self._drift_ppm = ppm

    def correct(self) -> None:
        """Remove the offset and the drift."""
        self.drift(0)
        self._offset = START
        self.stepped_at = self._loop.now

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; zero or less only yields to other tasks."""
        await asyncio.sleep(max(0.0, seconds))

    async def sleep_until(self, instant: int) -> None:
        """Wait until an instant; a step of the clock is noticed within a minute."""
        while (remaining := instant - self.now()) > 0:
            await asyncio.sleep(min(remaining / SECOND, 60.0))
