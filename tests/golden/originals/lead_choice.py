"""Choice of the lead that a node asks for work, and for how many seats. Pure.

Nodes of Parley keep a question open at every lead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lead.policy.feasible.work_fetch import Buffer


def adjusted(standing: float, queued: float, buffer: Buffer, seats: int) -> float:
    """Return a standing less the queued work (seat-µs), as a part of what fills the buffer."""
    return standing - queued / (buffer.high * seats)


def whom_to_ask(standings: Mapping[str, float], may_be_asked: Collection[str]) -> str | None:
    """Return the lead with the highest standing that may be asked, by name on a tie."""
    ranked = sorted(may_be_asked, key=lambda name: (-standings[name], name))
    return ranked[0] if ranked else None


def seats_to_ask(idle_now: float, seats: int, share: float, queued_seats: float) -> float:
    """Return the number of seats to ask for: the idle ones, or what the lead's part lacks."""
    return max(idle_now, seats * share - queued_seats, 0)
