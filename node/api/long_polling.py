"""Long polling: evaluate again at each change, until the answer is ready or the time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from node.model import times
from node.service import NodeService

T = TypeVar("T")

_PAUSE_S = 0.1
"""Minimum time between two evaluations: in a burst of changes, one serves many of them."""
_POLL_S = 2.0
"""Maximum delay in seconds if a notification is lost."""


async def await_ready(
    node: NodeService, ask: Callable[[], Awaitable[tuple[T, bool]]], seconds: float
) -> T:
    """Return the answer as soon as ``ask`` reports that it is ready, or after ``seconds``.

    A change wakes all who wait. They look in turns, so that hundreds of them do not take all
    connections of the database from requests that wait for nothing.
    """
    if seconds <= 0:
        return (await ask())[0]
    deadline = node.clock.monotonic() + int(seconds * times.SECOND)
    while True:
        following = node.hub.next_change
        async with node.hub.looks:
            asked_at = asyncio.get_running_loop().time()
            answer, ready = await ask()
        left = (deadline - node.clock.monotonic()) / times.SECOND
        if ready or left <= 0 or node.stopping:
            return answer
        await node.hub.wait_for_change(min(left, _POLL_S), following)
        await node.hub.gather(asked_at + _PAUSE_S - asyncio.get_running_loop().time())
