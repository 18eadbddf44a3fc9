"""Periodic jobs follow the clock that they are given, whatever one of them does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from lead.simulation.clock import SimulatedClock, pause
from lead.simulation.loop import VirtualLoop, run
from node.model.errors import DatabaseUnavailable
from node.model.times import HOUR, MINUTE, SECOND
from node.runtime.housekeeping import (
    Action,
    Housekeeper,
    PeriodicJob,
    lead_jobs,
    node_jobs,
    process_jobs,
)
from tests.support.clocks import ManualClock

TURNS = 20
"""More turns of the event loop than a job takes that is due."""


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture
async def housekeeper(clock: ManualClock) -> AsyncIterator[Housekeeper]:
    """A housekeeper on that clock, stopped after the test."""
    made = Housekeeper(clock)
    yield made
    await made.stop()


async def settle(clock: ManualClock, elapsed: int = 0) -> None:
    """Move the clock, and let everybody do what is due by then."""
    for duration in (0, elapsed):
        clock.advance(duration)
        for _ in range(TURNS):
            await clock.sleep(0)


def appending(to: list[int], now: Callable[[], int]) -> Action:
    """A job that writes down when it ran."""

    async def job() -> None:
        to.append(now())

    return job


async def test_jobs_run_when_the_clock_moves(clock: ManualClock, housekeeper: Housekeeper) -> None:
    """Each job runs once an interval, first after one, and never while the clock stands still."""
    often, seldom = list[int](), list[int]()
    housekeeper.start(
        [
            PeriodicJob("often", 1, appending(often, clock.monotonic)),
            PeriodicJob("seldom", 3, appending(seldom, clock.monotonic)),
        ]
    )
    await settle(clock)
    assert often == seldom == []
    for _ in range(7):
        await settle(clock, SECOND)
    assert often == [number * SECOND for number in range(1, 8)]
    assert seldom == [3 * SECOND, 6 * SECOND]


async def test_what_was_missed_runs_once(clock: ManualClock, housekeeper: Housekeeper) -> None:
    """After a long standstill a job runs once, and then again by its interval."""
    ran = list[int]()
    housekeeper.start([PeriodicJob("job", 10, appending(ran, clock.monotonic))])
    await settle(clock, HOUR + 3 * SECOND)
    assert ran == [HOUR + 3 * SECOND]
    await settle(clock, 6 * SECOND)
    assert len(ran) == 1
    await settle(clock, SECOND)
    assert ran[1:] == [HOUR + 10 * SECOND]


@pytest.mark.parametrize("step", [-30 * HOUR, -SECOND, SECOND, 30 * HOUR])
async def test_a_step_of_the_clock_changes_nothing(
    clock: ManualClock, housekeeper: Housekeeper, step: int
) -> None:
    """A clock that is set back or on neither stops a job nor makes it run sooner."""
    ran = list[int]()
    housekeeper.start([PeriodicJob("job", 60, appending(ran, clock.monotonic))])
    await settle(clock, MINUTE + 10 * SECOND)
    clock.step(step)
    await settle(clock, 49 * SECOND)
    assert ran == [MINUTE + 10 * SECOND]
    await settle(clock, SECOND)
    assert ran[1:] == [2 * MINUTE]


async def test_a_clock_set_back_and_right_again_stops_nothing(
    clock: ManualClock, housekeeper: Housekeeper
) -> None:
    """A job runs once a second while the clock is an hour behind, and after it is set right."""
    ran = list[int]()
    housekeeper.start([PeriodicJob("job", 1, appending(ran, clock.monotonic))])
    for step in (0, -HOUR, HOUR, 0):
        clock.step(step)
        for _ in range(3):
            await settle(clock, SECOND)
    assert ran == [number * SECOND for number in range(1, 13)]


async def test_a_failure_without_words_is_named(
    clock: ManualClock, housekeeper: Housekeeper
) -> None:
    """An error that says nothing, as a timeout does, is logged by its kind."""

    async def job() -> None:
        raise TimeoutError

    housekeeper.start([PeriodicJob("slow", 1, job)])
    with capture_logs() as lines:
        await settle(clock, SECOND)
    assert [line["error"] for line in lines] == ["TimeoutError"]


async def test_a_job_that_raises_runs_again(clock: ManualClock, housekeeper: Housekeeper) -> None:
    """Expected and unforeseen errors are logged with the job's name, and end no repetition."""
    faults: list[Exception] = [DatabaseUnavailable("the database is away"), RuntimeError("a fault")]
    ran, beside = list[int](), list[int]()

    async def job() -> None:
        ran.append(clock.monotonic())
        if faults:
            raise faults.pop(0)

    housekeeper.start(
        [PeriodicJob("faulty", 1, job), PeriodicJob("sound", 1, appending(beside, clock.monotonic))]
    )
    with capture_logs() as lines:
        for _ in range(3):
            await settle(clock, SECOND)
    assert ran == beside == [SECOND, 2 * SECOND, 3 * SECOND]
    assert [(line["log_level"], line["event"], line["job"]) for line in lines] == [
        ("warning", "housekeeping failed", "faulty"),
        ("error", "housekeeping failed", "faulty"),
    ]
    assert lines[0]["error"] == "the database is away"
    assert lines[1]["exc_info"]


