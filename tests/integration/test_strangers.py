"""A node's request has no effect on another node's concurrent request."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from node.model import times
from node.model.errors import InvalidDocument, ParleyError
from node.model.ids import TaskId, repeated_exchange_id, run_id
from node.model.wire.participants import HoldAnswer, Release
from node.model.wire.tasks import PRIORITY_MAX, RetryTerms, Schedule
from tests.support.booking import HOUR, REACH, BookingLead
from tests.support.worlds import (
    EVERY_INSTANT,
    ON_ONE_LOOP,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP


async def test_a_stranger_keeps_no_run_of_another_exchange(booker: BookingLead) -> None:
    """A foreign commit that names runs of an exchange does not keep them from being released."""
    task, time_line = await booker.task(), booker.site.node.time_line
    stranger = await booker.world.site("stranger")
    request = hold_request(task, [HOUR])
    exchange = exchange_of(request)
    await booker.hold(request, exchange)
    await asyncio.gather(
        time_line.commit(uuid4(), commit_request(request), stranger.identity),
        time_line.release(exchange, release_of(task), booker.lead.identity),
    )
    assert await booker.site.states() == {}


async def test_a_stranger_takes_no_run_of_another_task(booker: BookingLead) -> None:
    """Only one of two leads that concurrently hold a run of the same id gets it."""
    time_line = booker.site.node.time_line
    stranger = await booker.world.site("stranger")
    theirs = introduction([stranger, booker.site])
    await booker.site.keep(theirs, stranger)
    request = hold_request(await booker.task(), [HOUR])
    stolen = request.model_copy(update={"task": theirs.task})
    answers = await asyncio.gather(
        time_line.hold(exchange_of(stolen), stranger.identity, stolen),
        time_line.hold(exchange_of(request), booker.lead.identity, request),
        return_exceptions=True,
    )
    holding = [
        answer for answer in answers if not isinstance(answer, BaseException) and answer.held
    ]
    assert len(holding) == 1
    assert not any(
        isinstance(answer, BaseException) and not isinstance(answer, ParleyError)
        for answer in answers
    )


async def test_a_lead_cannot_use_up_the_exchanges_of_another(booker: BookingLead) -> None:
    """A release or hold that names the exchange of another lead's task is refused and forgotten."""
    task, time_line = await booker.task(), booker.site.node.time_line
    stranger = await booker.world.site("c")
    theirs = introduction([stranger, booker.site])
    await booker.site.keep(theirs, stranger)
    for epoch in range(3):
        exchange = exchange_of(hold_request(task, [HOUR], epoch=epoch))
        for name in (exchange, repeated_exchange_id(exchange)):
            release = Release(task=theirs.task, lease_epoch=epoch)
            with pytest.raises(InvalidDocument, match="is not an exchange of task"):
                await time_line.release(name, release, stranger.identity)
            hold = hold_request(theirs, [HOUR], epoch=epoch)
            with pytest.raises(InvalidDocument, match="is not an exchange of task"):
                await time_line.hold(name, stranger.identity, hold)
    assert await booker.site.rows("SELECT FROM exchange") == []
    assert (await booker.hold(hold_request(task, [HOUR]))).held


async def test_a_hold_of_more_than_was_introduced_books_and_displaces_nothing(
    booker: BookingLead,
) -> None:
    """A day, a higher priority, or too many runs are refused, and what is booked stays."""
    [mine] = (await booker.book(await booker.task(1000), HOUR)).runs
    lead = await booker.world.site("c")
    theirs = introduction([lead, booker.site], duration=3 * times.SECOND)
    await booker.site.keep(theirs, lead)
    fitting = hold_request(theirs, [HOUR], displacing=True)
    [run] = fitting.runs
    day = run.model_copy(update={"ends_at": HOUR + times.DAY})
    cases = (
        ({"runs": (day,)}, r"/runs/0/ends_at: the run lasts 1 d, .* introduced with 3 s"),
        ({"priority": PRIORITY_MAX}, "/priority: 2147483647 is more than the priority 0"),
    )
    for changed, sentence in cases:
        request = fitting.model_copy(update=changed)
        with pytest.raises(InvalidDocument, match=sentence):
            await booker.site.node.time_line.hold(exchange_of(theirs), lead.identity, request)
    assert await booker.site.states() == {mine.run: "scheduled"}


async def test_no_more_runs_are_held_than_were_introduced(booker: BookingLead) -> None:
    """The runs that took place are counted, and those of an exchange; a repeated hold once."""
    lead = await booker.world.site("c")
    limited = EVERY_INSTANT.model_copy(update={"max_runs": 2})
    theirs = introduction([lead, booker.site], schedule=limited)
    await booker.site.keep(theirs, lead)

    async def hold(epoch: int, *starts: int) -> HoldAnswer:
        request = hold_request(theirs, starts, epoch=epoch)
        return await booker.site.node.time_line.hold(exchange_of(request), lead.identity, request)

    with pytest.raises(InvalidDocument, match="/runs: 3 more runs beside the 0"):
        await hold(1, *(HOUR + number * REACH for number in (2, 3, 4)))
    first = await hold(1, HOUR, HOUR + REACH)
    assert len(first.held) == 2
    assert await hold(1, HOUR, HOUR + REACH) == first
    await booker.site.execute("UPDATE run SET state = 'finished'")
    assert await hold(1, HOUR, HOUR + REACH) == first
    with pytest.raises(InvalidDocument, match="/runs: 1 more runs beside the 2"):
        await hold(2, HOUR + 2 * REACH)


async def test_a_slot_is_not_tried_again_more_often_than_was_introduced(
    booker: BookingLead,
) -> None:
    """A lead that says of each attempt that it came to nothing gets those that it introduced."""
    lead = await booker.world.site("c")
    retry = RetryTerms(times=1)
    schedule = Schedule(start=HOUR, slip=times.HOUR, retry=retry)
    theirs = introduction([lead, booker.site], schedule=schedule)
    await booker.site.keep(theirs, lead)

    async def attempt(number: int) -> HoldAnswer:
        """Ask for an attempt that begins half a minute after the one before, and let it begin."""
        request = hold_request(theirs, [HOUR], epoch=number)
        at = HOUR + (number - 1) * 30 * times.SECOND
        run = request.runs[0].model_copy(
            update={
                "run": run_id(TaskId(theirs.task), HOUR, number),
                "attempt": number,
                "starts_at": at,
                "ends_at": at + theirs.duration,
                "again": number > 1,
            }
        )
        request = request.model_copy(update={"runs": (run,)})
        answer = await booker.site.node.time_line.hold(exchange_of(request), lead.identity, request)
        await booker.site.execute(
            """
            UPDATE run SET state = 'failed', reason = 'as its lead says', started_at = starts_at,
                finished_at = ends_at WHERE state = 'booked'
            """
        )
        return answer

    assert [len((await attempt(number)).held) for number in (1, 2)] == [1, 1]
    third = await attempt(3)
    assert third.held == ()
    assert "has been run here already" in str(third)
