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

SYNCHRONISED = 10 * SECOND
"""Error above which a simulated host does not take its clock for synchronised."""
_MILLION = 1_000_000


async def pause(duration: int = 0) -> None:
    """Wait for ``duration`` microseconds of true virtual time; 0 only yields to other tasks."""
    await asyncio.sleep(duration / SECOND)


class SimulatedClock:
    """The time as one simulated node reads it. Instants are microseconds since 1970."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._offset = START
        self._drift_ppm = 0
        self._drifts_since = 0
        self.stepped_at = 0
        self.steps = 0
        """The number of times that it was set."""
        self._waiting: list[asyncio.Future[None]] = []

    def now(self) -> int:
        """Return the current instant as this node believes it to be."""
        there = self._loop.now
        return self._offset + there + (there - self._drifts_since) * self._drift_ppm // _MILLION

    def monotonic(self) -> int:
        """Return true virtual time in microseconds; steps and drift do not change it."""
        return self._loop.now

    def synchronised(self) -> bool:
        """Return whether it is right within seconds, as a host knows that asks for the time."""
        return abs(self.error) < SYNCHRONISED

    def uptime(self) -> None:
        """Return nothing: what a simulated process knew of its host ends with it."""

    @property
    def error(self) -> int:
        """Return how far this clock is ahead of true time, in microseconds."""
        return self.now() - START - self._loop.now

    def step(self, by: int) -> None:
        """Jump by ``by`` microseconds, back if negative."""
        self._offset += by
        self._was_set()

    def drift(self, ppm: int) -> None:
        """Run ``ppm`` parts per million too fast from now on, too slow if negative."""
        self._offset += self.error - (self._offset - START)
        self._drifts_since = self._loop.now
        self._drift_ppm = ppm

    def correct(self) -> None:
        """Remove the offset and the drift."""
        self.drift(0)
        self._offset = START
        self._was_set()

    def _was_set(self) -> None:
        self.stepped_at = self._loop.now
        self.steps += 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def set_after(self, steps: int) -> None:
        """Wait until it was set more often than that."""
        while self.steps <= steps:
            waiting = self._loop.create_future()
            self._waiting.append(waiting)
            await waiting

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``; zero or less only yields to other tasks."""
        await asyncio.sleep(max(0.0, seconds))

    async def sleep_until(self, instant: int) -> None:
        """Wait until an instant; a step of the clock is noticed within a minute."""
        while (remaining := instant - self.now()) > 0:
            await asyncio.sleep(min(remaining / SECOND, 60.0))
