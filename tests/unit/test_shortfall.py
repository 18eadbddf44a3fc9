"""How much work a node could still take, by its own run table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.model.shortfall import shortfall
from node.model.spans import Span, normalise

INSTANTS = st.integers(0, 40)
SPANS = st.lists(
    st.tuples(INSTANTS, INSTANTS).filter(lambda span: span[0] < span[1]), max_size=8
).map(normalise)


def test_an_idle_node_misses_everything() -> None:
    """With nothing booked all of the time ahead is missing, and it is not busy at all."""
    found = shortfall([], 10, 25)
    assert (found.missing, found.busy_until) == (15, 10)


def test_only_the_first_stretch_keeps_it_busy() -> None:
    """What begins after a gap fills time, but something new can begin before it."""
    found = shortfall([(5, 12), (14, 18)], 10, 25)
    assert (found.missing, found.busy_until) == (15 - 2 - 4, 12)


def test_a_node_is_busy_beyond_what_is_looked_at() -> None:
    """A run that lasts longer than the time looked at says so."""
    found = shortfall([(0, 90)], 10, 25)
    assert (found.missing, found.busy_until) == (0, 90)


@given(SPANS, INSTANTS, INSTANTS)
def test_every_instant_is_counted(busy: list[Span], now: int, length: int) -> None:
    """The figures are those that looking at each instant gives."""

    def taken(instant: int) -> bool:
        return any(start <= instant < end for start, end in busy)

    found = shortfall(busy, now, now + length)
    assert found.missing == sum(not taken(now + n) for n in range(length))
    assert all(taken(instant) for instant in range(now, found.busy_until))
    assert not taken(found.busy_until)
