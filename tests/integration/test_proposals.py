"""Proposals from memory: they reflect the node's own changes, and never refuse wrongly."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from uuid import UUID

import pytest

from node.model import times
from node.model.spans import Span
from node.model.timeline import OccupiedSpan
from node.store import bookings, changes, runs
from node.store.database import Connection, Notice
from node.timetable.booking import TimeLine
from tests.support.booking import HOUR, REACH, BookingLead
from tests.support.patience import PATIENCE_S
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    Site,
    commit_request,
    exchange_of,
    hold_request,
    release_of,
)

pytestmark = ON_ONE_LOOP

WINDOW = (HOUR, HOUR + REACH)
BEHIND = [(HOUR + DURATION, HOUR + REACH)]


class Listener:
    """A listener for a timeline that can wait for notifications."""

    def __init__(self, time_line: TimeLine) -> None:
        """Create a listener without notifications."""
        self._time_line = time_line
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, notice: Notice) -> None:
        """Pass a notification on to the timeline."""
        self._time_line.on_notice(notice)
        self._heard.put_nowait(notice.kind)

    async def hears(self, kind: str) -> None:
        """Wait for a notification of this kind; earlier ones count."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._heard.get() != kind:
                pass


@contextlib.asynccontextmanager
async def listening(site: Site) -> AsyncIterator[Listener]:
    """Let a site's timeline listen to its database."""
    listener = Listener(site.node.time_line)
    task = asyncio.create_task(site.database.listen(listener, site.clock))
    await listener.hears("wake")
    yield listener
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Span]]:
    """Return the list to which every read of occupied time is added."""
    calls: list[Sequence[Span]] = []
    read = bookings.occupied_spans

    async def record(
        connection: Connection, windows: Sequence[Span], fixed_before: int
    ) -> list[OccupiedSpan]:
        calls.append(windows)
        return await read(connection, windows, fixed_before)

    monkeypatch.setattr(bookings, "occupied_spans", record)
    return calls


def elsewhere(booker: BookingLead) -> BookingLead:
    """Return another process of the same node that books for the same lead."""
    site = booker.site
    node = site.node
    line = TimeLine(node.core, node._needs_port, node._duration_with, random.Random(1), node.limits)
    other = Site(site.world, node, site.clock)
    other.node = type("Process", (), {"time_line": line})()
    return BookingLead(booker.world, booker.lead, other)


async def test_the_next_proposal_sees_what_was_booked(
    booker: BookingLead, reads: list[Sequence[Span]]
) -> None:
    """A node knows its own bookings without notifications and reads."""
    booker.site.node.time_line.on_notice(Notice("wake", "", ()))
    assert await booker.free(WINDOW) == [WINDOW]
    await booker.book(await booker.task(), HOUR)
    assert await booker.free(WINDOW) == BEHIND
    assert len(reads) == 1


async def test_what_another_process_booked_is_heard(
    booker: BookingLead, reads: list[Sequence[Span]]
) -> None:
    """A booking of another process arrives as one notification, and nothing is read."""
    async with listening(booker.site) as listener:
        assert await booker.free(WINDOW) == [WINDOW]
        await elsewhere(booker).book(await booker.task(), HOUR)
        await listener.hears("taken")
        assert await booker.free(WINDOW) == BEHIND
    assert len(reads) == 1


async def test_more_runs_than_one_notification_holds_are_heard(booker: BookingLead) -> None:
    """Five hundred runs booked at once arrive completely in several notifications."""
    task = await booker.task(duration=times.SECOND)
    starts = [HOUR + n * 2 * times.SECOND for n in range(500)]
    async with listening(booker.site) as listener:
        assert await booker.free(WINDOW) == [WINDOW]
        await elsewhere(booker).book(task, *starts)
        for _ in range(3):
            await listener.hears("taken")
        expected = [(start + times.SECOND, start + 2 * times.SECOND) for start in starts[:-1]]
        assert await booker.free(WINDOW) == [*expected, (starts[-1] + times.SECOND, WINDOW[1])]


async def _cancel(site: Site, run: UUID) -> None:
    await site.node.termination.cancel_run(run)


async def _forget(site: Site, run: UUID) -> None:
    await site.execute("DELETE FROM run WHERE id = $1", run)


@pytest.mark.parametrize("how", [_cancel, _forget])
async def test_what_is_given_back_is_free_again(
    booker: BookingLead, how: Callable[[Site, UUID], Awaitable[None]]
) -> None:
    """Freed time is notified and read again."""
    run = (await booker.book(await booker.task(), HOUR)).runs[0].run
    async with listening(booker.site) as listener:
        assert await booker.free(WINDOW) == BEHIND
        await how(booker.site, run)
        await listener.hears("freed")
        assert await booker.free(WINDOW) == [WINDOW]


