"""Level by level: each level is served from what the higher ones leave. Pure.

Within a level another share policy decides, over the seats that are still free and those the level
already holds. Nothing placed is taken back, so incidents come before routine without losing a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from lead.policy.seats import CampaignStake, FreeSeats
from lead.policy.view import SUSPENDED

Inner = Callable[[int, list[CampaignStake], FreeSeats], list[tuple[str, int]]]
"""The policy within a level: its seats in total, its campaigns, and the free seats."""


def allot(stakes: Iterable[CampaignStake], seats: FreeSeats, inner: Inner) -> list[tuple[str, int]]:
    """Return what each may add, in serving order; ``inner`` divides each level."""
    active = sorted(
        (stake for stake in stakes if stake.level != SUSPENDED), key=lambda stake: -stake.level
    )
    additions: list[tuple[str, int]] = []
    for _, members in groupby(active, key=lambda stake: stake.level):
        level = list(members)
        allocated = sum(stake.allocated for stake in level)
        additions += inner(seats.free + allocated, level, seats)
    return additions
