"""When a node asks for work, whom, and for how much: pull mode. Pure.

A node that no lead can reach keeps a buffer of work: it asks whenever all its seats are busy for
less than ``low`` from now, and asks on the way, when it speaks to a lead for another reason, as
long as they are busy for less than ``high``. It asks the lead whose campaign stands highest once
what it has already queued is taken into account.

Nodes that fetch their work here keep a question open at every lead and say with it what they need:
whom to ask need not be decided. What a node would ask for decides which nodes a lead puts first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from node.model import times
from node.model.spare_capacity import SpareCapacity

LOW_MIN: Final = 3 * times.MINUTE
"""A buffer shorter than this would have the node ask all the time."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """How far ahead (µs) a node should have work at least, and not much more than."""

    low: int
    high: int


def buffer_of(low: int = times.DAY // 10, more: int = times.DAY // 2) -> Buffer:
    """The buffer as it is configured: at least ``low``, and up to ``more`` beyond that."""
    low = max(low, LOW_MIN)
    return Buffer(low, low + more)


def amount_to_ask(
    outlook: SpareCapacity, buffer: Buffer, *, on_contact: bool = False, stands_highest: bool = True
) -> float:
    """How much work to ask for (seat-µs); 0 is not at all.

    ``on_contact``: the node speaks to this lead anyway. ``stands_highest``: of all that may be
    asked, this lead is the one to ask.
    """
    enough = buffer.high if on_contact else buffer.low
    if not stands_highest or outlook.saturated >= enough:
        return 0
    return outlook.shortfall


def adjusted(standing: float, queued: float, buffer: Buffer, seats: int) -> float:
    """A standing less the work already queued (seat-µs), as a part of what fills the buffer."""
    return standing - queued / (buffer.high * seats)


def whom_to_ask(standings: Mapping[str, float], may_be_asked: Collection[str]) -> str | None:
    """The highest standing of those that may be asked, by name where level; None is nobody."""
    asked = sorted(may_be_asked, key=lambda name: (-standings[name], name))
    return asked[0] if asked else None


def seats_to_ask(idle_now: float, seats: int, share: float, queued_seats: float) -> float:
    """For how many seats: the idle ones, or what is missing to the asked one's part of all."""
    return max(idle_now, seats * share - queued_seats, 0)
