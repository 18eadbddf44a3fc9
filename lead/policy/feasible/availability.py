"""What a node has to give at all, and how many seats of a run fit on it. Pure.

A seat of a run is atomic: all that it needs is on one node, so capacity does not add up across
nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class CapacityBasis(StrEnum):
    """What counts as taken: what was promised, what is measured to be in use, or the larger."""

    DEDICATED = "dedicated"
    UTILISED = "utilised"
    COMBINED = "combined"


def available(
    configured: int, dedicated: int, utilised: int, counted: CapacityBasis = CapacityBasis.COMBINED
) -> int:
    """What is left of a resource, never below none."""
    taken = {
        CapacityBasis.DEDICATED: dedicated,
        CapacityBasis.UTILISED: utilised,
        CapacityBasis.COMBINED: max(dedicated, utilised),
    }[counted]
    return max(0, configured - taken)


def seats_on(room: Mapping[str, int], needs: Mapping[str, int], least: int = 1) -> int:
    """How many seats, each with these needs, fit on a node; none if fewer than ``least`` do.

    A resource that the node does not have at all is one of which it has nothing. Where nothing
    counted is needed, ``least`` fit.
    """
    asked = [(name, amount) for name, amount in needs.items() if amount > 0]
    fitting = min((room.get(name, 0) // amount for name, amount in asked), default=least)
    return fitting if fitting >= least else 0
