"""The spare capacity of a node, from its own runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.model.shortfall import shortfall
from node.model.spans import Span, normalise

INSTANTS = st.integers(0, 40)
SPANS = st.lists(
    st.tuples(INSTANTS, INSTANTS).filter(lambda span: span[0] < span[1]), max_size=8
).map(normalise)


def test_an_idle_node_lacks_all_work() -> None:
    """An idle node lacks work for all of the time ahead, and is not busy."""
    result = shortfall([], 10, 25)
    assert (result.missing, result.busy_until) == (15, 10)


def test_only_the_first_stretch_makes_a_node_busy() -> None:
    """A run after a gap fills time, but something new can begin before it."""
    result = shortfall([(5, 12), (14, 18)], 10, 25)
    assert (result.missing, result.busy_until) == (15 - 2 - 4, 12)


def test_a_node_may_be_busy_beyond_the_period() -> None:
    """A run that lasts beyond the period makes the node busy until the run's end."""
    result = shortfall([(0, 90)], 10, 25)
    assert (result.missing, result.busy_until) == (0, 90)


@given(SPANS, INSTANTS, INSTANTS)
def test_the_figures_agree_with_counting_every_instant(
    busy: list[Span], now: int, length: int
) -> None:
    """Counting every instant gives the same figures."""

    def taken(instant: int) -> bool:
        return any(start <= instant < end for start, end in busy)

    result = shortfall(busy, now, now + length)
    assert result.missing == sum(not taken(now + n) for n in range(length))
    assert all(taken(instant) for instant in range(now, result.busy_until))
    assert not taken(result.busy_until)
