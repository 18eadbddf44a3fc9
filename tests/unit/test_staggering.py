"""Turns of preparation: no two owners share one, and none is earlier than needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.execution.staggering import NEAR_TURNS, STAGGER_INTERVAL, StartStaggerer

START = 1_000_000_000_000


@given(st.lists(st.tuples(st.integers(0, 20 * STAGGER_INTERVAL), st.booleans()), max_size=20))
def test_nobody_has_anothers_turn(wanted: list[tuple[int, bool]]) -> None:
    """Each owner gets the last free turn, and returned turns are free again."""
    turns, held = StartStaggerer[int](), set[int]()
    for who, (after, gives_back) in enumerate(wanted):
        latest = START + after
        turn = turns.take(who, latest)
        assert turn not in held
        assert turn <= latest
        assert all(
            between in held
            for between in range(turn + STAGGER_INTERVAL, latest + 1, STAGGER_INTERVAL)
        )
        held.add(turn)
        if gives_back:
            turns.give_back(who)
            held.remove(turn)


def test_many_that_are_due_together_are_spread() -> None:
    """Simultaneous starts get consecutive turns; beyond forty, half of the time is left free."""
    turns = StartStaggerer[int]()
    given_out = [turns.take(who, START) for who in range(500)]
    places = [*range(NEAR_TURNS), *range(NEAR_TURNS, NEAR_TURNS + 2 * (500 - NEAR_TURNS), 2)]
    assert given_out == [START - place * STAGGER_INTERVAL for place in places]
