"""A node's request has no effect on another node's concurrent request."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from node.model.errors import ParleyError
from tests.support.booking import HOUR, BookingLead
from tests.support.worlds import ON_ONE_LOOP, commit_request, hold_request, introduction

pytestmark = ON_ONE_LOOP


async def test_a_stranger_keeps_no_run_of_another_exchange(booker: BookingLead) -> None:
    """A foreign commit that names runs of an exchange does not keep them from being released."""
    task, time_line = await booker.task(), booker.site.node.time_line
    stranger = await booker.world.site("stranger")
    exchange, request = uuid4(), hold_request(task, [HOUR])
    await booker.hold(request, exchange)
    await asyncio.gather(
        time_line.commit(uuid4(), commit_request(request), stranger.identity),
        time_line.release(exchange, task.task, booker.lead.identity),
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
        time_line.hold(uuid4(), stranger.identity, stolen),
        time_line.hold(uuid4(), booker.lead.identity, request),
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
