"""Campaigns served in the order of creation, each with all that it can use. Pure.

A campaign keeps its place however often it has nothing to do, until it is removed: a debugging
session finishes before the next begins. There is no ideal and no affinity.
"""

from __future__ import annotations

from collections.abc import Iterable

from lead.policy.seats import CampaignStake, FreeSeats


def sorted_by_creation(stakes: Iterable[CampaignStake]) -> list[CampaignStake]:
    """Sort by creation; campaigns created at the same time keep their order."""
    return sorted(stakes, key=lambda stake: stake.created_at)


def allot(stakes: Iterable[CampaignStake], seats: FreeSeats) -> list[tuple[str, int]]:
    """Return what each may add, in serving order."""
    return [
        (stake.name, seats.take(stake.name, stake.addable))
        for stake in sorted_by_creation(stakes)
        if stake.level
    ]
