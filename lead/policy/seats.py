"""The quantities that share policies count: stakes of campaigns and free seats. Pure.

Amounts are whole seats or seat-µs, as the caller chooses, but the same throughout one division.
None means unlimited.
"""

from __future__ import annotations

from dataclasses import dataclass

from lead.policy.view import SUSPENDED, URGENT, Exact


@dataclass(frozen=True, slots=True)
class CampaignStake:
    """The amounts that one campaign holds, wants, and has used.

    ``waiting`` is what its due runs want beyond ``allocated``; ``most`` is the maximum it may hold
    at once. ``usage`` is in any unit that is the same for all.
    """

    name: str
    weight: Exact = 1
    level: int = 5
    allocated: int = 0
    waiting: int | None = None
    most: int | None = None
    usage: int = 0
    created_at: int = 0

    @property
    def addable(self) -> int | None:
        """Return the amount that it may still add."""
        room = None if self.most is None else max(0, self.most - self.allocated)
        if self.waiting is None or room is None:
            return room if self.waiting is None else self.waiting
        return min(self.waiting, room)

    @property
    def demand(self) -> int | None:
        """Return what it holds and may add, bounded by its maximum, which may be new."""
        added = self.addable
        if added is None:
            return None
        total = self.allocated + added
        return total if self.most is None else min(total, self.most)

    @property
    def active(self) -> bool:
        """Return whether it takes part: not suspended, and with runs running or waiting."""
        return self.level != SUSPENDED and bool(self.allocated or self.waiting != 0)

    @property
    def urgent(self) -> bool:
        """Return whether it is served before all others."""
        return self.level >= URGENT


@dataclass
class FreeSeats:
    """Free seats that are handed out one after the other; all are alike."""

    free: int

    def take(self, name: str, wanted: int | None) -> int:
        """Take as many seats as this campaign wants and are left; return their number."""
        del name
        count = self.free if wanted is None else min(wanted, self.free)
        self.free -= count
        return count
