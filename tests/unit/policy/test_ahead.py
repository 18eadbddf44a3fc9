"""Reserving parts of the hours ahead, and reservations on top of shared time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.policy.contested import NOTICE
from lead.policy.placement_requests import EpisodeOutcome
from lead.policy.sets import DEFAULT
from lead.policy.view import (
    BUCKET,
    URGENT,
    CampaignView,
    Candidate,
    Charge,
    FairshareKind,
    FairshareView,
    PostedRun,
    ReservationView,
    View,
)
from node.model import times
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

NODES = nodes_of(4)
NEAR = NOW + 2 * BUCKET
ROUNDED = Fraction(1, 1000)
"""The tolerance in seats; parts are rounded up to a microsecond."""
BLUE = CampaignView(
    "blue", weight=1, target=Fraction(1, 4), fairshare=FairshareView(Fraction(1, 4))
)
RED = CampaignView("red", weight=3, target=Fraction(3, 4), fairshare=FairshareView(Fraction(3, 4)))
BY_WEIGHT = (
    DEFAULT,
    "gridserver-usage",
    "gridserver-usage-aggregated",
    "gridserver-sla",
    "maui-fairshare",
    "boinc-wrr",
)


def hours(held: dict[str, Counter[int]], name: str, count: int) -> list[Fraction]:
    """Return the seats that a campaign has in each of the first hours from now on."""
    return [Fraction(held[name][NOW + hour * BUCKET], BUCKET) for hour in range(count)]


def given_to(driver: Driver) -> dict[str, Counter[int]]:
    """Return the seat-µs given, by campaign and hour."""
    seats: dict[str, Counter[int]] = {"blue": Counter(), "red": Counter(), "other": Counter()}
    durations = {it.task: it.duration for it in driver.view.candidates}
    for run in driver.runs:
        if run.task in durations:
            hour = run.start // BUCKET * BUCKET
            seats[run.campaign][hour] += durations[run.task] * len(run.nodes)
    return seats


def wanting(campaign: str, count: int, **figures: int) -> list[Candidate]:
    """Return ten-minute tasks on one node in each of ``count`` hours, enough to fill the pool."""
    return [
        due(
            f"{campaign}-{hour}-{number}",
            campaign,
            NODES,
            next_run_at=NOW + hour * BUCKET,
            **figures,
        )
        for hour in range(count)
        for number in range(6 * len(NODES))
    ]


def played(
    policy: str, *campaigns: CampaignView, view: View | None = None
) -> tuple[Driver, EpisodeOutcome]:
    """Drive an episode in which blue asks for all of six hours."""
    driver = Driver(view or view_of(NODES, campaigns, wanting("blue", 6)))
    return driver, driver.drive(COMPOSITIONS[policy])


@pytest.mark.parametrize("policy", BY_WEIGHT)
def test_a_campaign_gets_only_its_part_beyond_two_hours(policy: str) -> None:
    """A campaign may have all of the near hours, but only a quarter of later ones."""
    driver, outcome = played(policy, BLUE, RED)
    assert hours(given_to(driver), "blue", 6) == [4, 4, 1, 1, 1, 1]
    [refusal] = outcome.refused["blue-3-23"]
    assert (refusal.rule.name, refusal.until) == ("kept", NOW + 2 * BUCKET)
    figures = refusal.reason.figures
    assert (figures["whose"], float(figures["held"]), float(figures["part"])) == ("blue", 1, 1)


@pytest.mark.parametrize("policy", BY_WEIGHT)
@pytest.mark.parametrize("other", ["none", "suspended", "urgent"])
@pytest.mark.mostly_nightly
def test_a_sole_campaign_gets_everything(policy: str, other: str) -> None:
    """Suspended and urgent campaigns have no part of later hours."""
    levels = {"suspended": 0, "urgent": URGENT}
    others = [replace(RED, level=levels[other])] if other != "none" else []
    blue = replace(BLUE, target=Fraction(99, 100)) if policy == "gridserver-sla" else BLUE
    if policy in ("gridserver-sla", "maui-fairshare"):
        others = [replace(it, target=None) for it in others]
    driver, _ = played(policy, blue, *others)
    assert hours(given_to(driver), "blue", 6) == [4] * 6


@pytest.mark.parametrize("policy", ["pscheduler", "maui-fifo", "gridserver-time", "fbsng-dynamic"])
def test_sets_without_shares_reserve_nothing(policy: str) -> None:
    """Sets without shares give the whole day to the first that asks."""
    driver, _ = played(policy, BLUE, RED)
    assert hours(given_to(driver), "blue", 6) == [4] * 6


def test_urgent_campaigns_are_not_limited() -> None:
    """Urgent campaigns get what they find, however far ahead."""
    driver, _ = played(DEFAULT, replace(BLUE, level=URGENT), RED)
    assert hours(given_to(driver), "blue", 6) == [4] * 6


def test_lower_levels_wait_until_hours_are_near() -> None:
    """All later hours are reserved for the highest level if levels are served in order."""
    driver, _ = played("gridserver-serial-usage", BLUE, replace(RED, level=9))
    assert hours(given_to(driver), "blue", 6) == [4, 4, 0, 0, 0, 0]


def test_floors_and_ceilings_of_fairshares() -> None:
    """A ceiling limits what is reserved for a campaign, and the others share the rest."""
    red = replace(RED, fairshare=FairshareView(Fraction(1, 2), FairshareKind.FLOOR))
    blue = replace(BLUE, fairshare=FairshareView(Fraction(1, 8), FairshareKind.CEILING))
    driver, _ = played("maui-fairshare", blue, red)
    assert hours(given_to(driver), "blue", 4) == [4, 4, Fraction(1, 2), Fraction(1, 2)]


def test_a_parent_shares_with_its_children() -> None:
    """A parent's part is divided between itself and its children."""
    other, blue = CampaignView("other", weight=3), replace(BLUE, parent="other")
    driver, _ = played(DEFAULT, other, blue, RED)
    assert hours(given_to(driver), "blue", 4) == [4, 4, 1, 1]


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([5, 20, 60]), min_size=1, max_size=12),
    weights=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    wide=st.integers(1, 4),
)
@pytest.mark.nightly
def test_long_and_wide_runs_even_out(
    lengths: list[int], weights: tuple[int, int], wide: int
) -> None:
    """Up to every hour a campaign has at most its part and one run, and it is not starved."""
    weighed = replace(BLUE, weight=weights[0]), replace(RED, weight=weights[1])
    wanted = [
        due(
            f"{hour}-{number}",
            "blue",
            NODES,
            next_run_at=NOW + hour * BUCKET,
            duration=length * times.MINUTE,
            slip=BUCKET - length * times.MINUTE,
            k=wide,
            k_min=wide,
        )
        for hour in range(2, 20)
        for number, length in enumerate(lengths)
    ]
    driver, _ = played(DEFAULT, view=view_of(NODES, weighed, wanted))
    held = hours(given_to(driver), "blue", 20)
    part = Fraction(4 * weights[0], sum(weights))
    one = Fraction(wide * max(lengths), 60)
    for hour in range(3, 21):
        assert sum(held[2:hour]) <= part * (hour - 2) + one + ROUNDED
    fits = min(Fraction(wide * sum(lengths), 60), Fraction(wide))
    assert sum(held[2:]) >= min(part, fits) * 18 - one


