"""What of the hours ahead is kept for others, and what is reserved beside all that is shared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.policy.placement_requests import EpisodeOutcome
from lead.policy.sets import DEFAULT, SETS
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
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

NODES = nodes_of(4)
NEAR = NOW + 2 * BUCKET
ROUNDED = Fraction(1, 1000)
"""Of a seat; parts are rounded up to a microsecond."""
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
    """The seats that a campaign has in each of the first hours from now on."""
    return [Fraction(held[name][NOW + hour * BUCKET], BUCKET) for hour in range(count)]


def given_to(driver: Driver) -> dict[str, Counter[int]]:
    """By campaign and hour, the seat-µs that were given."""
    found: dict[str, Counter[int]] = {"blue": Counter(), "red": Counter(), "other": Counter()}
    length = {it.task: it.duration for it in driver.view.candidates}
    for run in driver.runs:
        if run.task in length:
            found[run.campaign][run.start // BUCKET * BUCKET] += length[run.task] * len(run.nodes)
    return found


def wanting(campaign: str, count: int, **figures: int) -> list[Candidate]:
    """Tasks of ten minutes on one node in each of so many hours, enough to fill the pool."""
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
    """Blue asks for all of six hours."""
    driver = Driver(view or view_of(NODES, campaigns, wanting("blue", 6)))
    return driver, driver.drive(SETS[policy])


@pytest.mark.parametrize("policy", BY_WEIGHT)
def test_beyond_two_hours_there_is_no_more_than_ones_part(policy: str) -> None:
    """Whoever asks has the near hours; of the others a quarter, though nobody else wants them."""
    driver, outcome = played(policy, BLUE, RED)
    assert hours(given_to(driver), "blue", 6) == [4, 4, 1, 1, 1, 1]
    [no] = outcome.refused["blue-3-23"]
    assert (no.rule.name, no.until) == ("kept", NOW + 2 * BUCKET)
    assert "blue has 1 of the 1 seat-hours that are its part from" in no.sentence


@pytest.mark.parametrize("policy", BY_WEIGHT)
@pytest.mark.parametrize("other", ["none", "suspended", "urgent"])
def test_who_shares_with_nobody_has_all(policy: str, other: str) -> None:
    """Nothing is kept for those that are suspended, or urgent: these have it anyway."""
    levels = {"suspended": 0, "urgent": URGENT}
    others = [replace(RED, level=levels[other])] if other != "none" else []
    blue = replace(BLUE, target=Fraction(99, 100)) if policy == "gridserver-sla" else BLUE
    if policy in ("gridserver-sla", "maui-fairshare"):
        others = [replace(it, target=None) for it in others]
    driver, _ = played(policy, blue, *others)
    assert hours(given_to(driver), "blue", 6) == [4] * 6


@pytest.mark.parametrize("policy", ["pscheduler", "maui-fifo", "gridserver-time", "fbsng-dynamic"])
def test_sets_without_shares_keep_nothing(policy: str) -> None:
    """First come, first served, for the whole day."""
    driver, _ = played(policy, BLUE, RED)
    assert hours(given_to(driver), "blue", 6) == [4] * 6


def test_urgent_campaigns_have_what_they_find() -> None:
    """However far ahead."""
    driver, _ = played(DEFAULT, replace(BLUE, level=URGENT), RED)
    assert hours(given_to(driver), "blue", 6) == [4] * 6


def test_lower_levels_wait_until_hours_are_near() -> None:
    """Incidents come first: where levels are served one after the other, all is kept for them."""
    driver, _ = played("gridserver-serial-usage", BLUE, replace(RED, level=9))
    assert hours(given_to(driver), "blue", 6) == [4, 4, 0, 0, 0, 0]


def test_floors_and_ceilings_of_fairshares() -> None:
    """A ceiling is no claim: what is kept for it is no more than that, and the rest is shared."""
    red = replace(RED, fairshare=FairshareView(Fraction(1, 2), FairshareKind.FLOOR))
    blue = replace(BLUE, fairshare=FairshareView(Fraction(1, 8), FairshareKind.CEILING))
    driver, _ = played("maui-fairshare", blue, red)
    assert hours(given_to(driver), "blue", 4) == [4, 4, Fraction(1, 2), Fraction(1, 2)]


def test_a_parent_shares_with_its_children() -> None:
    """Half of the pool is that of blue's parent, which is one more child of its own."""
    other, blue = CampaignView("other", weight=3), replace(BLUE, parent="other")
    driver, _ = played(DEFAULT, other, blue, RED)
    assert hours(given_to(driver), "blue", 4) == [4, 4, 1, 1]


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([5, 20, 60]), min_size=1, max_size=12),
    weights=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    wide=st.integers(1, 4),
)
def test_long_and_wide_runs_come_out_even(
    lengths: list[int], weights: tuple[int, int], wide: int
) -> None:
    """Up to every hour a campaign has its part and one run more at most, and it is not starved."""
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
    """Who has its part of the next hour already cannot begin a term that goes on into it."""
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


