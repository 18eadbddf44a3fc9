"""Seats of which each campaign may use only some; in Parley nodes are selected one by one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lead.policy.seats import FreeSeats


@dataclass
class NamedSeats(FreeSeats):
    """Free seats of which each campaign may use only some; taken in the order of their names."""

    names: list[str] = field(default_factory=list)
    eligible: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str], eligible: Mapping[str, frozenset[str]]) -> NamedSeats:
        """Create the seats; a campaign without an eligible set may use all."""
        listed = sorted(names)
        return cls(len(listed), listed, eligible)

    def take(self, name: str, wanted: int | None) -> int:
        """Take as many seats as are wanted and usable by this campaign; return their number."""
        allowed = self.eligible.get(name)
        usable = self.names if allowed is None else [seat for seat in self.names if seat in allowed]
        chosen = set(usable if wanted is None else usable[:wanted])
        self.names = [seat for seat in self.names if seat not in chosen]
        self.free = len(self.names)
        return len(chosen)
