"""Long polls end when their time is over, whatever happens to the date."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

from node.api import long_polling
from node.model import times
from node.service import NodeService
from tests.support.clocks import ManualClock


@dataclass
class _Hub:
    clock: ManualClock
    steps: list[int] = field(default_factory=list)

    async def change(self, seconds: float) -> None:
        """Let time pass until nothing has changed, and set the clock meanwhile."""
        self.clock.step(self.steps.pop(0) if self.steps else 0)
        self.clock.advance(round(seconds * times.SECOND))

    async def pause(self, _seconds: float) -> None:
        """Take no time: nothing changes so fast here."""


@dataclass
class _Node:
    clock: ManualClock
    hub: _Hub
    stopping: bool = False


async def _duration(step: int) -> int:
    """Return how long a poll of ten seconds takes while the clock is set (µs)."""
    clock = ManualClock()
    node = _Node(clock, _Hub(clock, [0, step]))

    async def ask() -> tuple[str, bool]:
        return "nothing new", False

    async with asyncio.timeout(10):
        assert await long_polling.until(cast("NodeService", node), ask, 10) == "nothing new"
    return clock.monotonic()


async def test_a_poll_takes_its_time_while_the_clock_is_set() -> None:
    """It takes as long as was asked for, and neither ends early nor lasts for an hour."""
    for step in (0, -times.HOUR, times.HOUR):
        assert await _duration(step) == 10 * times.SECOND
