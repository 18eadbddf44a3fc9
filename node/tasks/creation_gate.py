"""Lets in as many new tasks at a time as get done soon, and tells others when to come again.

Creating a task asks each participant and writes to the database. Beside a lead that plans, a
thousand of them at once would each take seconds, and so would everything else that the node serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator

from node.clock import Clock
from node.model.errors import TooManyRequests
from node.model.times import SECOND

AT_ONCE = 8
"""Number of tasks that are created at the same time: enough to share transactions and messages."""
PATIENCE_S = 0.4
"""The longest expected wait of a request that is let in."""
_NEWEST = 0.1
"""Weight of the latest creation in the mean time."""


class CreationGate:
    """Counts those who create tasks and those who wait, and measures how fast it goes."""

    def __init__(self, clock: Clock, at_once: int = AT_ONCE) -> None:
        """Let ``at_once`` in at the same time."""
        self._clock = clock
        self._at_once = at_once
        self._places = asyncio.Semaphore(at_once)
        self._waiting = 0
        self._each_s = 0.0

    @contextlib.asynccontextmanager
    async def place(self, tasks: int = 1) -> AsyncIterator[None]:
        """Wait for a place, in the order of arrival, and have it while ``tasks`` are created.

        :raises TooManyRequests: the wait would be too long; the error says when to come again.
        """
        if (wait_s := self._waiting * self._each_s) > PATIENCE_S:
            msg = (
                f"this node is creating tasks for others: {self._waiting} of them wait, for "
                f"about {wait_s:.1f} s; send it again after the time in Retry-After"
            )
            raise TooManyRequests(msg, math.ceil(wait_s))
        self._waiting += tasks
        try:
            await self._places.acquire()
        finally:
            self._waiting -= tasks
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._places.release()
            each_s = (self._clock.monotonic() - began) / SECOND / self._at_once / tasks
            self._each_s += _NEWEST * (each_s - self._each_s)
