"""Asking participants for their time."""

from __future__ import annotations

import asyncio
import gc
import warnings
from uuid import UUID

import pytest

from lead.exchange.negotiation import ask
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import DatabaseUnavailable
from node.model.wire.participants import Proposal, ProposalRequest
from tests.support.clocks import START, ManualClock


class _Somebody:
    """A participant that is never asked."""

    identity = "ed25519:a"
    name = "a"

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Fail, since it is never awaited."""
        raise AssertionError(request)


REQUEST = ProposalRequest(
    task=UUID(int=1),
    lease_epoch=1,
    scheduling_class=SchedulingClass.NORMAL,
    duration=times.SECOND,
    priority=0,
    windows=((START, START + times.MINUTE),),
)


class _Hanging(_Somebody):
    """This node itself, whose database hangs."""

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Fail as the database does."""
        raise DatabaseUnavailable(str(request.task))


async def test_a_hanging_database_is_not_taken_for_a_participant_that_is_away() -> None:
    """A preview is refused with 503 then, instead of saying that a node cannot be reached."""
    with pytest.raises(DatabaseUnavailable):
        await ask([_Hanging()], REQUEST, ManualClock(), times.SECOND)


async def test_cancelling_before_asking_leaves_no_question_behind() -> None:
    """No question has been started when the task is cancelled before they are sent."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asking = asyncio.create_task(ask([_Somebody()], REQUEST, ManualClock(), times.SECOND))
        asyncio.get_running_loop().call_soon(asking.cancel)
        await asyncio.wait([asking])
        assert asking.cancelled()
        del asking
        gc.collect()
    assert [str(it.message) for it in warned] == []