def test_what_terms_take_of_later_hours_counts_at_once() -> None:
    """Of two terms over two hours that take a seat of each, a campaign with one seat has one."""
    runs = tuple((NEAR + hour * BUCKET, NEAR + (hour + 1) * BUCKET) for hour in (0, 1))
    figures = {"duration": BUCKET, "slip": 0}
    term = replace(due("term", "blue", NODES, next_run_at=NEAR, **figures), runs=runs)
    later = due("later", "blue", NODES, next_run_at=NEAR + BUCKET, **figures)
    _, outcome = played(DEFAULT, view=view_of(NODES, [BLUE, RED], [term, later]))
    assert outcome.refused.keys() == {"later"}


@pytest.mark.parametrize("policy", [DEFAULT, "gridserver-sla", "gridserver-time"])
@pytest.mark.parametrize("ahead", [0, 4])
def test_what_is_reserved_is_beside_all_that_is_shared(policy: str, ahead: int) -> None:
    """Others hold all the rest of the hour, and still it may have what is reserved, and no more."""
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
    """Blue has so many of four seats in four hours ahead, red wants all of one of these."""
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


def test_what_is_too_much_is_given_back() -> None:
    """The youngest seats of the hour, and blue keeps the one that is its part."""
    outcome = _too_much(4)
    assert list(outcome.returned) == ["1-3", "1-2", "1-1"]
    assert outcome.returned["1-1"].sentence == (
        "given back to red, which is below its part of the hours ahead; "
        "blue was 10 seat-hours above its own"
    )


@pytest.mark.parametrize("why", ["no more than its part", "not returnable", "near", "urgent"])
def test_what_is_not_too_much_stays(why: str) -> None:
    """Nobody gives back of its part, of what has begun or is near, or if it is urgent."""
    others: dict[str, dict[str, Any]] = {
        "not returnable": {"returnable": ()},
        "near": {"now": NEAR},
        "urgent": {"campaigns": {"blue": replace(BLUE, level=URGENT), "red": RED}},
    }
    outcome = _too_much(1 if why == "no more than its part" else 4, **others.get(why, {}))
    assert outcome.refused.keys() == {"red"}
    assert outcome.returned == {}


def test_it_is_said_who_holds_a_full_hour() -> None:
    """The three with most of it, and how much that is."""
    names = "abcde"
    ledger = [Charge(it, NOW, NOW + BUCKET, (6 - n) * BUCKET // 4) for n, it in enumerate(names)]
    asked = due("t", "red", NODES)
    view = view_of(NODES, [*map(CampaignView, names), RED], [asked], ledger=ledger)
    [no] = played("gridserver-time", view=view)[1].refused["t"]
    assert "seats of the hour from" in no.sentence
    assert no.sentence.startswith("all 4 seats ")
    assert no.sentence.endswith(" are taken by a (1.5), b (1.25), c (1), 2 others")
    assert no.until is None, "others may cancel theirs"


def test_what_is_put_off_says_why_and_until_when() -> None:
    """The cause comes first, and is not asked about again before the pause is over."""
    taken = PostedRun("r", "r", "blue", tuple(NODES), NOW, NOW + BUCKET)
    asked = due("t", "red", NODES, slip=0)
    view = view_of(NODES, [BLUE, RED], [asked], runs=[taken])
    first, last = played("maui-defer", view=view)[1].refused["t"]
    assert (first.rule.name, last.rule.name) == ("no-time", "deferred")
    assert first.until == last.until == NOW + times.HOUR
    assert last.sentence.startswith("t could not be started and is deferred until ")
