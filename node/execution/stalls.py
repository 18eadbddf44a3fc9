"""The question why a part got no byte through: long packets may get lost on the path.

A connection opens with short packets. If a link on the way carries less than the interface sends,
and nobody reports it, the connection then hangs. So where a part of a test that is ``Stalling``
still runs shortly before its end, or ends and tells that nothing arrived, the largest packet that
gets to the other host and back is searched for, within the time that the run has booked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from node.execution import path_mtu
from node.execution.tool_runner import ToolRunner
from node.model import times
from node.model.reason import Reason
from node.model.reasons import path_carries_less
from node.plugins.contracts import PartContext, Result, Stalling, Test
from node.runtime.clock import Clock

SEARCH_TIME = 2200 * times.MILLISECOND
"""Time for a search before the end; tools have left off sending so long before the booked end."""
_SEARCH_LEAST = times.SECOND
_TERM = 250 * times.MILLISECOND


class StallInquiry:
    """The search for the reason of one part, which may not be needed."""

    def __init__(
        self, test: Test, context: PartContext, runner: ToolRunner, clock: Clock, ends_at: int
    ) -> None:
        """Ask within the run of a part, which ends at ``ends_at`` (µs)."""
        self._test = test
        self._context = context
        self._runner = runner
        self._clock = clock
        self._ends_at = ends_at - _TERM
        self._search: asyncio.Task[Reason | None] | None = None

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Begin the search if the program still runs when there is only time left for it."""
        if self._towards(None) is None:
            yield
            return
        watch = asyncio.create_task(self._begin_late())
        try:
            yield
        finally:
            watch.cancel()

    async def _begin_late(self) -> None:
        wait = self._ends_at - SEARCH_TIME - self._clock.now()
        await self._clock.sleep(max(0, wait) / times.SECOND)
        self._begin()

    def _begin(self) -> None:
        towards, left = self._towards(None), self._ends_at - self._clock.now()
        if towards is not None and left >= _SEARCH_LEAST:
            party = self._context.parties[towards]
            asking = self._ask(party.name, party.address, left / times.SECOND)
            self._search = asyncio.create_task(asking)

    async def _ask(self, name: str, address: str, seconds: float) -> Reason | None:
        found = await path_mtu.find(address, self._runner, seconds, at_once=True)
        if found.mtu is None or found.link is None or found.mtu >= found.link:
            return None
        return path_carries_less(name, found.mtu, found.link)

    def _towards(self, result: Result | None) -> int | None:
        """Return the party whose path is asked about, if this part may have stalled."""
        if not isinstance(self._test, Stalling) or self._context.context is not None:
            return None
        return self._test.stalls_towards(self._context.spec, self._context.participant, result)

    async def reason(self, result: Result | None, *, ended_itself: bool) -> Reason | None:
        """Return why a part got nothing through, as far as sizes tell; None if they do not."""
        stalled = result is not None or not ended_itself
        if not stalled or self._towards(result) is None:
            await self.close()
            return None
        if self._search is None:
            self._begin()
        return None if self._search is None else await self._search

    async def close(self) -> None:
        """End a search that nobody needs."""
        if self._search is not None:
            self._search.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._search
