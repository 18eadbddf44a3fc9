"""Limits on concurrent questions per participant, and when waiting tasks are claimed again."""

from __future__ import annotations

import asyncio
import random
from typing import cast

from lead.exchange.reachability import (
    PROMPT_ANSWER_TIME,
    WORKER_SHARE_DIVISOR,
    ReachabilityGuard,
    ReachabilityTracker,
)
from lead.model.participants import ParticipantClient
from node.model import times
from node.model.wire.participants import Proposal, ProposalRequest
from tests.support.clocks import ManualClock


class _Silent:
    """A participant as far as it is needed here."""

    identity = "key of b"
    name = "b"
    binding = False


class _Other(_Silent):
    """Another participant."""

    identity = "key of c"
    name = "c"


def test_a_past_opening_is_no_reason_to_look_again_at_once() -> None:
    """The workers do not poll in a tight loop until a task that needs the participant is due."""
    clock = ManualClock()
    reach = ReachabilityTracker(clock, random.Random(1), workers=8)
    reach.record_no_answer(cast("ParticipantClient", _Silent()), "no answer", clock.now())
    assert reach.blocked() == [_Silent.identity]
    opening = reach.next_probe_at()
    assert opening is not None
    assert opening > clock.now()
    clock.advance(times.MINUTE)
    assert reach.next_probe_at() is None
    assert reach.blocked() == []
    assert reach.free_places() == [(_Silent.identity, 1)]


def test_a_task_that_needs_two_waits_for_the_one_being_asked() -> None:
    """Its task is not claimed again and again while the other question is in flight."""
    clock = ManualClock()
    reach = ReachabilityTracker(clock, random.Random(1), workers=8)
    for silent in (_Silent(), _Other()):
        reach.record_no_answer(cast("ParticipantClient", silent), "no answer", clock.now())
        clock.advance(10 * times.SECOND)
    clock.advance(times.MINUTE)
    with reach.admit([_Silent.identity]):
        blocking = reach.unreachable_among([_Silent.identity, _Other.identity])
        assert blocking is not None
        assert blocking[0] == _Silent.identity


WORKERS = 8


async def _ask(reach: ReachabilityTracker, clock: ManualClock, took: int) -> None:
    """Ask one question that takes ``took`` µs to be answered."""

    async def question() -> None:
        clock.advance(took)

    with reach.admit([_Silent.identity]) as guard:
        await guard.ask(cast("ParticipantClient", _Silent()), question())


def _places(reach: ReachabilityTracker) -> int:
    """Return how many may ask at the same time while none gets its answer."""
    guards: list[ReachabilityGuard] = []
    guard = reach.admit([_Silent.identity])
    while guard.full is None and guard.unreachable is None:
        guards.append(guard)
        guard = reach.admit([_Silent.identity])
    for guard in guards:
        with guard:
            pass
    return len(guards)


async def test_all_workers_may_ask_a_prompt_participant() -> None:
    """Only a share of them may ask one that has not answered yet or answers slowly."""
    clock = ManualClock()
    reach = ReachabilityTracker(clock, random.Random(1), WORKERS)
    assert _places(reach) == WORKERS // WORKER_SHARE_DIVISOR
    await _ask(reach, clock, PROMPT_ANSWER_TIME - 1)
    assert _places(reach) == WORKERS
    await _ask(reach, clock, PROMPT_ANSWER_TIME)
    assert _places(reach) == WORKERS // WORKER_SHARE_DIVISOR
    await _ask(reach, clock, 0)
    reach.record_no_answer(cast("ParticipantClient", _Silent()), "no answer", clock.now())
    clock.advance(times.MINUTE)
    assert _places(reach) == 1


async def test_a_slow_answer_limits_further_questions() -> None:
    """Only a share may ask a slow participant until it answers promptly again."""
    clock = ManualClock()
    reach = ReachabilityTracker(clock, random.Random(1), WORKERS)
    await _ask(reach, clock, 0)
    answer = asyncio.Event()

    async def hang() -> None:
        with reach.admit([_Silent.identity]) as guard:
            await guard.ask(cast("ParticipantClient", _Silent()), answer.wait())

    hanging = asyncio.create_task(hang())
    await asyncio.wait([hanging], timeout=0)
    late_at = reach.next_slow_task_at()
    assert late_at == clock.now() + PROMPT_ANSWER_TIME
    clock.advance(PROMPT_ANSWER_TIME - 1)
    assert (reach.slow_task_count(), _places(reach)) == (0, WORKERS - 1)
    clock.advance(1)
    assert (reach.slow_task_count(), _places(reach)) == (1, WORKERS // WORKER_SHARE_DIVISOR - 1)
    assert reach.next_slow_task_at() is None
    answer.set()
    await hanging
    assert (reach.slow_task_count(), _places(reach)) == (0, WORKERS // WORKER_SHARE_DIVISOR)


class _Astray(_Silent):
    """A participant whose clock says 1970, and one that pretends to book nothing."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    async def propose(self, _: ProposalRequest) -> Proposal:
        """Return its horizon, by its clock."""
        return Proposal(now=0, horizon=self.ahead, free=())


async def test_how_far_a_participant_books_does_not_depend_on_its_clock() -> None:
    """A task is not put off for years because a clock, or a participant, was wrong once."""
    for ahead, known in ((times.HOUR, times.HOUR), (0, times.MINUTE)):
        reach = ReachabilityTracker(ManualClock(), random.Random(1), workers=8)
        astray = cast("ParticipantClient", _Astray(ahead))
        with reach.admit([_Silent.identity]) as guard:
            await guard.recorded(astray).propose(cast("ProposalRequest", None))
        assert reach.horizon([_Silent.identity], times.DAY) == known
