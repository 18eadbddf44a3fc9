"""Statistics of delays, and numbers as people read them."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.plugins.figures import (
    delay_figures,
    delay_metrics,
    delay_text,
    jitter,
    metric,
    percent_text,
    rate_text,
    share,
)

delays = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


def test_figures_of_known_delays() -> None:
    """The figures of one to twenty match those computed by hand."""
    figures = delay_figures([float(delay) for delay in range(20, 0, -1)])
    assert figures is not None
    assert figures.model_dump() == {
        "min": 1,
        "median": 10.5,
        "mean": 10.5,
        "p95": 19,
        "max": 20,
        "stdev": 5.7663,
    }


def test_no_delays_no_figures() -> None:
    """Without a delay there are no figures."""
    assert delay_figures([]) is None


@given(delays)
def test_figures_agree_with_the_standard_library(delays_ms: list[float]) -> None:
    """Mean and deviation are those of the statistics module, and all lie in order."""
    figures = delay_figures(delays_ms)
    assert figures is not None
    assert figures.mean == pytest.approx(statistics.fmean(delays_ms), abs=1e-3)
    assert figures.stdev == pytest.approx(statistics.pstdev(delays_ms), abs=1e-3)
    assert figures.min <= figures.median <= figures.p95 <= figures.max or len(delays_ms) < 3


def test_jitter_takes_neighbours_only() -> None:
    """A pair counts where the packet sent just before also arrived."""
    assert jitter({0: 10.0, 1: 12.0, 3: 50.0, 4: 47.0}) == 2.5
    assert jitter({0: 10.0, 2: 12.0}) is None


@given(st.floats(-1e5, 1e5))
def test_jitter_does_not_see_the_clocks(offset_ms: float) -> None:
    """An offset between the clocks cancels out."""
    delays_ms = {0: 20.0, 1: 21.5, 2: 20.25}
    shifted = {sequence: delay + offset_ms for sequence, delay in delays_ms.items()}
    assert jitter(shifted) == pytest.approx(jitter(delays_ms), abs=1e-3)


def test_shares_stay_within_bounds() -> None:
    """A share is a fraction within 0 to 1, and a share of nothing is 0."""
    assert [share(1, 4), share(0, 0), share(5, 4), share(-1, 4)] == [0.25, 0, 1, 0]


@pytest.mark.parametrize(
    ("rate_bps", "text"),
    [
        (0, "0 b/s"),
        (999, "999 b/s"),
        (47_400_000, "47.4 Mb/s"),
        (1_980_000, "1.98 Mb/s"),
        (637_123, "637 kb/s"),
        (9_412_000_000, "9.41 Gb/s"),
        (400_000_000_000, "400 Gb/s"),
    ],
)
def test_rates_have_three_digits(rate_bps: float, text: str) -> None:
    """A rate reads with three digits and a decimal unit."""
    assert rate_text(rate_bps) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (0.01, "1 %"),
        (0.009105, "0.91 %"),
        (1, "100 %"),
        (0.1, "10 %"),
        (0.00001, "< 0.01 %"),
    ],
)
def test_loss_never_reads_as_none(fraction: float, text: str) -> None:
    """A loss is a short percentage, and never 0 % where something was lost."""
    assert percent_text(fraction) == text


def test_delays_have_two_decimals() -> None:
    """A delay reads in milliseconds with two decimals."""
    assert delay_text(20.4149) == "20.41 ms"


def test_metrics_of_delays() -> None:
    """Three figures of a distribution become series; without delays there are none."""
    metrics = delay_metrics("rtt", delay_figures([1.0, 2.0, 9.0]), {"to": "b"})
    assert [(it.name, it.value, it.unit) for it in metrics] == [
        ("rtt_median_ms", 2.0, "ms"),
        ("rtt_min_ms", 1.0, "ms"),
        ("rtt_p95_ms", 9.0, "ms"),
    ]
    assert all(it.labels == {"to": "b"} for it in metrics)
    assert delay_metrics("rtt", None) == ()


def test_a_metric_without_a_value_is_none() -> None:
    """A missing figure is left out, and a figure of 0 is not."""
    assert metric("loss", None, "1") == ()
    assert [it.value for it in metric("loss", 0.0, "1")] == [0.0]
