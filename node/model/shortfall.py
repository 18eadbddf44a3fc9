"""What a node's own run table says of the work it could still take. Pure.

A node counts as one seat here: it is busy while a run has it that an exclusive one must avoid.
Instants and durations in µs, spans half-open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.model.spans import Span


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
    missing, busy_until = until - now, now
    for start, end in busy:
        missing -= max(0, min(end, until) - max(start, now))
        if start <= busy_until < end:
            busy_until = end
    return Shortfall(missing, busy_until)
