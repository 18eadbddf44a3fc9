"""The bell that every loop of a service waits for: until it is rung, or for so long at most."""

from __future__ import annotations

import asyncio

from lead.simulation.loop import VirtualLoop, run
from node.clock import LatchedEvent


def test_a_bell_wakes_all_who_wait_and_stays_rung() -> None:
    """Whoever comes later need not wait, until it is silenced; then the time is waited out."""

    async def work(loop: VirtualLoop) -> list[tuple[bool, float]]:
        bell = LatchedEvent()

        async def waited() -> tuple[bool, float]:
            return await bell.wait(60), loop.time()

        loop.call_later(2, bell.set)
        told = [*await asyncio.gather(waited(), waited()), await waited()]
        bell.clear()
        return [*told, await waited()]

    assert run(work) == [(True, 2), (True, 2), (True, 2), (False, 62)]


def test_a_bell_that_is_rung_as_the_time_ends_was_rung() -> None:
    """News are never taken for silence."""

    async def work(loop: VirtualLoop) -> bool:
        bell = LatchedEvent()
        loop.call_later(5, bell.set)
        return await bell.wait(5)

    assert run(work)


def test_who_is_cancelled_waits_no_more() -> None:
    """Nothing is left of the wait: the bell can be rung, and its timer does not fire."""

    async def work(loop: VirtualLoop) -> tuple[bool, bool]:
        bell = LatchedEvent()
        waiting = asyncio.create_task(bell.wait(60))
        assert not await LatchedEvent().wait(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        bell.set()
        return waiting.cancelled(), bell.is_set

    assert run(work) == (True, True)


def test_no_time_at_all_lets_the_others_run() -> None:
    """A time that is over already waits for one turn of the loop."""

    async def work(loop: VirtualLoop) -> tuple[bool, list[str]]:
        bell, done = LatchedEvent(), list[str]()
        loop.call_soon(done.append, "another")
        return await bell.wait(-1), done

    assert run(work) == (False, ["another"])
