"""Long polling: evaluate again at each change, until the answer is ready or the time is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from node.model import times
from node.service import NodeService

T = TypeVar("T")

_POLL_S = 2.0
"""Maximum delay in seconds if a notification is lost."""


async def until(
    node: NodeService, ask: Callable[[], Awaitable[tuple[T, bool]]], seconds: float
) -> T:
    """Return the answer as soon as ``ask`` reports that it is ready, or after ``seconds``."""
    deadline = node.clock.now() + int(seconds * times.SECOND)
    while True:
        answer, ready = await ask()
        left = (deadline - node.clock.now()) / times.SECOND
        if ready or left <= 0 or node.stopping:
            return answer
        await node.hub.change(min(left, _POLL_S))
