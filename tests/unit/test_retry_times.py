"""Nodes tell leads before which instants it is vain to ask again."""

from __future__ import annotations

import random
from uuid import UUID

from lead.planning.agenda import PAUSE_MAX, Slot, try_again_at
from lead.planning.retry_times import proposed_retry_times, refused_retry_times
from node.model import times
from node.model.errors import ParleyError, PeerUnreachable, TooManyRequests
from node.model.wire.participants import (
    AboveShare,
    HoldAnswer,
    Proposal,
    Refusal,
    RunRequest,
)

HOUR = times.HOUR
SLOTS = [Slot(at, 1, at, at + HOUR) for at in (2 * HOUR, 4 * HOUR)]


def _above(window: int, later: int) -> AboveShare:
    return AboveShare(window=window, percent=25, later=later, starts_at=0, ends_at=HOUR)


def _proposal(*obstacles: AboveShare) -> Proposal:
    return Proposal(now=0, horizon=times.DAY, free=(), obstacles=obstacles)


def test_the_latest_instant_of_all_participants_counts() -> None:
    """A run needs all of its participants, so the last one to be free decides; placed slots not."""
    proposals = {"a": _proposal(_above(0, 7)), "b": _proposal(_above(0, 9), _above(1, 5))}
    assert proposed_retry_times(SLOTS, {2 * HOUR}, proposals) == {2 * HOUR: 9}


def test_refused_holds_tell_it_too() -> None:
    """Runs that were refused when they were to be held have an instant of their own."""
    run = UUID(int=1)
    request = RunRequest(run=run, slot=HOUR, attempt=1, starts_at=HOUR, ends_at=2 * HOUR)
    refusal = Refusal(run=run, reason="no", obstacle=_above(0, 8))
    answers: list[HoldAnswer | ParleyError] = [
        HoldAnswer(held=(), refused=(refusal,)),
        PeerUnreachable("away"),
    ]
    assert refused_retry_times({HOUR: request}, answers, 0) == {HOUR: 8}


def test_a_lead_asks_again_when_it_was_told_to() -> None:
    """The pause lasts until the first slot may be asked for, and no longer than its deadline."""
    rng = random.Random(1)
    first, second = (slot.nominal for slot in SLOTS)
    assert try_again_at(SLOTS, 60, 20, 0, rng, {first: HOUR, second: 3 * HOUR}) == HOUR
    assert try_again_at(SLOTS, 60, 20, 0, rng, {first: 9 * HOUR, second: 9 * HOUR}) == 3 * HOUR - 60
    again = try_again_at(SLOTS, 60, 20, 0, rng, {first: HOUR})
    assert again is not None
    assert again <= PAUSE_MAX


def test_who_is_asked_too_much_is_asked_when_it_says() -> None:
    """The latest instant of all that answered 429 counts, for each of the runs."""
    run = UUID(int=1)
    request = RunRequest(run=run, slot=HOUR, attempt=1, starts_at=HOUR, ends_at=2 * HOUR)
    answers: list[HoldAnswer | ParleyError] = [
        TooManyRequests("later", 7),
        TooManyRequests("later", 9),
        PeerUnreachable("away"),
    ]
    assert refused_retry_times({HOUR: request}, answers, 5) == {HOUR: 5 + 9 * times.SECOND}
