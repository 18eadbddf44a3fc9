"""The slots of a seat, as nodes offer time for them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lead.planning.host_quotas import TakenQuotas
from lead.planning.seat_selection import SpreadLimit
from lead.pool.seat_slots import SeatSlots
from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.participants import Obstacle, Proposal
from tests.support.clocks import START
from tests.support.episodes import case_of

LAST = START + 2 * times.HOUR
"""The last of three slots, each of which lasts ten minutes and may slip by as much."""


@pytest.mark.parametrize(("busy_until", "count"), [(10, 1), (11, 0)])
def test_a_slot_counts_as_free_beyond_a_horizon_unless_its_starts_are_taken(
    busy_until: int, count: int
) -> None:
    """A run that begins before a horizon and ends after it may have time if it can begin at all."""
    case = case_of("t", "default", ["n1"], hours=3)
    slots = SeatSlots(cast("Any", None), case, (), SpreadLimit({}, {}), None, TakenQuotas())
    busy = Obstacle(
        window=2,
        scheduling_class=SchedulingClass.EXCLUSIVE,
        starts_at=LAST - times.MINUTE,
        ends_at=LAST + busy_until * times.MINUTE,
    )
    horizon = LAST + 5 * times.MINUTE
    slots.add("n1", Proposal(now=START, horizon=horizon, free=(), obstacles=(busy,)))
    assert slots.count_beyond("n1", horizon) == count
    assert slots.count_beyond("n1", START) == 2 + count
