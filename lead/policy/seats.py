"""What share policies count with: what a campaign holds and wants, and the free seats. Pure.

Amounts are whole seats or seat-µs, as the caller likes, but the same everywhere in one division;
None stands for no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lead.policy.view import SUSPENDED, URGENT, Exact


@dataclass(frozen=True, slots=True)
class CampaignStake:
    """What one campaign holds, wants and has used.

    ``waiting`` is what its due runs want beyond ``allocated``; ``most`` is what it may hold at
    once. ``usage`` is in any unit that is the same for all.
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
        """What it may still add."""
        room = None if self.most is None else max(0, self.most - self.allocated)
        if self.waiting is None or room is None:
            return room if self.waiting is None else self.waiting
        return min(self.waiting, room)

    @property
    def demand(self) -> int | None:
        """What it holds and may add, and no more than it may hold: its limit may be new."""
        added = self.addable
        if added is None:
            return None
        held = self.allocated + added
        return held if self.most is None else min(held, self.most)

    @property
    def active(self) -> bool:
        """Whether it takes part: not suspended, and something is running or waits to."""
        return self.level != SUSPENDED and bool(self.allocated or self.waiting != 0)

    @property
    def urgent(self) -> bool:
        """Whether it goes before all others."""
        return self.level >= URGENT


@dataclass
class FreeSeats:
    """Free seats that are handed out one after the other; all are alike."""

    free: int

    def take(self, name: str, wanted: int | None) -> int:
        """As many as are wanted and left for this campaign."""
        del name
        taken = self.free if wanted is None else min(wanted, self.free)
        self.free -= taken
        return taken


@dataclass
class NamedSeats(FreeSeats):
    """Free seats of which each campaign may use only some; taken in the order of their names."""

    names: list[str] = field(default_factory=list)
    eligible: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str], eligible: Mapping[str, frozenset[str]]) -> NamedSeats:
        """These seats; a campaign without a set may use all."""
        listed = sorted(names)
        return cls(len(listed), listed, eligible)

    def take(self, name: str, wanted: int | None) -> int:
        """As many as are wanted, left, and usable by this campaign."""
        may = self.eligible.get(name)
        usable = self.names if may is None else [seat for seat in self.names if seat in may]
        taken = set(usable if wanted is None else usable[:wanted])
        self.names = [seat for seat in self.names if seat not in taken]
        self.free = len(self.names)
        return len(taken)
