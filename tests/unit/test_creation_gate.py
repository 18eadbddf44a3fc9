"""A node lets in as many new tasks as get done soon."""

from __future__ import annotations

import asyncio

import pytest

from node.model import times
from node.model.errors import TooManyRequests
from node.tasks.creation_gate import CreationGate
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S


async def test_those_who_would_wait_long_are_told_when_to_come_again() -> None:
    """A request that would wait longer than it may gets the seconds, and others go on in order."""
    clock = ManualClock()
    gate = CreationGate(clock, at_once=1)
    order: list[str] = []
    for _ in range(20):  # takes 0.5 s each
        async with gate.place("anna"):
            clock.advance(times.SECOND // 2)
    inside, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with gate.place("anna"):
            inside.set()
            await leave.wait()
            order.append("first")

    async def second() -> None:
        async with gate.place("anna"):
            order.append("second")

    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        await inside.wait()
        group.create_task(second())
        await clock.sleep(0)
        with pytest.raises(TooManyRequests, match="1 of them wait") as refused:
            async with gate.place("anna"):
                order.append("third")
        assert refused.value.retry_after_s == 1
        leave.set()
    assert order == ["first", "second"]
    async with gate.place("anna"):
        order.append("fourth")
    assert order[-1] == "fourth"


async def test_places_are_given_back_after_failures() -> None:
    """A creation that fails, or is cancelled while it waits, takes no place for ever."""
    gate = CreationGate(ManualClock(), at_once=1)
    with pytest.raises(ValueError, match="no"):
        async with gate.place("anna"):
            raise ValueError("no")
    async with gate.place("anna"):
        waiting = asyncio.ensure_future(gate.place("anna").__aenter__())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(waiting, 0)
    async with gate.place("anna"):
        pass


async def test_users_have_their_turns() -> None:
    """One who sends many requests waits for the own ones; a user who sends one is not refused."""
    clock = ManualClock()
    gate = CreationGate(clock, at_once=1)
    order: list[str] = []
    for _ in range(40):  # takes 0.1 s each
        async with gate.place("anna"):
            clock.advance(times.SECOND // 10)
    inside, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with gate.place("mallory"):
            inside.set()
            await leave.wait()

    async def wait(user: str) -> None:
        async with gate.place(user):
            order.append(user)

    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        await inside.wait()
        for _ in range(5):
            group.create_task(wait("mallory"))
        await clock.sleep(0)
        with pytest.raises(TooManyRequests, match="5 of them wait"):
            await wait("mallory")
        group.create_task(wait("anna"))
        await clock.sleep(0)
        leave.set()
    assert order == ["mallory", "anna", *["mallory"] * 4]


async def test_who_goes_while_they_wait_leaves_no_place_taken() -> None:
    """A request that is given up gives its turn to the next one, whenever it is given up."""
    clock = ManualClock()
    gate = CreationGate(clock, at_once=1)

    async def create() -> None:
        async with gate.place("anna"):
            pass

    for moment in ("before its turn", "at its turn"):
        holding = gate.place("anna")
        await holding.__aenter__()
        waiting = [asyncio.create_task(create()) for _ in range(2)]
        await clock.sleep(0)
        if moment == "before its turn":
            waiting[0].cancel()
        await holding.__aexit__(None, None, None)
        waiting[0].cancel()
        await asyncio.wait_for(waiting[1], PATIENCE_S)
    await create()
