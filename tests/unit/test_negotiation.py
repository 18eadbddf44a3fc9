"""Asking participants for their time."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import cast
from uuid import UUID

import pytest

from lead.exchange.collection import ask
from lead.exchange.negotiation import hold_in_turn
from lead.model.participants import ParticipantClient
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import DatabaseUnavailable
from node.model.wire.participants import (
    HoldAnswer,
    HoldRequest,
    Proposal,
    ProposalRequest,
    RunRequest,
)
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


@pytest.mark.nightly
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


RUNS = tuple(
    RunRequest(run=UUID(int=n), slot=START + n, attempt=1, starts_at=START, ends_at=START + 1)
    for n in range(1, 5)
)
HOLD = HoldRequest(
    task=UUID(int=9),
    generation=UUID(int=8),
    lease_epoch=1,
    tool="sleep",
    priority=0,
    life=times.SECOND,
    runs=RUNS,
)


class _Booker:
    """A participant that holds these runs of those that it is asked for, and notes the latter."""

    def __init__(self, name: str, holds: set[int], *, binding: bool = False) -> None:
        self.identity = self.name = name
        self.binding = binding
        self.asked: list[int] | None = None
        self._holds = holds

    async def hold(self, _: UUID, request: HoldRequest) -> HoldAnswer:
        """Hold what it wants to."""
        self.asked = [run.run.int for run in request.runs]
        return HoldAnswer(held=tuple(UUID(int=n) for n in self.asked if n in self._holds))


async def _held(*participants: _Booker) -> list[list[int]]:
    answers = await hold_in_turn(
        [cast("ParticipantClient", each) for each in participants], UUID(int=7), HOLD
    )
    return [[run.int for run in each.held] for each in answers if isinstance(each, HoldAnswer)]


async def test_whose_bookings_bind_are_asked_last_for_what_all_others_hold() -> None:
    """One after the other they are asked for what is left; the answers keep their order."""
    first = _Booker("x", {1, 2, 3}, binding=True)
    second = _Booker("y", {2, 3}, binding=True)
    ordinary = _Booker("b", {2, 3, 4})
    assert await _held(first, ordinary, second) == [[2, 3], [2, 3, 4], [2, 3]]
    assert (ordinary.asked, first.asked, second.asked) == ([1, 2, 3, 4], [2, 3, 4], [2, 3])


async def test_whose_bookings_bind_are_not_asked_for_nothing() -> None:
    """If no run is held by all others, nothing is booked where it would have to be taken back."""
    binding = _Booker("x", {1}, binding=True)
    assert await _held(binding, _Booker("b", {1}), _Booker("c", {2})) == [[], [1], [2]]
    assert binding.asked is None
