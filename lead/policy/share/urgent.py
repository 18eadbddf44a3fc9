"""Urgent campaigns before all others, as if their weight were infinite. Pure.

Urgent campaigns take the free seats in the order of their creation, each as many as it can use; the
remaining seats are left to the other campaigns' policy.
"""

from __future__ import annotations

from collections.abc import Iterable

from lead.policy.seats import CampaignStake, FreeSeats


def serve(
    stakes: Iterable[CampaignStake], seats: FreeSeats
) -> tuple[list[tuple[str, int]], list[CampaignStake]]:
    """Return what each urgent campaign may add, in serving order, and the others."""
    all_stakes = list(stakes)
    first = sorted(
        (stake for stake in all_stakes if stake.urgent), key=lambda stake: stake.created_at
    )
    additions = [(stake.name, seats.take(stake.name, stake.addable)) for stake in first]
    return additions, [stake for stake in all_stakes if not stake.urgent]


def left_to_share(
    seats: int, stakes: Iterable[CampaignStake], given: Iterable[tuple[str, int]]
) -> int:
    """Return the seats that the others divide: all but those the urgent hold now."""
    allocated = sum(stake.allocated for stake in stakes if stake.urgent)
    return max(0, seats - allocated - sum(amount for _, amount in given))
