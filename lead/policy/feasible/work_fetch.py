"""Pull mode: when a node asks for work, which lead it asks, and for how much. Pure.

A node that no lead can reach keeps a buffer of work: it asks whenever all its seats are busy for
less than ``low`` from now. When it contacts a lead for another reason, it also asks, as long as
they are busy for less than ``high``. It asks the lead whose campaign has the highest standing,
counting what it has already queued.

Nodes that fetch their work here keep a question open at every lead and state in it what they need,
so which lead to ask need not be decided. The amount a node would ask for determines which nodes a
lead prefers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from node.model import times
from node.model.spare_capacity import SpareCapacity

LOW_MIN: Final = 3 * times.MINUTE
"""The minimum of ``low``: a shorter buffer would make the node ask all the time."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The time ahead (µs) for which a node should have work: at least ``low``, up to ``high``."""

    low: int
    high: int


def buffer_of(low: int = times.DAY // 10, more: int = times.DAY // 2) -> Buffer:
    """Return the configured buffer: at least ``low`` µs, and up to ``more`` µs beyond that."""
    low = max(low, LOW_MIN)
    return Buffer(low, low + more)


def amount_to_ask(
    spare: SpareCapacity, buffer: Buffer, *, on_contact: bool = False, stands_highest: bool = True
) -> float:
    """Return how much work to ask for (seat-µs); 0 means not to ask.

    ``on_contact``: the node contacts this lead anyway. ``stands_highest``: this lead has the
    highest standing of all that may be asked.
    """
    enough = buffer.high if on_contact else buffer.low
    if not stands_highest or spare.saturated >= enough:
        return 0
    return spare.shortfall
