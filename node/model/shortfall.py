"""The work that a node could still take, computed from its own run table. Pure.

A node counts as one seat: it is busy during runs that an exclusive run must avoid. Instants and
durations in µs, spans half-open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.model.spans import Span
from node.model.spare_capacity import Stretch, spare_capacity


@dataclass(frozen=True, slots=True)
class Shortfall:
    """``missing`` is the idle time (µs) in the period; nothing new begins before ``busy_until``.

    ``busy_until`` is the end of the first stretch of bookings without a gap; now if the node is
    idle. Later bookings can be displaced or planned around, so only the first stretch counts.
    """

    missing: int
    busy_until: int


def shortfall(busy: Sequence[Span], now: int, until: int) -> Shortfall:
    """Return the shortfall over ``[now, until)``; ``busy`` is a span set."""
    stretches: list[Stretch] = []
    for start, end in busy:
        before = stretches[-1][1] if stretches else now
        stretches += [(before, start, 0)] if before < start else []
        stretches += [(start, end, 1)] if now < end else []
    ahead = spare_capacity(stretches, 1, now, until)
    return Shortfall(int(ahead.shortfall), now + ahead.saturated)
