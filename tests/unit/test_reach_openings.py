"""When the workers look again for tasks that wait for a silent participant."""

from __future__ import annotations

import random
from typing import cast

from lead.participants import Participant
from lead.reach import Reach
from node.model import times
from tests.clocks import ManualClock


class _Silent:
    """A participant as far as it is asked for here."""

    identity = "key of b"
    name = "b"


class _Other(_Silent):
    """Another one."""

    identity = "key of c"
    name = "c"


def test_an_opening_that_has_come_is_no_reason_to_look_again_at_once() -> None:
    """Else the workers of a lead go round in circles until a task that needs it is due."""
    clock = ManualClock()
    reach = Reach(clock, random.Random(1), workers=8)
    reach.not_heard(cast("Participant", _Silent()), "no answer", clock.now())
    assert reach.closed() == [_Silent.identity]
    opening = reach.next_opening()
    assert opening is not None
    assert opening > clock.now()
    clock.advance(times.MINUTE)
    assert reach.next_opening() is None
    assert reach.closed() == []
    assert reach.openings() == [(_Silent.identity, 1)]


def test_who_needs_two_silent_ones_waits_for_the_one_that_is_being_asked() -> None:
    """Else its task is claimed again and again as long as the other question is under way."""
    clock = ManualClock()
    reach = Reach(clock, random.Random(1), workers=8)
    for silent in (_Silent(), _Other()):
        reach.not_heard(cast("Participant", silent), "no answer", clock.now())
        clock.advance(10 * times.SECOND)
    clock.advance(times.MINUTE)
    with reach.visit([_Silent.identity]):
        blocking = reach.silence_among([_Silent.identity, _Other.identity])
        assert blocking is not None
        assert blocking[0] == _Silent.identity
