"""The urgent before everybody: a weight that is in effect infinite. Pure.

Urgent campaigns take the free seats in the order of their creation, each what it can use; what they
leave goes on to the others by whatever policy shares it.
"""

from __future__ import annotations

from collections.abc import Iterable

from lead.policy.seats import CampaignStake, FreeSeats


def serve(
    stakes: Iterable[CampaignStake], seats: FreeSeats
) -> tuple[list[tuple[str, int]], list[CampaignStake]]:
    """What each urgent campaign may add, in serving order, and the others."""
    listed = list(stakes)
    first = sorted((stake for stake in listed if stake.urgent), key=lambda stake: stake.created_at)
    given = [(stake.name, seats.take(stake.name, stake.addable)) for stake in first]
    return given, [stake for stake in listed if not stake.urgent]


def left_to_share(
    seats: int, stakes: Iterable[CampaignStake], given: Iterable[tuple[str, int]]
) -> int:
    """The seats that the others divide: all but what the urgent hold now."""
    held = sum(stake.allocated for stake in stakes if stake.urgent)
    return max(0, seats - held - sum(amount for _, amount in given))
