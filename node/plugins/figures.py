"""Statistics of delays, numbers as people read them, and what a figure may be. Pure.

Delays are milliseconds everywhere here. One-way delays may be negative when the clocks of the two
hosts differ; that is accepted everywhere here. A faulty third-party plugin must not keep anyone
from reading the runs of others, so figures are checked before they are stored, and once more before
they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import Field

from node.model.times import SECOND
from node.model.wire.fields import Document
from node.plugins.contracts import Metric
from node.plugins.distribution import distribution
from node.plugins.distribution import jitter as jitter  # noqa: PLC0414 - tools take it from here
from node.plugins.fields import Finite, NonNegative

_NANOSECONDS_PER_MS = 1e6
_LEAST_SHOWN = 0.00005


MEGABIT = 1_000_000
"""Bits."""


def traffic(bits: int, per: int = SECOND) -> dict[str, int]:
    """Return ``bits`` per ``per`` µs as a need of ``mbps``: whole Mb/s, rounded up.

    A rate below 1 Mb/s needs nothing: a thousand pings are no burden, and would otherwise count as
    a thousand Mb/s.
    """
    needed = bits * SECOND
    return {"mbps": -(-needed // (MEGABIT * per))} if needed >= MEGABIT * per else {}


class KnownDelays(Document):
    """The distribution of delays in milliseconds, as far as it is known."""

    min: Finite = Field(description="The smallest delay, in milliseconds.")
    median: Finite | None = Field(description="The median delay, in milliseconds; null if unknown.")
    mean: Finite = Field(description="The arithmetic mean of the delays, in milliseconds.")
    p95: Finite | None = Field(
        description="The 95th percentile (nearest rank), in milliseconds; null if unknown."
    )
    max: Finite = Field(description="The largest delay, in milliseconds.")
    stdev: NonNegative | None = Field(
        description="The population standard deviation, in milliseconds; null if unknown."
    )


class DelayFigures(KnownDelays):
    """The distribution of delays in milliseconds."""

    min: Finite = Field(description="The smallest delay, in milliseconds.")
    median: Finite = Field(description="The median delay, in milliseconds.")
    mean: Finite = Field(description="The arithmetic mean of the delays, in milliseconds.")
    p95: Finite = Field(description="The 95th percentile (nearest rank), in milliseconds.")
    max: Finite = Field(description="The largest delay, in milliseconds.")
    stdev: NonNegative = Field(description="The population standard deviation, in milliseconds.")


def delay_figures(delays_ms: Sequence[float]) -> DelayFigures | None:
    """Return the figures of a set of delays; ``None`` if it is empty."""
    figures = distribution(delays_ms)
    return DelayFigures.model_validate(figures) if figures else None


def milliseconds(nanoseconds: int) -> float:
    """Convert nanoseconds to milliseconds."""
    return nanoseconds / _NANOSECONDS_PER_MS


def share(part: int, whole: int) -> float:
    """Return ``part`` / ``whole`` within 0 to 1, to a millionth; 0 if ``whole`` is 0."""
    return round(min(1.0, max(0.0, part / whole)), 6) if whole else 0.0


def delay_text(delay_ms: float) -> str:
    """Return ``20.41 ms``."""
    return f"{delay_ms:.2f} ms"


def percent_text(fraction: float) -> str:
    """Return ``1 %``, ``0.25 %``; a fraction above 0 is never shown as 0."""
    if 0 < fraction < _LEAST_SHOWN:
        return "< 0.01 %"
    return f"{100 * fraction:.2f}".rstrip("0").rstrip(".") + " %"


def rate_text(rate_bps: float) -> str:
    """Return bits per second with three digits and a decimal unit: ``47.4 Mb/s``."""
    for factor, unit in ((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if rate_bps >= factor:
            return f"{_three_digits(rate_bps / factor)} {unit}"
    return f"{rate_bps:.0f} b/s"


def _three_digits(value: float) -> str:
    whole_digits = len(str(int(value)))
    return f"{value:.{max(0, 3 - whole_digits)}f}"


def delay_metrics(
    name: str, delays: KnownDelays | None, labels: Mapping[str, str] | None = None
) -> tuple[Metric, ...]:
    """Return median, minimum and 95th percentile as ``NAME_median_ms`` …; empty without delays."""
    if delays is None:
        return ()
    figures = {"median": delays.median, "min": delays.min, "p95": delays.p95}
    return tuple(
        Metric(f"{name}_{which}_ms", value, "ms", labels or {})
        for which, value in figures.items()
        if value is not None
    )


def metric(
    name: str, value: float | None, unit: str, labels: Mapping[str, str] | None = None
) -> tuple[Metric, ...]:
    """Return one metric, or none without a value, as a tuple that can be joined with others."""
    return () if value is None else (Metric(name, value, unit, labels or {}),)


def faults_of(metrics: Iterable[object]) -> Iterator[str]:
    """Yield the fault of each bad figure, for a sentence that begins with the plugin's name."""
    return (fault for each in metrics if (fault := _fault_of(each)) is not None)


def usable_metrics(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return the metrics that can be stored, sent and read again."""
    return tuple(each for each in metrics if _fault_of(each) is None)


def _fault_of(metric: object) -> str | None:
    if not isinstance(metric, Metric):
        return f"returned {metric!r} as a figure, not a Metric"[:200]
    name: object = metric.name
    unit: object = metric.unit
    labels: object = metric.labels
    if not isinstance(name, str) or not name:
        return f"gave a figure the name {name!r}"[:200]
    if not _is_number(metric.value):
        return f"gave {name!r} the value {metric.value!r}, which is not a number"[:200]
    if not isinstance(unit, str):
        return f"gave {name!r} the unit {unit!r}, which is not a text"[:200]
    if not isinstance(labels, Mapping) or not all(
        isinstance(word, str) for pair in labels.items() for word in pair
    ):
        return f"gave {name!r} the labels {labels!r}, which are not texts"[:200]
    return None


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond what any database can hold
        return False
