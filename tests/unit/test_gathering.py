"""The same is done for many nodes, for some of them at a time."""

from __future__ import annotations

import asyncio

import pytest

from node.runtime.gathering import gather_some


async def test_so_many_are_under_way_and_no_more() -> None:
    """Others begin as soon as one is over, and the answers are in the order of the items."""
    gates = [asyncio.Event() for _ in range(7)]
    begun: asyncio.Queue[int] = asyncio.Queue()

    async def ask(number: int) -> int:
        begun.put_nowait(number)
        await gates[number].wait()
        return number * 10

    asking = asyncio.create_task(gather_some(ask, range(7), 3))
    assert [await begun.get() for _ in range(3)] == [0, 1, 2]
    assert begun.empty()
    gates[1].set()
    assert await begun.get() == 3
    assert begun.empty()
    for gate in gates:
        gate.set()
    assert await asking == [0, 10, 20, 30, 40, 50, 60]
    assert await gather_some(ask, [], 3) == []


async def test_an_error_is_raised() -> None:
    """The first error is raised, as with all at once."""

    async def ask(number: int) -> None:
        if number == 1:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        await gather_some(ask, range(3), 2)
