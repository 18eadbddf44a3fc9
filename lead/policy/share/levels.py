"""Level after level: the next one is served from what the higher ones leave. Pure.

Within a level any other share policy decides, over the seats that are still free and those the
level already holds. Nothing that is placed is taken back, so incidents come before routine without
a run being lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from lead.policy.seats import CampaignStake, FreeSeats
from lead.policy.view import SUSPENDED

Inner = Callable[[int, list[CampaignStake], FreeSeats], list[tuple[str, int]]]
"""How a level is divided: of how many seats, among whom, and the seats that are free."""


def allot(stakes: Iterable[CampaignStake], seats: FreeSeats, inner: Inner) -> list[tuple[str, int]]:
    """What each may add, in serving order; a level is told how many seats it divides."""
    at_work = sorted(
        (stake for stake in stakes if stake.level != SUSPENDED), key=lambda stake: -stake.level
    )
    given: list[tuple[str, int]] = []
    for _, members in groupby(at_work, key=lambda stake: stake.level):
        level = list(members)
        held = sum(stake.allocated for stake in level)
        given += inner(seats.free + held, level, seats)
    return given
