"""The spare capacity of a number of seats, computed from the stretches of their use. Pure.

Stretches ``(start, end, used)`` follow each other without gaps; after the last one nothing is in
use. Instants in µs, seats in whole seats, amounts in seat-µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Stretch = tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class SpareCapacity:
    """The work that a node or a pool can still take.

    ``shortfall`` is the work (seat-µs) missing to keep all seats busy over the period looked at,
    ``saturated`` how long from now on all seats are busy (µs), ``idle_now`` how many are idle now.
    """

    shortfall: float
    saturated: int
    idle_now: float


def spare_capacity(stretches: Sequence[Stretch], seats: int, now: int, until: int) -> SpareCapacity:
    """Compute the spare capacity over ``[now, until)``; the saturated time may be longer.

    Only the first stretch of full seats counts as saturated: what starts later can be moved.
    """
    idle: float = seats * (until - now)
    saturated, full = now, True
    for start, end, used in stretches:
        idle -= min(used, seats) * max(0, min(end, until) - max(start, now))
        full = full and used >= seats
        saturated = end if full else saturated
    first = stretches[0][2] if stretches else 0
    return SpareCapacity(idle, saturated - now, max(0, seats - first))
