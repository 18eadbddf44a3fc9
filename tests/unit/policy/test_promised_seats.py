"""Promised seats at each instant, whatever the length of the runs."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.policy.view import CampaignView, Candidate, Charge, PostedRun
from node.model import times
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

NODES = nodes_of(3)
CAMPAIGNS = [CampaignView("ops", target=2), CampaignView("lab", target=1)]
MINUTES = [1, 5, 50, 180]


def _wanting(campaign: str, count: int, minutes: int, at: int = NOW) -> list[Candidate]:
    """Return tasks that want one node each at the same instant."""
    figures = {"duration": minutes * times.MINUTE, "next_run_at": at, "slip": 0}
    return [due(f"{campaign}-{number}", campaign, NODES, **figures) for number in range(count)]


def _given(driver: Driver) -> dict[str, int]:
    """Return how many runs each campaign got."""
    given = {campaign.name: 0 for campaign in CAMPAIGNS}
    for run in driver.runs:
        given[run.campaign] += 1
    return given


@pytest.mark.parametrize("minutes", MINUTES)
@pytest.mark.parametrize("policy", ["gridserver-sla", "gridserver-sla-preempt"])
def test_a_group_has_its_seats_whatever_the_length_of_runs(policy: str, minutes: int) -> None:
    """Each group gets what it is promised, though the other one wants all nodes."""
    wanted = [*_wanting("lab", 3, minutes), *_wanting("ops", 3, minutes)]
    driver = Driver(view_of(NODES, CAMPAIGNS, wanted))
    outcome = driver.drive(COMPOSITIONS[policy])
    assert _given(driver) == {"ops": 2, "lab": 1}
    refused = {refusals[0].rule.name for refusals in outcome.refused.values()}
    assert refused <= {"kept", "no-seats", "no-time"}


def test_what_a_group_holds_outside_the_pool_is_no_seat_of_it() -> None:
    """Runs on other nodes, which a view has for the sake of limits, take nothing of a promise."""
    elsewhere = PostedRun("r", "named", "ops", ("x1", "x2"), NOW, NOW + times.HOUR)
    wanted = [*_wanting("lab", 3, 50), *_wanting("ops", 3, 50)]
    driver = Driver(view_of(NODES, CAMPAIGNS, wanted, runs=[elsewhere]))
    driver.drive(COMPOSITIONS["gridserver-sla"])
    assert _given(driver) == {"ops": 1 + 2, "lab": 1}


@pytest.mark.parametrize("minutes", [1, 5, 50])
def test_what_nobody_wants_is_lent(minutes: int) -> None:
    """A group alone gets all nodes, and the refusal of more names no other group."""
    driver = Driver(view_of(NODES, CAMPAIGNS, _wanting("lab", 4, minutes)))
    driver.drive(COMPOSITIONS["gridserver-sla"])
    assert _given(driver) == {"ops": 0, "lab": 3}


@pytest.mark.parametrize("minutes", [1, 5, 50])
@pytest.mark.parametrize(("lend", "taken"), [(0, 1), (Fraction(1, 2), 2), (1, 3)])
def test_no_more_is_lent_than_a_group_allows(minutes: int, lend: Fraction, taken: int) -> None:
    """Others hold the part of a promise that its group lends, though it wants nothing."""
    campaigns = [CampaignView("ops", target=2, lend=lend), CampaignView("lab", target=1)]
    driver = Driver(view_of(NODES, campaigns, _wanting("lab", 3, minutes)))
    outcome = driver.drive(COMPOSITIONS["gridserver-sla"])
    assert _given(driver) == {"ops": 0, "lab": taken}
    sentences = {refusals[0].reason for refusals in outcome.refused.values()}
    if taken < 3:
        [sentence] = sentences
        at, until = map(times.to_the_second, (NOW, NOW + minutes * times.MINUTE))
        assert sentence == (
            f"ops is promised 2 seats and lends {taken - 1} of them; at {at} it holds 0, and lab "
            f"would take what ops keeps free, until {until}"
        )


@pytest.mark.parametrize("minutes", [1, 5, 50])
@pytest.mark.parametrize(("borrow", "taken"), [(0, 1), (1, 2), (None, 3)])
def test_no_more_is_borrowed_than_a_group_may(minutes: int, borrow: int | None, taken: int) -> None:
    """A group holds no more beyond its promise than it may borrow, though nobody wants it."""
    campaigns = [CampaignView("ops", target=2), CampaignView("lab", target=1, borrow=borrow)]
    driver = Driver(view_of(NODES, campaigns, _wanting("lab", 3, minutes)))
    outcome = driver.drive(COMPOSITIONS["gridserver-sla"])
    assert _given(driver) == {"ops": 0, "lab": taken}
    if borrow is not None:
        [sentence] = {refusals[0].reason for refusals in outcome.refused.values()}
        at, until = map(times.to_the_second, (NOW, NOW + minutes * times.MINUTE))
        assert sentence == (
            f"lab is promised 1 seat and may borrow {borrow}; at {at} it holds {taken}, "
            f"until {until}"
        )


def test_what_one_may_not_borrow_is_another_s() -> None:
    """A group has what is lent and the other one may not borrow."""
    nodes = nodes_of(6)
    campaigns = [
        CampaignView("ops", target=2),
        CampaignView("lab", target=1, borrow=1),
        CampaignView("net", target=1),
    ]
    wanted = [
        due(f"{name}-{number}", name, nodes, duration=50 * times.MINUTE, slip=0)
        for name in ("lab", "net")
        for number in range(6)
    ]
    driver = Driver(view_of(nodes, campaigns, wanted))
    driver.drive(COMPOSITIONS["gridserver-sla"])
    held = Counter(run.campaign for run in driver.runs)
    assert held == {"lab": 2, "net": 4}


@pytest.mark.parametrize(
    ("bounds", "taken"), [({"borrow": 1}, 2), ({"borrow": 0}, 1), ({"borrow": None}, 3)]
)
def test_who_wants_several_has_as_many_as_it_may(bounds: dict[str, Any], taken: int) -> None:
    """A task that is content with fewer nodes has those that its campaign may hold."""
    campaigns = [CampaignView("ops", target=2), CampaignView("lab", target=1, **bounds)]
    wide = due("wide", "lab", NODES, k=3, k_min=1, slip=0)
    driver = Driver(view_of(NODES, campaigns, [wide]))
    driver.drive(COMPOSITIONS["gridserver-sla"])
    assert [len(run.nodes) for run in driver.runs] == [taken]


def test_a_run_slips_out_of_the_time_in_which_a_bound_is_reached() -> None:
    """Six runs of ten minutes find time on two nodes within half an hour, and no third node."""
    nodes = nodes_of(4)
    ops = CampaignView("ops", target=2, borrow=0)
    wanted = [
        due(f"t{number}", "ops", nodes, duration=10 * times.MINUTE, slip=20 * times.MINUTE)
        for number in range(6)
    ]
    driver = Driver(view_of(nodes, [ops], wanted))
    driver.drive(COMPOSITIONS["gridserver-sla"])
    starts = Counter((run.start - NOW) // times.MINUTE for run in driver.runs)
    assert starts == {0: 2, 10: 2, 20: 2}


def test_seats_are_kept_where_they_are_wanted_only() -> None:
    """A group borrows at one instant what the other one wants at another."""
    later = NOW + 30 * times.MINUTE
    wanted = [*_wanting("lab", 3, 5), *_wanting("ops", 2, 5, later)]
    driver = Driver(view_of(NODES, CAMPAIGNS, wanted))
    driver.drive(COMPOSITIONS["gridserver-sla"])
    assert _given(driver) == {"ops": 2, "lab": 3}


def test_the_refusal_names_who_is_promised_what() -> None:
    """A refusal says for whom a seat is kept, and what both groups hold."""
    wanted = [*_wanting("lab", 2, 5), *_wanting("ops", 2, 5)]
    used = [Charge("ops", NOW - times.HOUR, NOW, times.HOUR)]  # so that lab is served first
    view = view_of(NODES, CAMPAIGNS, wanted, ledger=used)
    driver = Driver(view, has_time=lambda ask: ask.candidate.campaign == "lab")
    outcome = driver.drive(COMPOSITIONS["gridserver-sla"])
    [refusal, *_] = outcome.refused["lab-1"]
    at = times.to_the_second(NOW)
    assert refusal.reason == (
        f"ops is promised 2 seats and holds 0 of them at {at}, when its own runs want more; "
        "lab holds 1 of its 1"
    )


@pytest.mark.parametrize("minutes", MINUTES)
def test_what_was_lent_is_taken_back_whatever_the_length_of_runs(minutes: int) -> None:
    """A group that returns displaces what another one borrowed, up to its promise."""
    start = NOW + times.HOUR
    end = start + minutes * times.MINUTE
    lent = [
        PostedRun(f"r{number}", f"lab-{number}", "lab", (f"n{number}",), start, end)
        for number in range(3)
    ]
    wanted = _wanting("ops", 3, minutes, start)
    driver = Driver(view_of(NODES, CAMPAIGNS, wanted, runs=lent), has_time=lambda _: False)
    driver.drive(COMPOSITIONS["gridserver-sla-preempt"])
    displacing = [ask.displacing for ask in driver.asks if ask.displacing is not None]
    assert displacing
    assert all(set(each.runs or ()) <= {run.run for run in lent} for each in displacing)
    driver = Driver(view_of(NODES, CAMPAIGNS, wanted, runs=lent), has_time=lambda _: False)
    driver.drive(COMPOSITIONS["gridserver-sla"])
    assert not [ask for ask in driver.asks if ask.displacing is not None]


@given(
    bounds=st.lists(
        st.tuples(
            st.integers(1, 3),
            st.sampled_from([None, 0, 1, 2]),
            st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(1)]),
        ),
        min_size=2,
        max_size=3,
    ),
    spare=st.integers(0, 3),
    wanted=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([5, 20, 50]),
            st.integers(0, 40),
            st.sampled_from([0, 10, 45]),
        ),
        max_size=16,
    ),
    wide=st.booleans(),
)
def test_no_bound_is_passed_at_any_instant(
    bounds: list[tuple[int, int | None, Fraction]],
    spare: int,
    wanted: list[tuple[int, int, int, int]],
    *,
    wide: bool,
) -> None:
    """No group holds more than its promise and loan, and what each keeps is free for it."""
    campaigns = [
        CampaignView(f"c{number}", target=target, borrow=borrow, lend=lend)
        for number, (target, borrow, lend) in enumerate(bounds)
    ]
    nodes = nodes_of(sum(target for target, _, _ in bounds) + spare)
    candidates = [
        due(
            f"t{number}",
            campaigns[whose % len(campaigns)].name,
            nodes,
            duration=length * times.MINUTE,
            next_run_at=NOW + after * times.MINUTE,
            slip=0 if wide else slip * times.MINUTE,  # nodes of wide ones begin apart
            k=3 if wide else 1,
            k_min=1,
        )
        for number, (whose, length, after, slip) in enumerate(wanted)
    ]
    driver = Driver(view_of(nodes, campaigns, candidates))
    driver.drive(COMPOSITIONS["gridserver-sla"])
    for at in {run.start for run in driver.runs}:
        held = Counter[str]()
        for run in driver.runs:
            held[run.campaign] += len(run.nodes) * (run.start <= at < run.end)
        free = len(nodes) - held.total()
        for own, (target, borrow, _) in zip(campaigns, bounds, strict=True):
            if borrow is not None:
                assert held[own.name] <= target + borrow
        kept = [
            max(0, target - int(target * lend) - held[own.name])
            for own, (target, _, lend) in zip(campaigns, bounds, strict=True)
        ]
        assert free >= sum(kept)