async def test_what_is_set_aside_and_comes_back_is_heard(booker: BookingLead) -> None:
    """The time of a longer run set aside is free until that run is restored."""
    long = await booker.task(1, duration=2 * DURATION)
    await booker.book(long, HOUR)
    task = await booker.task(2)
    exchange = exchange_of(task)
    async with listening(booker.site) as listener:
        assert await booker.free(WINDOW) == [(HOUR + 2 * DURATION, WINDOW[1])]
        await booker.hold(hold_request(task, [HOUR], displacing=True), exchange)
        await listener.hears("changed")
        assert await booker.free(WINDOW) == BEHIND
        await booker.site.node.time_line.release(exchange, release_of(task))
        await listener.hears("changed")
        assert await booker.free(WINDOW) == [(HOUR + 2 * DURATION, WINDOW[1])]


async def test_another_priority_is_heard(booker: BookingLead) -> None:
    """A run with a raised priority no longer gives way."""
    low = await booker.task(1)
    await booker.book(low, HOUR)
    async with listening(booker.site) as listener:
        assert await booker.displacing(WINDOW, priority=5) == [WINDOW]
        async with booker.site.database.transaction() as connection:
            await changes.reprioritise(connection, low.task, 7, HOUR)
        await listener.hears("changed")
        assert await booker.displacing(WINDOW, priority=5) == BEHIND


async def test_what_begins_soon_gives_way_no_longer(booker: BookingLead) -> None:
    """A run within the start margin no longer gives way, without any notification."""
    run = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    clock, margin = booker.world.clock, booker.site.node.settings.start_margin
    booker.site.node.time_line.on_notice(Notice("wake", "", ()))
    clock.move_to(HOUR - margin)
    assert await booker.displacing(WINDOW, priority=5) == [WINDOW]
    clock.advance(1)
    assert await booker.displacing(WINDOW, priority=5) == BEHIND
    clock.move_to(HOUR - margin)
    async with booker.site.database.transaction() as connection:
        assert await runs.begin(connection, run, clock.now())
    assert await booker.displacing(WINDOW, priority=5) == BEHIND


async def test_nothing_is_refused_from_memory_alone(booker: BookingLead) -> None:
    """After a lost notification, time that seems full is read again before it is refused."""
    run = (await booker.book(await booker.task(), HOUR)).runs[0].run
    booker.site.node.time_line.on_notice(Notice("wake", "", ()))
    window = (HOUR, HOUR + DURATION)
    assert await booker.free(window) == []
    await booker.site.node.termination.cancel_run(run)
    assert await booker.free(window) == [window]


async def test_a_refused_hold_corrects_the_memory(booker: BookingLead) -> None:
    """After a lost notification, a refused hold corrects the memory."""
    booker.site.node.time_line.on_notice(Notice("wake", "", ()))
    assert await booker.free(WINDOW) == [WINDOW]
    await elsewhere(booker).book(await booker.task(), HOUR)
    assert await booker.free(WINDOW) == [WINDOW]
    assert not (await booker.hold(hold_request(await booker.task(), [HOUR]))).held
    assert await booker.free(WINDOW) == BEHIND


async def test_who_hears_nothing_keeps_nothing(
    booker: BookingLead, reads: list[Sequence[Span]]
) -> None:
    """Every proposal is read from the database while the listening connection is lost."""
    async with listening(booker.site) as listener:
        await booker.free(WINDOW)
        await booker.site.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        )
        await listener.hears("disconnected")
        await elsewhere(booker).book(await booker.task(), HOUR)
        assert await booker.free(WINDOW) == await booker.free(WINDOW) == BEHIND
        assert len(reads) == 3
        booker.world.clock.advance(times.SECOND)
        await listener.hears("wake")
        assert await booker.free(WINDOW) == await booker.free(WINDOW) == BEHIND
    assert len(reads) == 4


async def test_a_hold_that_comes_twice_takes_its_time_once(booker: BookingLead) -> None:
    """A repeated hold gets the first answer, and does not occupy released time."""
    booker.site.node.time_line.on_notice(Notice("wake", "", ()))
    task = await booker.task()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR, HOUR + 2 * DURATION])
    await booker.hold(request, exchange)
    await booker.site.node.time_line.commit(exchange, commit_request(request, keep=1))
    assert await booker.free(WINDOW)
    booker.site.node.time_line.on_notice(Notice("wake", "", ()))
    assert await booker.free(WINDOW) == BEHIND
    await booker.hold(request, exchange)
    assert await booker.free(WINDOW) == BEHIND
