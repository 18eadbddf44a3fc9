"""Weights that change with the time of day, in the hours in which they count."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from lead.policy.contested_standing import standings_of
from lead.policy.episode import Episode
from lead.policy.view import BUCKET, CampaignView, Candidate, TimedWeight, mean_weight
from node.model import times
from node.model.host_limits.closed import Opening
from node.model.timed_weights import weight_at
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

NODES = nodes_of(4)
BY_WEIGHT = ("campaign-default", "gridserver-usage", "gridserver-usage-aggregated", "boinc-wrr")


def _from(hour: int, length: int) -> Opening:
    """Return the time of each day that begins so many hours from now."""
    at = datetime.fromtimestamp((NOW + hour * BUCKET) / times.SECOND, UTC)
    return Opening(f"0 {at.hour} * * *", length * BUCKET)


def _blue(hour: int, length: int) -> CampaignView:
    """Return a campaign of weight 1, and 9 from so many hours on."""
    return CampaignView("blue", weight=1, timed_weights=[TimedWeight(9, _from(hour, length))])


RED = CampaignView("red", weight=3)


def _wanting(campaign: str, hours: int) -> list[Candidate]:
    """Return ten-minute tasks on one node, enough to fill the pool in each hour."""
    return [
        due(f"{campaign}-{hour}-{number}", campaign, NODES, next_run_at=NOW + hour * BUCKET)
        for hour in range(hours)
        for number in range(6 * len(NODES))
    ]


def _given(policy: str, campaigns: list[CampaignView], asked: list[Candidate]) -> Counter[str]:
    """Return the seats given in an episode, by ``campaign-hour``."""
    driver = Driver(view_of(NODES, campaigns, asked))
    driver.drive(COMPOSITIONS[policy])
    durations = {it.task: it.duration for it in asked}
    given = Counter[str]()
    for run in driver.runs:
        hour = (run.start - NOW) // BUCKET
        given[f"{run.campaign}-{hour}"] += durations[run.task] * len(run.nodes)
    return Counter({name: amount // BUCKET for name, amount in given.items()})


@pytest.mark.parametrize("policy", BY_WEIGHT)
def test_each_hour_is_divided_by_its_weights(policy: str) -> None:
    """A campaign has the part of each hour ahead that its weight of that hour gives it."""
    given = _given(policy, [_blue(4, 1), RED], _wanting("blue", 6))
    assert [given[f"blue-{hour}"] for hour in range(6)] == [4, 4, 1, 1, 3, 1]


@pytest.mark.parametrize("policy", BY_WEIGHT)
@pytest.mark.parametrize(("hour", "parts"), [(0, (3, 1)), (5, (1, 3))])
def test_contested_time_is_divided_by_the_weights_of_its_hour(
    policy: str, hour: int, parts: tuple[int, int]
) -> None:
    """Two campaigns that want all of an hour have the parts of the weights in it."""
    asked = [*_wanting("blue", 1), *_wanting("red", 1)]
    given = _given(policy, [_blue(hour, 1), RED], asked)
    assert (given["blue-0"], given["red-0"]) == parts


def test_why_tells_the_weight_of_the_hour() -> None:
    """The standing in contested time has the weight that counts there."""
    view = view_of(NODES, [_blue(0, 1), RED], [*_wanting("blue", 1), *_wanting("red", 1)])
    contests = Episode(view, COMPOSITIONS["campaign-default"], random.Random(1)).contests
    [standing] = standings_of(contests, "blue")
    assert standing.levels[0].own.weight == 9


def test_the_first_that_applies_counts() -> None:
    """The first of several weights at one time counts, and the campaign's own at other times."""
    timed = [TimedWeight(5, _from(1, 2)), TimedWeight(7, _from(2, 2))]
    weights = [weight_at(1, timed, NOW + hour * BUCKET) for hour in range(5)]
    assert weights == [1, 5, 5, 7, 1]


def test_what_was_used_is_compared_with_the_mean() -> None:
    """The mean is over the hours of the window, the one in progress included."""
    blue = replace(_blue(0, 12), weight=1)
    assert mean_weight(blue, NOW, 24 * BUCKET) == Fraction(9 * 12 + 12, 24)
    assert mean_weight(RED, NOW, 24 * BUCKET) == 3
