"""Long polls end when their time is over, whatever happens to the date."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import cast

from node.api import long_polling
from node.journal.events import LOOKS_AT_ONCE, EventHub
from node.model import times
from node.service import NodeService
from node.store.database import Notice
from tests.support.clocks import ManualClock


@dataclass
class _Hub:
    clock: ManualClock
    steps: list[int] = field(default_factory=list)
    next_change: asyncio.Event = field(default_factory=asyncio.Event)
    looks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    async def wait_for_change(self, seconds: float, _following: asyncio.Event) -> None:
        """Let time pass until nothing has changed, and set the clock meanwhile."""
        self.clock.step(self.steps.pop(0) if self.steps else 0)
        self.clock.advance(round(seconds * times.SECOND))

    async def gather(self, _seconds: float) -> None:
        """Take no time: nothing changes so fast here."""


@dataclass
class _Node:
    clock: ManualClock
    hub: _Hub | EventHub
    stopping: bool = False


async def _duration(step: int) -> int:
    """Return how long a poll of ten seconds takes while the clock is set (µs)."""
    clock = ManualClock()
    node = _Node(clock, _Hub(clock, [0, step]))

    async def ask() -> tuple[str, bool]:
        return "nothing new", False

    async with asyncio.timeout(10):
        assert await long_polling.await_ready(cast("NodeService", node), ask, 10) == "nothing new"
    return clock.monotonic()


async def test_a_poll_takes_its_time_while_the_clock_is_set() -> None:
    """It takes as long as was asked for, and neither ends early nor lasts for an hour."""
    for step in (0, -times.HOUR, times.HOUR):
        assert await _duration(step) == 10 * times.SECOND


async def test_hundreds_look_in_turns() -> None:
    """A change wakes all polls, and only a few of them use the database at once."""
    clock = ManualClock()
    hub = EventHub(clock)
    looking, most, ready = 0, 0, False

    async def ask() -> tuple[str, bool]:
        nonlocal looking, most
        looking += 1
        most = max(most, looking)
        await asyncio.to_thread(int)
        looking -= 1
        return "seen", ready

    node = cast("NodeService", _Node(clock, hub))
    polls = [asyncio.create_task(long_polling.await_ready(node, ask, 60)) for _ in range(200)]
    while len(hub.next_change._waiters) < len(polls):
        await asyncio.to_thread(int)
    ready = True
    hub.on_notice(Notice("wake", "", ()))
    assert await asyncio.gather(*polls) == ["seen"] * 200
    assert most == LOOKS_AT_ONCE


async def test_who_does_not_wait_takes_no_turn() -> None:
    """A request without a wait is answered while all turns are taken."""
    hub = EventHub(ManualClock())

    async def ask() -> tuple[str, bool]:
        return "now", False

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(LOOKS_AT_ONCE):
            await stack.enter_async_context(hub.looks)
        node = cast("NodeService", _Node(ManualClock(), hub))
        assert await long_polling.await_ready(node, ask, 0) == "now"


async def test_what_changes_during_a_look_is_not_overlooked() -> None:
    """A change that comes after the database was read, and before the wait, ends that wait."""
    clock = ManualClock()
    hub = EventHub(clock)
    looks = 0

    async def ask() -> tuple[int, bool]:
        nonlocal looks
        looks += 1
        hub.on_notice(Notice("wake", "", ()))
        return looks, looks > 1

    began = asyncio.get_running_loop().time()
    assert await long_polling.await_ready(cast("NodeService", _Node(clock, hub)), ask, 60) == 2
    assert asyncio.get_running_loop().time() - began < long_polling._POLL_S