def test_terms_count_in_all_their_hours() -> None:
    """A campaign that has its part of the next hour cannot begin a term that continues into it."""
    begin = NEAR + 30 * times.MINUTE
    figures = {"next_run_at": begin, "duration": 5 * times.MINUTE, "slip": 0}
    runs = tuple((at, at + 5 * times.MINUTE) for at in (begin, begin + 40 * times.MINUTE))
    short = due("short", "blue", NODES, **figures)
    ledger = [Charge("blue", NEAR + BUCKET, NEAR + 2 * BUCKET, BUCKET)]
    view = view_of(
        NODES, [BLUE, RED], [short, replace(short, task="term", runs=runs)], ledger=ledger
    )
    _, outcome = played(DEFAULT, view=view)
    assert outcome.refused.keys() == {"term"}


def test_later_hours_of_a_term_count_at_once() -> None:
    """A campaign with a part of one seat gets one of two terms that take two hours each."""
    runs = tuple((NEAR + hour * BUCKET, NEAR + (hour + 1) * BUCKET) for hour in (0, 1))
    figures = {"duration": BUCKET, "slip": 0}
    term = replace(due("term", "blue", NODES, next_run_at=NEAR, **figures), runs=runs)
    later = due("later", "blue", NODES, next_run_at=NEAR + BUCKET, **figures)
    _, outcome = played(DEFAULT, view=view_of(NODES, [BLUE, RED], [term, later]))
    assert outcome.refused.keys() == {"later"}


