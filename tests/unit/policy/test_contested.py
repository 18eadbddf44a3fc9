"""Contested time: divided by weights from its first minute, whoever asks first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, islice, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lead.policy.campaign_grouping import CampaignGrouping, tiers_by_weight
from lead.policy.contested import NOTICE, ContestRules, Contests, evenly_spread
from lead.policy.contested_standing import standings_of
from lead.policy.episode_figures import Board
from lead.policy.share import start_counts
from lead.policy.share.weight_tree import Branch, Standing, dues, in_turn
from lead.policy.view import CampaignView, PostedRun, QueueView, RememberedState
from node.model import times
from tests.support.contested_scenes import (
    BY_DEADLINE,
    BY_STARTS,
    BY_WEIGHT,
    Asking,
    Burst,
    at_once,
    half_a_second_apart,
    last_one_first,
    one_by_one,
    one_late,
)
from tests.support.policy_pools import NOW, due, nodes_of, view_of

MINUTE = times.MINUTE
NODES = nodes_of(3)
WEIGHTS = st.lists(st.integers(1, 9), min_size=2, max_size=8)
EVENED_OUT = Fraction(1, 2)
"""By so much of a run may what was used before put a campaign ahead or behind, with the runs of
others that count as almost done."""
NOTHING = Standing({}, {}, {})


@settings(max_examples=60, deadline=None)
@given(weights=WEIGHTS, count=st.integers(1, 60), lacks=st.lists(st.integers(-9, 9), min_size=8))
@example(weights=[4, 8, 2, 1, 3, 5, 1, 4], count=3, lacks=[3, 6, 2, 6, 0, 0, 6, 4])
@example(weights=[1, 5, 1, 1, 1, 1, 4, 6], count=6, lacks=[1, 5, 1, 1, 1, 1, 4, 6])
@example(weights=[1, 9, 4, 1, 4, 4, 4, 4], count=2, lacks=[0, 4, 4, 0, 4, 4, 4, 4])
def test_turns_keep_to_the_weights_all_along(
    weights: list[int], count: int, lacks: list[int]
) -> None:
    """After any number of turns each campaign is within a run, or 5 %, of its part."""
    branches = [Branch(f"c{number}", weight) for number, weight in enumerate(weights)]
    asked = [due(f"{it.name}-{n}", it.name, NODES) for it in branches for n in range(count)]
    lacking = {it.name: lacks[number] * MINUTE for number, it in enumerate(branches)}
    most = max(lacking, key=lambda name: lacking[name])
    lacking[most] -= sum(lacking.values())  # what some lack others have
    taken = in_turn([branches], asked, Standing({}, lacking, {}), lambda it: it.duration)
    counts = Counter[str]()
    for number, candidate in enumerate(taken, 1):
        counts[candidate.campaign] += 1
        assert all(
            abs(counts[it.name] - Fraction(number * it.weight, sum(weights)))
            <= max(Fraction(1), Fraction(number, 20)) + EVENED_OUT
            for it in branches
        )
        if counts[candidate.campaign] == count:
            break


@pytest.mark.parametrize("runs", [5, 24, 27])
def test_what_rounding_takes_comes_back(runs: int) -> None:
    """Hour after hour with the same demand, the least weight has its part in the long run, too."""
    weights = {"a": 1, "b": 2, "c": 3, "d": 5, "e": 8}
    branches = [Branch(name, weight) for name, weight in weights.items()]
    hours: list[Counter[str]] = []
    asked = [due(f"{name}-{n}", name, NODES) for name in weights for n in range(runs)]
    for _ in range(96):
        used = sum(hours[-24:], Counter[str]())
        lacks = {
            name: float(Fraction(used.total() * weight, 19) - used[name]) * asked[0].duration
            for name, weight in weights.items()
        }
        turns = in_turn([branches], asked, Standing({}, lacks, {}), lambda it: it.duration)
        hours.append(Counter(it.campaign for it in islice(turns, runs)))
    found = sum(hours[24:], Counter[str]())
    for name, weight in weights.items():
        part = Fraction(72 * runs * weight, 19)
        assert abs(found[name] - part) <= max(Fraction(3), part / 50)


def test_campaigns_of_a_parent_take_its_turns() -> None:
    """A parent has its turns, and its children divide them; what it does itself is one child."""
    parents = {"lab": None, "x": "lab", "y": "lab", "ops": None}
    weights = {"lab": 1, "x": 1, "y": 2, "ops": 1}
    campaigns = {
        name: CampaignView(name, parent=parent, weight=weights[name])
        for name, parent in parents.items()
    }
    tiers = tiers_by_weight(campaigns, CampaignGrouping.PARENT)
    asked = [due(f"{name}-{n}", name, NODES) for name in parents for n in range(8)]
    taken = list(in_turn(tiers, asked, NOTHING, lambda it: it.duration))
    assert Counter(it.campaign for it in taken[:16]) == {"ops": 8, "lab": 2, "x": 2, "y": 4}
    demand = dict.fromkeys(parents, 8)
    assert dues(tiers, 16, demand) == {"ops": 8, "lab": 2, "x": 2, "y": 4}
    assert dues(tiers, 16, {**demand, "y": 0}) == {"ops": 8, "lab": 4, "x": 4, "y": 0}


def test_levels_are_served_one_after_the_other() -> None:
    """The rest of a higher level goes to the next, and campaigns without weight have the rest."""
    campaigns = {
        it.name: it
        for it in (
            CampaignView("high", level=9),
            CampaignView("low", level=1, weight=3),
            CampaignView("idle", level=9, weight=0),
            CampaignView("off", level=0),
        )
    }
    tiers = tiers_by_weight(campaigns, CampaignGrouping.NONE, serial=True)
    assert dues(tiers, 10, {"high": 4, "low": 5, "idle": 9, "off": 9}) == {
        "high": 4,
        "low": 5,
        "idle": 1,
    }
    assert dues(tiers_by_weight(campaigns, CampaignGrouping.LEVEL), 10, {"high": 9, "low": 9}) == {
        "high": 9,
        "low": 1,
        "idle": 0,
    }


def test_frequencies_of_starts_follow_the_prices() -> None:
    """They add up to one, and are inverse to the prices where gains are equal."""
    queues = {"a": QueueView(price=12), "b": QueueView(price=6), "c": QueueView(price=3)}
    assert start_counts.frequencies(queues) == {
        "a": Fraction(1, 7),
        "b": Fraction(2, 7),
        "c": Fraction(4, 7),
    }
    assert start_counts.frequencies({}) == {}


@given(st.integers(0, 70), st.integers(0, 70))
def test_the_beginning_of_an_even_order_is_spread(count: int, first: int) -> None:
    """However many are taken of it, no two neighbours among them are far apart."""
    order = evenly_spread(range(count))
    assert sorted(order) == list(range(count))
    taken = sorted(order[:first])
    gaps = [later - earlier for earlier, later in pairwise(taken)]
    assert all(gap <= 4 * count / len(taken) for gap in gaps)


def _runs(holder: str, count: int, first: int = NOW + 5 * MINUTE) -> list[PostedRun]:
    """Return runs of a minute on three nodes, one after the other."""
    return [
        PostedRun(f"{holder}{n}", f"{holder}-{n}", holder, (f"n{n % 3}",), at, at + MINUTE)
        for n in range(count)
        for at in [first + n // 3 * MINUTE]
    ]


def _given_back(
    runs: Sequence[PostedRun], weights: Mapping[str, int], asked: int, **figures: int
) -> list[str]:
    """Return what is given back when c finds no time for so many runs in four minutes."""
    window = {"next_run_at": NOW + 5 * MINUTE, "duration": MINUTE, "slip": 3 * MINUTE, **figures}
    late = [due(f"c-{n}", "c", NODES, **window) for n in range(asked)]
    campaigns = [CampaignView(name, weight=weight) for name, weight in weights.items()]
    view = view_of(NODES, campaigns, late, runs=runs, returnable=[it.task for it in runs])
    tiers = tiers_by_weight(view.campaigns, CampaignGrouping.NONE)
    returned, gaining = Contests(Board(view), ContestRules(lambda _: tiers, ())).seats_to_return(
        late
    )
    assert bool(returned) == bool(gaining)
    return list(returned)


def _returned(
    runs: Sequence[PostedRun], weights: Mapping[str, int], asked: int, **figures: int
) -> Counter[str]:
    """Return how many runs each gives back then."""
    tasks = _given_back(runs, weights, asked, **figures)
    return Counter(task.split("-")[0] for task in tasks)


def test_whoever_comes_late_is_given_its_part() -> None:
    """Runs are given back until nobody is a whole run from its part, by those who have too much."""
    assert _returned(_runs("a", 12), {"a": 3, "c": 1}, 12) == {"a": 3}
    assert _returned(_runs("a", 12), {"a": 1, "c": 3}, 12) == {"a": 9}
    assert _returned(_runs("a", 12), {"a": 1, "c": 3}, 2) == {"a": 2}
    both = [*_runs("a", 9), *_runs("b", 3, NOW + 8 * MINUTE)]
    assert _returned(both, {"a": 1, "b": 1, "c": 1}, 12) == {"a": 4}


def test_only_what_is_contested_counts() -> None:
    """Time before or after that which both want is left to who has it."""
    before = _runs("a", 9, NOW + 2 * MINUTE)
    assert _returned([*before, *_runs("a", 12)], {"a": 1, "c": 1}, 12) == {"a": 6}
    assert _returned(before, {"a": 1, "c": 1}, 12) == {}


def test_what_is_not_given_back() -> None:
    """Higher priorities, other nodes, and what begins in a moment stay, and each asks once."""
    runs, weights = _runs("a", 12), {"a": 1, "c": 1}
    assert _returned([replace(it, priority=1) for it in runs], weights, 12) == {}
    assert _returned([replace(it, nodes=("n9",)) for it in runs], weights, 12) == {}
    soon = _runs("a", 12, NOW + NOTICE - 1)
    assert _returned(soon, weights, 12, next_run_at=NOW) == {"a": 6}
    late = [due("c", "c", NODES, next_run_at=NOW + 5 * MINUTE, duration=MINUTE, slip=0)]
    campaigns = [CampaignView(name) for name in weights]
    tasks = [it.task for it in runs]
    view = view_of(NODES, campaigns, late, runs=runs, returnable=tasks)
    tiers = tiers_by_weight(view.campaigns, CampaignGrouping.NONE)
    for state, count in ((RememberedState(), 1), (RememberedState(favoured=("c",)), 0)):
        contests = Contests(Board(replace(view, state=state)), ContestRules(lambda _: tiers, ()))
        assert len(contests.seats_to_return(late)[0]) == count


def test_how_a_campaign_stands_is_told_by_level() -> None:
    """At each level of its parents: what it and the others have, want, and are due."""
    campaigns = [
        CampaignView("lab"),
        CampaignView("c", parent="lab", weight=2),
        CampaignView("d", parent="lab"),
        CampaignView("a"),
    ]
    runs = [*_runs("a", 6), *_runs("c", 3, NOW + 7 * MINUTE), *_runs("d", 3, NOW + 8 * MINUTE)]
    window = {"next_run_at": NOW + 5 * MINUTE, "duration": MINUTE, "slip": 3 * MINUTE}
    late = [due(f"late-{n}", "c", NODES, **window) for n in range(9)]
    view = view_of(NODES, campaigns, late, runs=runs)
    tiers = tiers_by_weight(view.campaigns, CampaignGrouping.PARENT)
    contests = Contests(Board(view), ContestRules(lambda _: tiers, ()))
    [standing] = standings_of(contests, "c")
    assert standing.span == (NOW + 5 * MINUTE, NOW + 9 * MINUTE)
    figures = [
        [(it.name, it.held / MINUTE, it.demand / MINUTE, it.due / MINUTE) for it in each]
        for level in standing.levels
        for each in [[level.own, *level.others]]
    ]
    assert figures == [
        [("lab", 6, 15, 6), ("a", 6, 6, 6)],
        [("c", 3, 12, 4), ("d", 3, 3, 2)],
    ]
    assert standing.behind == MINUTE
    assert standing.caught_up_at is None
    [other] = standings_of(contests, "a")
    assert (other.behind, other.caught_up_at) == (0, NOW + 5 * MINUTE)
    assert standings_of(contests, "lab") == []


@settings(max_examples=40, deadline=None)
@given(
    weights=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    held=st.lists(st.integers(0, 12), min_size=5, max_size=5),
    asked=st.integers(1, 30),
)
def test_giving_back_ends(weights: list[int], held: list[int], asked: int) -> None:
    """A campaign is given no more than it is due, but for a run or two, and then nothing moves."""
    names = "cabde"[: len(weights)]
    by_name = dict(zip(names, weights, strict=True))
    offsets = [0, *accumulate(held)]
    runs = [
        run
        for number, name in enumerate(names)
        for run in _runs(name, offsets[number] + held[number])[offsets[number] :]
    ]
    left = asked
    while left and (given_back := _given_back(runs, by_name, left, slip=30 * MINUTE)):
        runs = [replace(it, campaign="c") if it.task in given_back else it for it in runs]
        left -= len(given_back)
    counts = Counter(it.campaign for it in runs)
    demand = {**counts, "c": counts["c"] + left}
    branches = [Branch(name, weight) for name, weight in by_name.items()]
    # The time that others hold may be shorter once they gave its first or last run back.
    due = dues([branches], len(runs), demand)["c"]
    assert counts["c"] <= held[0] or counts["c"] <= due + 2


ARRIVALS = (at_once, half_a_second_apart, last_one_first, one_by_one, one_late)


@pytest.mark.parametrize("policy", [*BY_WEIGHT, *BY_DEADLINE])
@pytest.mark.parametrize("asking", ARRIVALS, ids=lambda it: it.__name__)
@pytest.mark.mostly_nightly
def test_a_burst_is_divided_by_weight(policy: str, asking: Asking) -> None:
    """However requests come, each campaign has its part to a run: three to one is nine to three."""
    burst = Burst((3, 1), 12, 3, 12)
    assert burst.misses(burst.played(policy, asking)) == {}


@pytest.mark.parametrize("policy", BY_STARTS)
@pytest.mark.parametrize("asking", ARRIVALS, ids=lambda it: it.__name__)
@pytest.mark.mostly_nightly
def test_starts_are_divided_by_price(policy: str, asking: Asking) -> None:
    """The sets that count starts divide those of a burst."""
    burst = Burst((3, 1), 12, 3, 12)
    assert burst.misses(burst.played(policy, asking)) == {}


@pytest.mark.parametrize("policy", ["campaign-default", "gridserver-usage", "boinc-wrr"])
@pytest.mark.parametrize("asking", ARRIVALS, ids=lambda it: it.__name__)
@pytest.mark.mostly_nightly
def test_a_burst_that_begins_at_once(policy: str, asking: Asking) -> None:
    """Runs that began before others came are lost to them; all the rest is divided."""
    if asking is one_late:
        return
    burst = Burst((3, 1), 48, 3, 48, 30 * times.SECOND, ahead=0)
    runs = burst.played(policy, asking)
    assert len(runs) >= 45
    assert burst.misses(runs) == {}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.nightly
def test_random_bursts_are_divided(seed: int) -> None:
    """Other weights, two to eight campaigns, other sizes, sets, and arrivals do as well."""
    rng = random.Random(seed)
    weights = [rng.randint(1, 9) for _ in range(rng.randint(2, 8))]
    nodes = rng.randint(2, 5)
    places = nodes * rng.randint(4, 12)
    burst = Burst(weights, places, nodes, places, 30 * times.SECOND)
    policy, asking = rng.choice(BY_WEIGHT), rng.choice(ARRIVALS)
    assert burst.misses(burst.played(policy, asking)) == {}


def test_the_first_minute_is_divided_too() -> None:
    """A campaign that comes late has its part of each minute, and not of the last ones."""
    burst = Burst((3, 1), 48, 3, 48)
    runs = sorted(burst.played("campaign-default", half_a_second_apart), key=lambda it: it.start)
    for count in range(8, 49, 8):
        light = sum(run.campaign == "c1" for run in runs[:count])
        assert abs(light - count / 4) <= 1.5


@pytest.mark.nightly
@pytest.mark.parametrize("policy", [*BY_WEIGHT, *BY_DEADLINE])
@pytest.mark.parametrize("asking", ARRIVALS, ids=lambda it: it.__name__)
def test_large_bursts_are_divided(policy: str, asking: Asking) -> None:
    """Eight campaigns have their parts of 600 places to 5 %."""
    burst = Burst((8, 5, 3, 2, 2, 1, 1, 1), 600, 20, 600, 30 * times.SECOND)
    assert burst.misses(burst.played(policy, asking)) == {}
