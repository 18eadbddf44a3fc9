"""Growing pauses after repeated refusals."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from node.model.backoff import jittered_pause, pause

LENGTHS = st.integers(1, 10**12)


def test_the_pause_doubles_up_to_a_day() -> None:
    """The pause doubles from ten minutes up to a day, and a success ends it."""
    pauses = [pause(failures, 600, 86_400) for failures in range(1, 11)]
    assert pauses == [600, 1200, 2400, 4800, 9600, 19200, 38400, 76800, 86400, 86400]
    assert pause(0, 600, 86_400) == 0


@given(st.integers(0, 10_000), LENGTHS, LENGTHS, st.integers())
def test_the_pause_is_jittered(failures: int, first: int, most: int, seed: int) -> None:
    """A pause is drawn between half and one and a half of its nominal length."""
    undrawn = pause(failures, first, most)
    result = jittered_pause(failures, first, most, random.Random(seed))
    assert undrawn // 2 <= result <= undrawn + undrawn // 2 + 1
    assert undrawn <= most


@given(st.integers(0, 10_000), LENGTHS, LENGTHS)
def test_the_pause_never_shrinks(failures: int, first: int, most: int) -> None:
    """One more failure never makes the pause shorter."""
    assert pause(failures, first, most) <= pause(failures + 1, first, most)
