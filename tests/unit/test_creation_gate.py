"""A node lets in as many new tasks as get done soon."""

from __future__ import annotations

import asyncio

import pytest

from node.model import times
from node.model.errors import TooManyRequests
from node.tasks.creation_gate import CreationGate
from tests.support.clocks import ManualClock


async def test_those_who_would_wait_long_are_told_when_to_come_again() -> None:
    """A request that would wait longer than it may gets the seconds, and others go on in order."""
    clock = ManualClock()
    gate = CreationGate(clock, at_once=1)
    order: list[str] = []
    for _ in range(20):  # takes 0.5 s each
        async with gate.place():
            clock.advance(times.SECOND // 2)
    inside, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with gate.place():
            inside.set()
            await leave.wait()
            order.append("first")

    async def second() -> None:
        async with gate.place():
            order.append("second")

    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        await inside.wait()
        group.create_task(second())
        await clock.sleep(0)
        with pytest.raises(TooManyRequests, match="1 of them wait") as refused:
            async with gate.place():
                order.append("third")
        assert refused.value.retry_after_s == 1
        leave.set()
    assert order == ["first", "second"]
    async with gate.place():
        order.append("fourth")
    assert order[-1] == "fourth"


async def test_places_are_given_back_after_failures() -> None:
    """A creation that fails, or is cancelled while it waits, takes no place for ever."""
    gate = CreationGate(ManualClock(), at_once=1)
    with pytest.raises(ValueError, match="no"):
        async with gate.place():
            raise ValueError("no")
    async with gate.place():
        waiting = asyncio.ensure_future(gate.place().__aenter__())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting, 0)
    async with gate.place():
        pass
