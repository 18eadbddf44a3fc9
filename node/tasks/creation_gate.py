"""Lets in as many new tasks at a time as get done soon, and tells others when to come again.

Creating a task asks each participant and writes to the database. Beside a lead that plans, a
thousand of them at once would each take seconds, and so would everything else that the node serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from node.model.errors import TooManyRequests
from node.model.times import SECOND
from node.runtime.clock import Clock

AT_ONCE = 8
"""Number of tasks that are created at the same time: enough to share transactions and messages."""
PATIENCE_S = 0.4
"""The longest expected wait of a request that is let in."""
_NEWEST = 0.1
"""Weight of the latest creation in the mean time."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A request for a number of tasks, and its turn, which ends when it may begin."""

    tasks: int
    turn: asyncio.Future[None]


class CreationGate:
    """Counts those who create tasks and those who wait, and measures how fast it goes.

    Users get places in turn, so that one who sends many waits for the own ones, and no other does.
    """

    def __init__(self, clock: Clock, at_once: int = AT_ONCE) -> None:
        """Let ``at_once`` in at the same time."""
        self._clock = clock
        self._at_once = at_once
        self._free = at_once
        self._waiting: dict[str, deque[_Waiting]] = {}
        """By user, in the order of their next turns; each has somebody who waits."""
        self._each_s = 0.0

    @contextlib.asynccontextmanager
    async def place(self, user: str, tasks: int = 1) -> AsyncIterator[None]:
        """Wait for a place, in the order of a user's requests, and have it while tasks are created.

        :raises TooManyRequests: the wait would be too long; the error says when to come again.
        """
        before = self._count_before(user)
        if (wait_s := before * self._each_s) > PATIENCE_S:
            msg = (
                f"this node is creating tasks for others: {before} of them wait, for "
                f"about {wait_s:.1f} s; send it again after the time in Retry-After"
            )
            raise TooManyRequests(msg, math.ceil(wait_s))
        await self._wait_for_place(user, tasks)
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._pass_on_place()
            each_s = (self._clock.monotonic() - began) / SECOND / self._at_once / tasks
            self._each_s += _NEWEST * (each_s - self._each_s)

    def _count_before(self, user: str) -> int:
        """Return how many tasks are created before a further request of a user has its turn."""
        turns = len(self._waiting.get(user, ())) + 1
        return sum(
            each.tasks
            for other, waiting in self._waiting.items()
            for each in itertools.islice(waiting, turns if other != user else None)
            if not each.turn.cancelled()
        )

    async def _wait_for_place(self, user: str, tasks: int) -> None:
        if self._free:
            self._free -= 1
            return
        mine = _Waiting(tasks, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(user, deque()).append(mine)
        try:
            await mine.turn
        except asyncio.CancelledError:
            if not mine.turn.cancelled():  # its turn came at that moment
                self._pass_on_place()
            raise

    def _pass_on_place(self) -> None:
        """Give the place to the next user, whose further requests wait for another turn."""
        while self._waiting:
            user = next(iter(self._waiting))
            waiting = self._waiting.pop(user)
            turn = waiting.popleft().turn
            if waiting:
                self._waiting[user] = waiting
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._free += 1
