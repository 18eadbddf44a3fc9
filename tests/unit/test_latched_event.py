"""The event with a timeout on which the loops of a service wait."""

from __future__ import annotations

import asyncio

from lead.simulation.loop import VirtualLoop, run
from node.runtime.clock import LatchedEvent


def test_a_set_event_wakes_all_waiters_and_stays_set() -> None:
    """Later waiters return at once until the event is cleared, and then time out."""

    async def work(loop: VirtualLoop) -> list[tuple[bool, float]]:
        bell = LatchedEvent()

        async def waited() -> tuple[bool, float]:
            return await bell.wait(60), loop.time()

        loop.call_later(2, bell.set)
        outcomes = [*await asyncio.gather(waited(), waited()), await waited()]
        bell.clear()
        return [*outcomes, await waited()]

    assert run(work) == [(True, 2), (True, 2), (True, 2), (False, 62)]


def test_an_event_set_at_the_timeout_counts_as_set() -> None:
    """An event that is set as the timeout expires is not reported as a timeout."""

    async def work(loop: VirtualLoop) -> bool:
        bell = LatchedEvent()
        loop.call_later(5, bell.set)
        return await bell.wait(5)

    assert run(work)


def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    """The event can be set after a cancelled wait, whose timer does not fire."""

    async def work(loop: VirtualLoop) -> tuple[bool, bool]:
        bell = LatchedEvent()
        waiting = asyncio.create_task(bell.wait(60))
        assert not await LatchedEvent().wait(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        bell.set()
        return waiting.cancelled(), bell.is_set

    assert run(work) == (True, True)


def test_a_timeout_of_zero_yields_to_other_tasks() -> None:
    """A timeout in the past waits for one iteration of the loop."""

    async def work(loop: VirtualLoop) -> tuple[bool, list[str]]:
        bell, done = LatchedEvent(), list[str]()
        loop.call_soon(done.append, "another")
        return await bell.wait(-1), done

    assert run(work) == (False, ["another"])
