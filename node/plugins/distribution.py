"""Statistics of many values. Pure, and of the standard library alone: our programs use it too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

DECIMALS = 4  # of a millisecond: 0.1 us, finer than any clock used here

_MILLISECOND_NS = 1e6
_MICROSECOND_NS = 1000

BUCKETS_MAX = 50
"""Most buckets of a histogram: they are made wider until there are no more."""

Buckets = dict[int, int]
"""How many values lie in each bucket: its index, which is the value divided by the width."""


def distribution(values: Iterable[float]) -> dict[str, float] | None:
    """``min``, ``median``, ``mean``, ``p95``, ``max`` and ``stdev`` (population); None of none."""
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
    """The mean absolute delay variation of consecutive packets, in milliseconds.

    ``delays_ms`` maps sequence numbers to delays. This is the inter-packet delay variation of
    RFC 3393 with RFC 5481's section 4.1 selection (each packet against the one sent just before
    it), averaged without sign; pairs with a lost packet do not count. An offset between the clocks
    cancels out. ``None`` without a single pair.
    """
    steps = [
        abs(delay - delays_ms[sequence - 1])
        for sequence, delay in delays_ms.items()
        if sequence - 1 in delays_ms
    ]
    return round(math.fsum(steps) / len(steps), DECIMALS) if steps else None


def histogram(values: Iterable[int]) -> tuple[int, Buckets]:
    """The width of the buckets, a power of two and as small as allowed, and the buckets.

    Widths that are powers of two let histograms be added: see :func:`add_up`.
    """
    return narrowed(1, Counter(values))


def narrowed(width: int, buckets: Buckets) -> tuple[int, Buckets]:
    """The same histogram with buckets so wide that there are no more than allowed."""
    while len(buckets) > BUCKETS_MAX:
        width, buckets = 2 * width, _widened(buckets, 2)
    return width, dict(buckets)


def add_up(histograms: Sequence[tuple[int, Buckets]]) -> tuple[int, Buckets]:
    """One histogram of all values; its buckets are at least as wide as the widest."""
    width = max((width for width, _ in histograms), default=1)
    together: Counter[int] = Counter()
    for each, buckets in histograms:
        together.update(_widened(buckets, width // each))
    return narrowed(width, together)


def quantile(width: int, buckets: Buckets, fraction: float) -> float | None:
    """The middle of the bucket that holds the quantile (nearest rank); None without values."""
    count = sum(buckets.values())
    rank = max(1, math.ceil(fraction * count))
    for bucket in sorted(buckets):
        rank -= buckets[bucket]
        if rank <= 0:
            return (bucket + 0.5) * width
    return None


def both_ways(ways_ns: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    """The figures of packets by number, of each the nanoseconds there and back.

    ``delay_ms``, ``jitter_ms`` and ``histogram_us``, each with ``forward``, ``backward`` and
    ``round_trip``.
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


def _widened(buckets: Mapping[int, int], factor: int) -> Counter[int]:
    wider: Counter[int] = Counter()
    for bucket, count in buckets.items():
        wider[bucket // factor] += count
    return wider
