"""A rehearsal of a pool that has taken as long as it may."""

from __future__ import annotations

import random

import pytest

from lead.policy.view import CampaignView, Candidate, NodeView
from lead.pool.rehearsal.world import Demand, Fleet, Situation
from node.model import times
from tests.support.clocks import START
from tests.support.policies import COMPOSITIONS


@pytest.mark.parametrize(("asked", "hours"), [(0, 2), (3, 6)])
def test_it_tells_how_far_it_came(asked: int, hours: int) -> None:
    """The first run that was not tried bounds it, however early or late that run is known."""
    left = asked

    def is_enough() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    demands = [
        (START, Demand(Candidate("first", "a", START + 2 * times.HOUR, times.MINUTE, ("n",)))),
        (START + 1, Demand(Candidate("next", "a", START + 6 * times.HOUR, times.MINUTE, ("n",)))),
    ]
    fleet = Fleet(
        [NodeView("n")],
        [CampaignView("a")],
        (),
        COMPOSITIONS["pscheduler"],
        horizon=times.DAY,
        step=times.HOUR,
        rng=random.Random(1),
        situation=Situation(START, demands),
        is_enough=is_enough,
    )
    for _ in fleet.play(times.DAY, lambda _: None):
        pass
    assert fleet.looked_until(START + times.DAY) == START + hours * times.HOUR
