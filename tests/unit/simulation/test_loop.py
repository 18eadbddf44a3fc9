"""Virtual time: waiting takes no real time, and every execution is repeatable."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest

from lead.simulation.clock import START, SimulatedClock, pause
from lead.simulation.loop import NothingLeftToDo, Process, TimeStandsStill, VirtualLoop, run
from node.model.times import DAY, MINUTE, SECOND

T = TypeVar("T")


def run_alone(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time and return its result."""
    return run(lambda _loop: work)


def test_a_year_passes_at_once() -> None:
    """A sleep of a year ends at its instant of virtual time, to the microsecond."""

    async def work(loop: VirtualLoop) -> int:
        await pause(365 * DAY)
        await pause(1)
        return loop.now

    assert run(work) == 365 * DAY + 1


def test_sleepers_wake_in_order() -> None:
    """Sleepers wake in the order of their timers; at the same instant in the order of setting."""

    async def work(loop: VirtualLoop) -> list[str]:
        woken: list[str] = []

        async def sleeper(name: str, seconds: int) -> None:
            await pause(seconds * SECOND)
            woken.append(f"{name} {loop.now}")

        await asyncio.gather(sleeper("a", 2), sleeper("b", 1), sleeper("c", 2), sleeper("d", 0))
        return woken

    assert run(work) == ["d 0", "b 1000000", "a 2000000", "c 2000000"]


def test_timeouts_work_as_ever() -> None:
    """``timeout`` and ``wait_for`` end an operation exactly at its time limit."""

    async def work(loop: VirtualLoop) -> list[int]:
        ended = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await pause(10 * SECOND)
        ended.append(loop.now)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 2)
        ended.append(loop.now)
        async with asyncio.timeout(5):
            await pause(SECOND)
        return [*ended, loop.now]

    assert run(work) == [3 * SECOND, 5 * SECOND, 6 * SECOND]


def test_waiting_for_nothing_is_an_error() -> None:
    """Waiting for an event that can never happen raises an error instead of hanging."""
    with pytest.raises(NothingLeftToDo, match=r"after 1\.000000 s"):
        run_alone(_waits_for_ever())


async def _waits_for_ever() -> None:
    await pause(SECOND)
    await asyncio.Event().wait()


def test_going_round_in_circles_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that never waits raises an error instead of hanging."""
    monkeypatch.setattr("lead.simulation.loop.STANDSTILL_STEPS", 1000)

    async def circles() -> None:
        for _ in count():
            await pause()

    with pytest.raises(TimeStandsStill):
        run_alone(circles())


def test_an_uncaught_error_is_a_finding() -> None:
    """A failing callback does not stop the loop and is recorded."""

    async def work(loop: VirtualLoop) -> list[str]:
        loop.call_soon(lambda: 1 / 0)
        await pause(SECOND)
        return loop.faults

    assert "ZeroDivisionError" in run(work)[0]


def test_a_process_dies_at_the_await_that_was_chosen() -> None:
    """A process and its children die exactly at the chosen step, whichever await that is."""

    async def work(loop: VirtualLoop, steps: int) -> int:
        process, done = Process("p"), list[int]()

        async def child() -> None:
            for number in range(5):
                done.append(number)
                await pause(SECOND)

        async def parent() -> None:
            await asyncio.create_task(child())

        task = process.start(parent())
        process.crash_after_steps(steps, process.kill)
        await pause(100 * SECOND)
        assert task.cancelled() is not process.alive
        return len(done)

    progress = [run(partial(work, steps=steps)) for steps in range(20)]
    assert progress == sorted(progress)
    assert set(progress) == {0, 1, 2, 3, 4, 5}


def test_others_go_on_when_a_process_dies() -> None:
    """Killing a process affects no task of another process or of the world."""

    async def work(loop: VirtualLoop) -> list[str]:
        first, second = Process("a"), Process("b")
        survivors: list[str] = []

        async def live(name: str) -> None:
            await pause(2 * SECOND)
            survivors.append(name)

        first.start(live("a"))
        survivor = second.start(live("b"))
        await pause(SECOND)
        first.kill()
        await survivor
        return survivors

    assert run(work) == ["b"]


def test_a_clock_may_be_wrong() -> None:
    """A clock starts without error, steps, drifts, and shows true time once corrected."""

    async def work(loop: VirtualLoop) -> list[int]:
        clock = SimulatedClock(loop)
        errors = [clock.now() - START]
        clock.step(-3 * SECOND)
        errors.append(clock.error)
        clock.drift(100)
        await clock.sleep(1000)
        errors.append(clock.error)
        clock.drift(0)
        await clock.sleep(1000)
        errors.append(clock.error)
        clock.correct()
        errors.append(clock.error)
        return errors

    assert run(work) == [0, -3 * SECOND, -2_900_000, -2_900_000, 0]


def test_a_clock_waits_until_it_shows_an_instant() -> None:
    """A wait for an instant ends by the clock that shows it, even if that is stepped meanwhile."""

    async def work(loop: VirtualLoop) -> int:
        clock = SimulatedClock(loop)
        loop.call_in(30 * SECOND, clock.step, MINUTE)
        await clock.sleep_until(START + 5 * MINUTE)
        assert clock.now() >= START + 5 * MINUTE
        return loop.now

    assert 4 * MINUTE <= run(work) < 5 * MINUTE + SECOND