@pytest.mark.parametrize("policy", [DEFAULT, "gridserver-sla", "gridserver-time"])
@pytest.mark.parametrize("ahead", [0, 4])
def test_reserved_time_comes_on_top_of_shared_time(policy: str, ahead: int) -> None:
    """A campaign gets exactly its reserved time while another holds all the rest of the hour."""
    begin = NOW + ahead * BUCKET
    asked = [
        due(f"red-{n}", "red", NODES, next_run_at=begin, slip=20 * times.MINUTE) for n in range(14)
    ]
    tasks = frozenset(it.task for it in asked)
    reserved = ReservationView("demo", tuple(NODES), begin, begin + BUCKET // 2, tasks=tasks)
    half = begin + BUCKET // 2, begin + BUCKET
    full = PostedRun("r", "t", "blue", tuple(NODES), *half)
    blue = due("blue", "blue", NODES, next_run_at=begin)
    view = view_of(
        NODES,
        [BLUE, RED],
        [*asked, blue],
        runs=[full],
        ledger=[Charge("blue", *half, 2 * BUCKET)],
        reservations=[reserved],
    )
    driver, outcome = played(policy, view=view)
    given = given_to(driver)["red"][begin]
    assert given == 2 * BUCKET
    assert outcome.refused["blue"]


def _too_much(part: int, **others: Any) -> EpisodeOutcome:
    """Drive an episode: blue has ``part`` of four seats in four hours, red wants all of one."""
    runs = [
        PostedRun(f"r{hour}-{n}", f"{hour}-{n}", "blue", (f"n{n}",), at, at + BUCKET)
        for hour, at in enumerate(range(NEAR, NEAR + 4 * BUCKET, BUCKET))
        for n in range(part)
    ]
    ledger = [Charge("blue", it.start, it.end, BUCKET) for it in runs]
    at = NEAR + BUCKET
    red = due("red", "red", NODES, next_run_at=at, duration=BUCKET, slip=0, k=4, k_min=4)
    young = [it.task for it in runs[::-1]]
    view = view_of(NODES, [BLUE, RED], [red], runs=runs, ledger=ledger, returnable=young)
    return played(DEFAULT, view=replace(view, **others))[1]


def test_excess_seats_are_given_back() -> None:
    """The youngest seats of the hour are given back, down to the one that is blue's part."""
    outcome = _too_much(4)
    assert list(outcome.returned) == ["1-3", "1-2", "1-1"]
    figures = outcome.returned["1-1"].reason.figures
    assert (figures["campaign"], figures["due"], figures["held"]) == ("red", 3, 0)
    assert (figures["whose"], figures["due_theirs"], figures["theirs"]) == ("blue", 1, 4)


@pytest.mark.parametrize("why", ["no more than its part", "not returnable", "near", "urgent"])
def test_other_seats_are_not_given_back(why: str) -> None:
    """Seats within the part, those that begin in a moment, and urgent seats stay."""
    others: dict[str, dict[str, Any]] = {
        "not returnable": {"returnable": ()},
        "near": {"now": NEAR + BUCKET - NOTICE + 1},
        "urgent": {"campaigns": {"blue": replace(BLUE, level=URGENT), "red": RED}},
    }
    outcome = _too_much(1 if why == "no more than its part" else 4, **others.get(why, {}))
    assert outcome.refused.keys() == {"red"}
    assert outcome.returned == {}


def test_a_full_hour_lists_its_largest_holders() -> None:
    """The refusal lists the three largest holders with their seats, and counts the others."""
    names = "abcde"
    ledger = [Charge(it, NOW, NOW + BUCKET, (6 - n) * BUCKET // 4) for n, it in enumerate(names)]
    asked = due("t", "red", NODES)
    view = view_of(NODES, [*map(CampaignView, names), RED], [asked], ledger=ledger)
    [refusal] = played("gridserver-time", view=view)[1].refused["t"]
    figures = refusal.reason.figures
    assert (figures["seats"], figures["holders"]) == (4, "a (1.5), b (1.25), c (1), 2 others")
    assert refusal.until is None, "others may cancel theirs"


def test_a_deferral_gives_reason_and_end() -> None:
    """The cause comes first, and both refusals hold until the end of the deferral."""
    taken = PostedRun("r", "r", "blue", tuple(NODES), NOW, NOW + BUCKET)
    asked = due("t", "red", NODES, slip=0)
    view = view_of(NODES, [BLUE, RED], [asked], runs=[taken])
    first, last = played("maui-defer", view=view)[1].refused["t"]
    assert (first.rule.name, last.rule.name) == ("no-time", "deferred")
    assert first.until == last.until == NOW + times.HOUR
