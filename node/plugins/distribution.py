"""Statistics of many values. Pure; uses only the standard library, for our programs need it too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DECIMALS = 4  # of a millisecond: 0.1 us, finer than any clock used here

_MILLISECOND_NS = 1e6
_MICROSECOND_NS = 1000

BUCKETS_MAX = 50
"""Maximum number of buckets of a histogram; they are widened until it is met."""

Buckets = dict[int, int]
"""The number of values in each bucket, by its index: the value divided by the bucket width."""


def distribution(values: Iterable[float]) -> dict[str, float] | None:
    """Return min, median, mean, p95, max and (population) stdev by name; None without values."""
    ordered = sorted(values)
    if not ordered:
        return None
    count = len(ordered)
    rank = math.ceil(0.95 * count)  # nearest rank: an observed value, also in small sets
    mean = math.fsum(ordered) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / count)
    figures = {
        "min": ordered[0],
        "median": (ordered[(count - 1) // 2] + ordered[count // 2]) / 2,
        "mean": mean,
        "p95": ordered[rank - 1],
        "max": ordered[-1],
        "stdev": deviation,
    }
    return {name: round(value, DECIMALS) for name, value in figures.items()}


def jitter(delays_ms: Mapping[int, float]) -> float | None:
    """Return the mean absolute delay variation of consecutive packets, in milliseconds.

    ``delays_ms`` maps sequence numbers to delays. This is the inter-packet delay variation of
    RFC 3393 with the selection of RFC 5481 section 4.1 (each packet against the one sent just
    before it), averaged without sign; pairs with a lost packet do not count. An offset between the
    clocks cancels out. ``None`` without a single pair.
    """
    steps = [
        abs(delay - delays_ms[sequence - 1])
        for sequence, delay in delays_ms.items()
        if sequence - 1 in delays_ms
    ]
    return round(math.fsum(steps) / len(steps), DECIMALS) if steps else None


def histogram(values: Iterable[int]) -> tuple[int, Buckets]:
    """Return the width of the buckets (the smallest power of two that is allowed) and the buckets.

    With powers of two as widths, histograms can be added: see :func:`add_up`.
    """
    return narrowed_histogram(1, Counter(values))


def narrowed_histogram(width: int, buckets: Buckets) -> tuple[int, Buckets]:
    """Return the same histogram with buckets widened until there are no more than allowed."""
    while len(buckets) > BUCKETS_MAX:
        width, buckets = 2 * width, _widened_buckets(buckets, 2)
    return width, dict(buckets)


def add_up(histograms: Sequence[tuple[int, Buckets]]) -> tuple[int, Buckets]:
    """Return one histogram of all values; its buckets are at least as wide as the widest."""
    width = max((width for width, _ in histograms), default=1)
    sums: Counter[int] = Counter()
    for each, buckets in histograms:
        sums.update(_widened_buckets(buckets, width // each))
    return narrowed_histogram(width, sums)


def quantile(width: int, buckets: Buckets, fraction: float) -> float | None:
    """Return the middle of the bucket with the quantile (nearest rank); None without values."""
    count = sum(buckets.values())
    rank = max(1, math.ceil(fraction * count))
    for bucket in sorted(buckets):
        rank -= buckets[bucket]
        if rank <= 0:
            return (bucket + 0.5) * width
    return None


def both_ways(ways_ns: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    """Return the figures of packets: their numbers map to the nanoseconds there and back.

    The keys are ``delay_ms``, ``jitter_ms`` and ``histogram_us``, each with ``forward``,
    ``backward`` and ``round_trip``.
    """
    delays_ns = {
        "forward": {at: there for at, (there, _) in ways_ns.items()},
        "backward": {at: back for at, (_, back) in ways_ns.items()},
        "round_trip": {at: there + back for at, (there, back) in ways_ns.items()},
    }
    in_ms = {
        way: {at: delay / _MILLISECOND_NS for at, delay in delays.items()}
        for way, delays in delays_ns.items()
    }
    return {
        "delay_ms": {way: distribution(delays.values()) for way, delays in in_ms.items()},
        "jitter_ms": {way: jitter(delays) for way, delays in in_ms.items()},
        "histogram_us": {way: _histogram_us(delays) for way, delays in delays_ns.items()},
    }


def _histogram_us(delays_ns: Mapping[int, int]) -> dict[str, Any]:
    width, buckets = histogram(delay // _MICROSECOND_NS for delay in delays_ns.values())
    return {"width": width, "buckets": sorted(buckets.items())}


def _widened_buckets(buckets: Mapping[int, int], factor: int) -> Counter[int]:
    wider: Counter[int] = Counter()
    for bucket, count in buckets.items():
        wider[bucket // factor] += count
    return wider
