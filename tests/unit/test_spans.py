"""Spans and span sets, with portion as the oracle."""

from __future__ import annotations

from itertools import pairwise

import portion
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model import spans
from node.model.spans import Span

# Few distinct numbers, so that spans often touch, nest and coincide.
INSTANTS = st.integers(0, 24)
LOOSE = st.lists(st.tuples(INSTANTS, INSTANTS), max_size=12)
SETS = LOOSE.map(spans.normalise)


def oracle(loose: list[Span]) -> portion.Interval:
    """Return the same spans in portion, added one by one."""
    interval = portion.empty()
    for start, end in loose:
        interval |= portion.closedopen(start, end)
    return interval


def is_span_set(candidate: list[Span]) -> bool:
    """Return whether spans are non-empty, ascending, and apart."""
    ordered = all(left[1] < right[0] for left, right in pairwise(candidate))
    return ordered and all(start < end for start, end in candidate)


@given(LOOSE)
def test_normalise_is_the_union(loose: list[Span]) -> None:
    """Any spans become sorted, disjoint, coalesced spans that hold the same instants."""
    result = spans.normalise(loose)
    assert is_span_set(result)
    assert result == spans.from_portion(oracle(loose))


@given(SETS)
def test_normalise_keeps_a_span_set(given_set: list[Span]) -> None:
    """A span set is left as it is."""
    assert spans.normalise(given_set) == given_set


@given(st.lists(LOOSE, max_size=5))
def test_union_agrees_with_portion(sets: list[list[Span]]) -> None:
    """The union of many sets agrees with portion."""
    expected = portion.empty()
    for loose in sets:
        expected |= oracle(loose)
    assert spans.union(sets) == spans.from_portion(expected)


@given(SETS, SETS)
def test_intersect_agrees_with_portion(left: list[Span], right: list[Span]) -> None:
    """The sweep finds the same intersection as portion."""
    result = spans.intersect(left, right)
    assert is_span_set(result)
    assert result == spans.from_portion(oracle(left) & oracle(right))


@given(SETS, SETS)
def test_subtract_agrees_with_portion(left: list[Span], right: list[Span]) -> None:
    """The sweep finds the same difference as portion."""
    result = spans.subtract(left, right)
    assert is_span_set(result)
    assert result == spans.from_portion(oracle(left) - oracle(right))


@given(SETS, INSTANTS, INSTANTS)
def test_clip_agrees_with_portion(given_set: list[Span], earliest: int, latest: int) -> None:
    """Clipping keeps what lies between two instants, nothing if they are the wrong way round."""
    expected = oracle(given_set) & portion.closedopen(earliest, latest)
    assert spans.clip(given_set, earliest, latest) == spans.from_portion(expected)


@given(SETS, st.integers(0, 24))
def test_at_least_keeps_what_is_long_enough(given_set: list[Span], duration: int) -> None:
    """A span stays exactly if a run of the duration fits into it."""
    kept = spans.at_least(given_set, duration)
    assert kept == [span for span in given_set if span[0] + duration <= span[1]]


@given(SETS, SETS)
def test_parts_make_the_whole(left: list[Span], right: list[Span]) -> None:
    """The intersection and the difference of two sets together are the first set."""
    parts = [spans.intersect(left, right), spans.subtract(left, right)]
    assert spans.union(parts) == left


@given(LOOSE)
def test_portion_round_trip(loose: list[Span]) -> None:
    """Conversion to portion and back normalises and changes nothing else."""
    assert spans.from_portion(spans.to_portion(loose)) == spans.normalise(loose)


def test_touching_spans_unite_and_do_not_meet() -> None:
    """Spans that only touch become one in a union and share nothing."""
    assert spans.union([[(0, 5)], [(5, 9)]]) == [(0, 9)]
    assert spans.intersect([(0, 5)], [(5, 9)]) == []


@pytest.mark.parametrize(
    "interval",
    [
        portion.closed(1, 2),
        portion.open(1, 2),
        portion.openclosed(1, 2),
        portion.closedopen(1, portion.inf),
        portion.open(-portion.inf, 2),
        portion.closedopen(0, 1) | portion.singleton(5),
    ],
)
def test_other_intervals_are_refused(interval: portion.Interval) -> None:
    """An interval that is not a span set is refused, not rounded."""
    with pytest.raises(ValueError, match="not a half-open"):
        spans.from_portion(interval)
