"""Statistics of many values, and histograms that can be added."""

from __future__ import annotations

import math
import statistics

from hypothesis import given
from hypothesis import strategies as st

from node.plugins.distribution import (
    BUCKETS_MAX,
    add_up,
    distribution,
    histogram,
    quantile,
)

values = st.lists(st.integers(-(10**9), 10**9), max_size=300)
some = st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=300)


@given(some)
def test_figures_are_those_of_the_statisticians(given: list[int]) -> None:
    """Median, mean and deviation are those of the standard library."""
    figures = distribution(given)
    assert figures is not None
    assert figures["median"] == round(statistics.median(given), 4)
    assert math.isclose(figures["mean"], statistics.fmean(given), rel_tol=1e-9, abs_tol=1e-3)
    assert math.isclose(figures["stdev"], statistics.pstdev(given), rel_tol=1e-6, abs_tol=1e-3)
    assert figures["min"] <= figures["median"] <= figures["p95"] <= figures["max"]


def test_no_values_have_no_figures() -> None:
    """Without values there are no figures and no quantile."""
    assert distribution([]) is None
    assert quantile(1, {}, 0.5) is None


@given(values)
def test_a_histogram_has_every_value_in_few_buckets(given: list[int]) -> None:
    """All values are counted, in no more buckets than allowed and none wider than necessary."""
    width, buckets = histogram(given)
    assert sum(buckets.values()) == len(given)
    assert len(buckets) <= BUCKETS_MAX
    assert buckets.keys() == {value // width for value in given}
    assert width == 1 or len({value // (width // 2) for value in given}) > BUCKETS_MAX


@given(st.lists(values, max_size=5))
def test_histograms_add_up(parts: list[list[int]]) -> None:
    """The sum of histograms contains all values, in buckets at least as wide."""
    width, buckets = add_up([histogram(part) for part in parts])
    every = [value for part in parts for value in part]
    assert width >= histogram(every)[0]
    counts: dict[int, int] = {}
    for value in every:
        counts[value // width] = counts.get(value // width, 0) + 1
    assert buckets == counts


@given(some, st.floats(0.01, 1))
def test_a_quantile_is_as_exact_as_its_bucket(given: list[int], fraction: float) -> None:
    """The quantile lies within half a bucket of the value of that rank."""
    width, buckets = histogram(given)
    exact = sorted(given)[max(1, math.ceil(fraction * len(given))) - 1]
    value = quantile(width, buckets, fraction)
    assert value is not None
    assert abs(value - exact) <= width / 2
