"""The part of a node that a run takes, by class, in thousandths of a seat. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from node.model.classes import SchedulingClass

SEAT = 1000
"""A seat, in the unit of weights and charges."""


@dataclass(frozen=True)
class SeatWeights:
    """The charge for a run on each of its nodes, by scheduling class, in thousandths of a seat.

    None for ``normal`` charges a lane: the exclusive charge divided by the lanes of the node.
    """

    exclusive: int = SEAT
    normal: int | None = None
    background: int = 0

    def on(self, scheduling_class: SchedulingClass, lanes: int) -> int:
        """Return the charge on a node with this number of lanes."""
        match scheduling_class:
            case SchedulingClass.EXCLUSIVE:
                return self.exclusive
            case SchedulingClass.NORMAL:
                return self.exclusive // lanes if self.normal is None else self.normal
            case SchedulingClass.BACKGROUND | SchedulingClass.BACKGROUND_MULTI:
                return self.background

    def charges(self, scheduling_class: SchedulingClass) -> bool:
        """Return whether runs of this class are charged for at all."""
        if scheduling_class is SchedulingClass.NORMAL and self.normal is None:
            return True
        return self.on(scheduling_class, 1) > 0
