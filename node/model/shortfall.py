"""What a node's own run table says of the work it could still take. Pure.

A node counts as one seat here: it is busy while a run has it that an exclusive one must avoid.
Instants and durations in µs, spans half-open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.model.spans import Span
from node.model.spare_capacity import Stretch, outlook


@dataclass(frozen=True, slots=True)
class Shortfall:
    """``missing`` (µs) is idle within what was looked at; nothing new begins before an instant.

    ``busy_until`` ends the first stretch of bookings without a gap; it is now if the node is idle.
    What is booked later can be displaced or planned around, so only the first stretch counts.
    """

    missing: int
    busy_until: int


def shortfall(busy: Sequence[Span], now: int, until: int) -> Shortfall:
    """The shortfall over ``[now, until)``; ``busy`` is sorted and disjoint, as merged."""
    stretches: list[Stretch] = []
    for start, end in busy:
        before = stretches[-1][1] if stretches else now
        stretches += [(before, start, 0)] if before < start else []
        stretches += [(start, end, 1)] if now < end else []
    ahead = outlook(stretches, 1, now, until)
    return Shortfall(int(ahead.shortfall), now + ahead.saturated)