async def test_a_job_never_overlaps_itself(clock: ManualClock, housekeeper: Housekeeper) -> None:
    """A job that takes longer than its interval skips times; others go on meanwhile."""
    begun, beside, done = list[int](), list[int](), asyncio.Event()

    async def slow() -> None:
        begun.append(clock.monotonic())
        await done.wait()

    housekeeper.start(
        [PeriodicJob("slow", 1, slow), PeriodicJob("other", 1, appending(beside, clock.monotonic))]
    )
    with capture_logs() as lines:
        for _ in range(4):
            await settle(clock, SECOND)
    assert [(line["event"], line["job"]) for line in lines] == [("housekeeping is late", "slow")]
    assert begun == [SECOND]
    assert len(beside) == 4
    done.set()
    await settle(clock)
    assert begun == [SECOND], "its next time is not before the clock moves"
    await settle(clock, SECOND)
    assert begun == [SECOND, 5 * SECOND]


async def test_stop_ends_jobs_that_are_running(clock: ManualClock) -> None:
    """A job under way is cancelled and has ended when stop returns, and no other one begins."""
    ended, ran = list[str](), list[int]()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await clock.sleep(0)
            ended.append("endless")

    housekeeper = Housekeeper(clock)
    housekeeper.start(
        [PeriodicJob("endless", 1, endless), PeriodicJob("other", 2, appending(ran, clock.now))]
    )
    await settle(clock, SECOND)
    with capture_logs() as lines:
        await housekeeper.stop()
    assert ended == ["endless"]
    await settle(clock, HOUR)
    assert ran == []
    assert lines == [], "being stopped is not a failure"


async def test_stop_without_start(clock: ManualClock) -> None:
    """A service that fails before its housekeeping begins can be stopped."""
    await Housekeeper(clock).stop()


@given(jitter=st.integers(1, 30), count=st.integers(1, 40))
def test_jitter_only_delays_within_the_interval(jitter: int, count: int) -> None:
    """Each interval has one time, which lies at most the jitter after its beginning."""
    ran = list[int]()

    async def world(loop: VirtualLoop) -> None:
        clock = SimulatedClock(loop)
        housekeeper = Housekeeper(clock)
        job = appending(ran, clock.monotonic)
        housekeeper.start([PeriodicJob("job", 60, job, jitter_s=jitter)])
        await pause(count * MINUTE + 59 * SECOND)
        await housekeeper.stop()

    run(world)
    assert [at // MINUTE for at in ran] == list(range(1, count + 1))
    assert all(at % MINUTE <= (jitter + 1) * SECOND for at in ran)


def test_the_tables_name_each_job_once() -> None:
    """All jobs of one process have names and intervals of their own, and call what they name."""
    called = list[str]()

    async def note(name: str) -> None:
        called.append(name)

    names = (
        "settle_holds",
        "end_overdue",
        "end_followers",
        "watch_peers",
        "tell_revocations",
        "refresh_card",
        "renew_certificates",
        "extend_reservations",
        "catch_up_audit",
        "check_webhooks",
        "back_up",
        "sum_up_meshes",
        "purge",
    )
    of_node = node_jobs(**{name: partial(note, name) for name in names})
    of_lead = lead_jobs(
        compare=partial(note, "compare"), learn_uses=partial(note, "learn"), every_s=7
    )
    of_process = process_jobs(
        ping_watchdog=partial(note, "ping"),
        watch_clock=partial(note, "watch"),
        mark_database=partial(note, "mark"),
        show_lead=partial(note, "show"),
    )
    jobs = [*of_node, *of_lead, *of_process]
    assert len({job.name for job in jobs}) == len(jobs)
    assert all(0 <= job.jitter_s < job.interval_s for job in jobs)
    assert of_lead[0].interval_s == 7

    async def call_all() -> None:
        for job in jobs:
            await job.action()

    asyncio.run(call_all())
    assert called == [*names, "compare", "learn", "ping", "watch", "mark", "show"]
