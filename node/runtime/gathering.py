"""Do the same for many nodes, for some of them at a time.

Those that swallow packets are waited for, so they must not stand in a line. A thousand requests at
once would take the processor from whatever else is due, here and at the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

NODES_AT_ONCE = 10
"""The number of nodes that are asked at a time by work that nobody waits for."""
WAITED_AT_ONCE = 100
"""The number of nodes that are asked at a time if something waits for the last one."""

T = TypeVar("T")
Item = TypeVar("Item")


async def gather_some(
    function: Callable[[Item], Awaitable[T]], items: Iterable[Item], at_once: int
) -> list[T]:
    """Return what a function returns for each item, called for so many at a time.

    The first error is raised, and the others go on, as with :func:`asyncio.gather`.
    """
    places = asyncio.Semaphore(at_once)

    async def call(item: Item) -> T:
        async with places:
            return await function(item)

    return await asyncio.gather(*map(call, items))
