"""The amount of a resource that a node has left, and the seats of a run that fit. Pure.

A seat of a run is atomic: all that it needs is on one node, so capacity does not add up across
nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class CapacityBasis(StrEnum):
    """The part of a resource that counts as taken: reserved, measured, or the larger of both."""

    DEDICATED = "dedicated"
    UTILISED = "utilised"
    COMBINED = "combined"


def available_amount(
    configured: int, dedicated: int, utilised: int, counted: CapacityBasis = CapacityBasis.COMBINED
) -> int:
    """Return what is left of a resource, at least 0."""
    in_use = {
        CapacityBasis.DEDICATED: dedicated,
        CapacityBasis.UTILISED: utilised,
        CapacityBasis.COMBINED: max(dedicated, utilised),
    }[counted]
    return max(0, configured - in_use)


def seats_on(room: Mapping[str, int], needs: Mapping[str, int], least: int = 1) -> int:
    """Return how many seats with these needs fit on a node; 0 if fewer than ``least`` do.

    The node has nothing of a resource that ``room`` does not list. Without counted needs, ``least``
    fit.
    """
    counted = [(name, amount) for name, amount in needs.items() if amount > 0]
    fitting = min((room.get(name, 0) // amount for name, amount in counted), default=least)
    return fitting if fitting >= least else 0
