"""The clock of a simulated node: virtual time, seen through an error that can be set.

The error is a constant, a drift in parts per million, and steps. Time-outs and pauses are those of
the loop and not affected, as a real host's monotonic clock is not affected by a wrong date.
"""

from __future__ import annotations

import asyncio

from lead.simulation.loop import VirtualLoop
from node.model.times import SECOND

START = 1_767_571_200 * SECOND
"""2026-01-05T00:00:00Z, a Monday: every simulation begins then."""

_MILLION = 1_000_000


async def pause(duration: int = 0) -> None:
    """Let so many microseconds of true virtual time pass; none only lets others come in."""
    await asyncio.sleep(duration / SECOND)


class SimulatedClock:
    """Time as one simulated node sees it. Instants are microseconds since 1970."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Right, until told otherwise."""
        self._loop = loop
        self._offset = START
        self._drift_ppm = 0
        self._drifts_since = 0
        self.stepped_at = 0

    def now(self) -> int:
        """This instant, as this node believes."""
        there = self._loop.now
        return self._offset + there + (there - self._drifts_since) * self._drift_ppm // _MILLION

    def monotonic(self) -> int:
        """Return true virtual time in microseconds; steps and drift do not change it."""
        return self._loop.now

    @property
    def error(self) -> int:
        """How far it is ahead of true time, in microseconds."""
        return self.now() - START - self._loop.now

    def step(self, by: int) -> None:
        """Jump by so many microseconds, back if negative."""
        self._offset += by
        self.stepped_at = self._loop.now

    def drift(self, ppm: int) -> None:
        """Run too fast from now on, too slow if negative."""
        self._offset += self.error - (self._offset - START)
        self._drifts_since = self._loop.now
        self._drift_ppm = ppm

    def correct(self) -> None:
        """Show true time again, and keep it."""
        self.drift(0)
        self._offset = START
        self.stepped_at = self._loop.now

    async def sleep(self, seconds: float) -> None:
        """Wait; zero or less only lets others run."""
        await asyncio.sleep(max(0.0, seconds))

    async def sleep_until(self, instant: int) -> None:
        """Wait until an instant; a step of the clock is noticed within a minute."""
        while (left := instant - self.now()) > 0:
            await asyncio.sleep(min(left / SECOND, 60.0))
