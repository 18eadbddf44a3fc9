"""Fleets played by policies: the ledger, and the promises of sets over a short time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead.planning.pool_view import charges_of
from lead.policy.axes.share import ByUsage
from lead.policy.campaign_grouping import CampaignGrouping
from lead.policy.placement_requests import EpisodeOutcome
from lead.policy.sets import DEFAULT, SETS
from lead.policy.settings import configured_recipe
from lead.policy.view import (
    CampaignView,
    Candidate,
    FairshareView,
    NodeView,
    PoolView,
    PostedRun,
    QueueView,
    View,
)
from lead.policy.view import Charge as Charged
from lead.pool.rehearsal.ledger import WEIGHT, Ledger
from lead.pool.rehearsal.world import FleetBooking, HeldEpisode
from lead.simulation.clock import START
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.drawing import draw_fleet_report
from lead.simulation.fleet.play import TRIALS, play
from lead.simulation.fleet.promises import Sharing, sharing_of
from lead.simulation.fleet.pull_order import PullCounter
from lead.simulation.fleet.report import FleetCheck
from lead.simulation.fleet.trials import tolerance
from lead.simulation.scenario import FLEET, read, validated
from lead.simulation.server import NodeStore, lent
from node.model import times
from node.model.errors import InvalidDocument

CHARGE = """
INSERT INTO charge
(campaign_id, run_id, participant, node, starts_at, ends_at, weight, cause, made_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'booked', $5)
"""
HOURS = "SELECT hour, campaign_id, sum(amount)::bigint AS amount FROM charge_hour GROUP BY 1, 2"
RUNS = st.tuples(
    st.integers(0, 5 * times.HOUR), st.integers(1, 3 * times.HOUR), st.sampled_from("ab")
)


THREE_CAMPAIGNS = [
    campaign
    for campaign in read(FLEET)["campaigns"]
    if campaign["name"] in {"atlas", "belle", "dune"}
]


def fleet(**changes: Any) -> FleetScenario:
    """Return a smaller variant of the built-in fleet."""
    return validated(FleetScenario, {**read(FLEET), "runs": 1000, **changes})


def tried(trial: str, name: str, **changes: Any) -> dict[str, FleetCheck]:
    """Return the checks of one trial of one set, by the party they concern."""
    checks = TRIALS[trial][0](fleet(**changes), name, lambda: None)
    return {check.who: check for check in checks}


def sharing(recipe: str) -> Sharing:
    """Return what a set promises of shares."""
    promised = sharing_of(configured_recipe(recipe))
    assert promised is not None
    return promised


@pytest.fixture(scope="module")
def store() -> Iterator[NodeStore]:
    """Return an empty database of a lead."""
    with lent(1) as [made]:
        yield made


@settings(max_examples=30)
@given(runs=st.lists(RUNS, max_size=6), reversals=st.integers(0, 6))
@pytest.mark.nightly
def test_the_ledger_is_that_of_the_lead(
    store: NodeStore, runs: list[tuple[int, int, str]], reversals: int
) -> None:
    """The fleet's ledger has the same sums as the table of hours, also after reversed charges."""
    ledger = Ledger()
    store.empty()
    ids = {"a": 1, "b": 2}
    for number, (start, length, campaign) in enumerate([*runs, *runs[:reversals]]):
        back = number >= len(runs)
        weight = -WEIGHT if back else WEIGHT
        run = PostedRun("r", "t", campaign, ("n1", "n2"), START + start, START + start + length)
        ledger.charge(run, weight)
        for place, node in enumerate(run.nodes):
            key = ids[campaign], UUID(int=number), place, node
            store.write(CHARGE, *key, run.start, run.end, weight)
    sums: dict[tuple[int, str], int] = {}
    for row in store.read(HOURS):
        sums[row["hour"], "ab"[row["campaign_id"] - 1]] = row["amount"]
    expected = charges_of((campaign, hour, it) for (hour, campaign), it in sorted(sums.items()))
    assert ledger.read(START) == expected


@pytest.mark.parametrize(
    ("name", "promised"),
    [
        ("campaign-default", (2, 5, 3)),
        ("shares together=level", (2, 5, 3)),
        ("shares serial=true", (0, 4, 6)),
        ("in-order", (6, 4, 0)),
        ("turns", (5, 3, 2)),
    ],
)
def test_what_is_promised_of_shares(name: str, promised: tuple[int, int, int]) -> None:
    """Each set divides ten seats by its own rule: weight, level, creation, or price."""
    campaigns = [
        CampaignView("a", weight=2, level=1, created_at=1, queue=QueueView(price=6)),
        CampaignView("b", weight=6, level=5, created_at=2, queue=QueueView(price=10)),
        CampaignView("c", weight=3, level=9, created_at=3, queue=QueueView(price=15)),
    ]
    demand = {"a": 6, "b": 5, "c": 6} if name != "turns" else {"a": 9, "b": 9, "c": 9}
    if name == "shares together=level":
        campaigns = [
            replace(it, level=level) for it, level in zip(campaigns, (2, 8, 8), strict=True)
        ]
    shares = sharing(name)(campaigns, demand, 10)
    assert [shares[it] for it in "abc"] == list(promised)


def test_fairshares_pull_to_equal_distances_from_targets() -> None:
    """A campaign that wants less than its target leaves the rest to the others in equal parts."""
    parts = {"a": Fraction(1, 10), "b": Fraction(3, 10), "c": Fraction(6, 10)}
    campaigns = [CampaignView(name, fairshare=FairshareView(part)) for name, part in parts.items()]
    shared = sharing("priority fairshare=true")
    assert shared(campaigns, {"a": 6, "b": 6, "c": 4}, 10) == {"a": 2, "b": 4, "c": 4}
    assert shared(campaigns, {"a": 1, "b": 2, "c": 4}, 10) == {"a": 1, "b": 2, "c": 4}


@pytest.mark.parametrize(("order", "too_soon"), [("baba", 1), ("bbaa", 0), ("aabb", 2)])
def test_who_is_further_below_its_target_comes_first(order: str, too_soon: int) -> None:
    """The counter counts runs of a, which used everything, before runs of b, which used nothing."""
    now = START + times.DAY
    half = FairshareView(Fraction(1, 2))
    runs = [
        PostedRun(f"r{number}", f"t{number}", campaign, ("n",), now, now + 1)
        for number, campaign in enumerate(order)
    ]
    booked = [
        FleetBooking((it,), Candidate(it.task, it.campaign, now, 1, ("n",), waits_since=START), now)
        for it in runs
    ]
    view = View(
        now=now,
        horizon=times.HOUR,
        pool=PoolView("p", ("n",)),
        nodes={"n": NodeView("n")},
        campaigns={name: CampaignView(name, fairshare=half) for name in "ab"},
        candidates=[it.candidate for it in booked],
        ledger=[Charged("a", START, START + times.HOUR, times.HOUR)],
    )
    outcome = EpisodeOutcome(
        placed=runs, refused={}, unreached=0, reservations=[], state=view.state
    )
    counter = PullCounter()
    counter(HeldEpisode(view, outcome, booked))
    assert (counter.compared, counter.too_soon) == (3, too_soon)


@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_a_fairshare_decides_between_runs_alike() -> None:
    """Fairshares have no bounds, but the campaign further below its target comes first."""
    checks = tried("shares", "priority weights=usual fairshare=true", runs=100, nodes=5)
    assert checks["atlas"].least is None
    assert checks["runs compared"].found > 0
    assert all(check.holds for check in checks.values()), checks


@pytest.mark.parametrize("name", ["campaign-default", "turns"])
@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_overload_is_shared_as_promised(name: str) -> None:
    """Under overload each campaign gets its promised share and no time stays unused."""
    checks = tried("overload", name, runs=2500, nodes=4)
    assert len(checks) == 6
    assert all(check.holds for check in checks.values()), checks


@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_short_runs_leave_no_pieces_of_those_who_are_behind() -> None:
    """A campaign that wants less than its share gets all of it in any order of tasks."""
    checks = tried("overload", "campaign-default", runs=500, seed=1)
    assert checks["dune"].found == checks["euclid"].found == 30


@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_without_a_budget_the_urgent_displace_nobody() -> None:
    """A budget of a tenth of six nodes is less than one node and allows no displacement."""
    checks = tried("urgent", "shares urgent=10", nodes=6)
    assert checks["runs displaced"].found == 0
    assert all(check.holds for check in checks.values()), checks


@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_the_second_tier_fills_a_fleet_that_one_episode_cannot() -> None:
    """A second episode fills the fleet when an hour has more runs than one episode can place."""
    checks = tried("overload", "shares together=level", runs=1000, nodes=12)
    assert checks["all of the fleet in use"].found == 100


@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_turns_are_not_spent_on_hours_that_are_full() -> None:
    """The rest of the last hour does not count against the campaigns that got least of it."""
    checks = tried("shares", "long-term", runs=1500, nodes=6)
    assert all(check.holds for check in checks.values()), checks


@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_a_newcomer_neither_floods_nor_starves() -> None:
    """A newcomer gets its share within the first hours, and never much more."""
    checks = tried("newcomers", "campaign-default", nodes=8, campaigns=THREE_CAMPAIGNS)
    assert len(checks) == 2
    assert all(check.holds for check in checks.values()), checks


@pytest.mark.parametrize("name", ["campaign-default", "shares"])
@pytest.mark.nightly
def test_who_asks_later_has_its_part(name: str) -> None:
    """A campaign that asks after others have asked for a whole day gets its share."""
    checks = tried("latecomers", name, nodes=10)
    assert len(checks) == 2
    assert all(check.holds for check in checks.values()), checks


@pytest.mark.nightly
def test_first_come_first_served_is_no_promise_to_latecomers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trial fails for latecomers when no hour is reserved for them."""
    by_usage = ByUsage(together=CampaignGrouping.PARENT, entitled=True, near=times.DAY)
    monkeypatch.setitem(SETS, "campaign-default", replace(SETS[DEFAULT], share=by_usage))
    checks = tried("latecomers", "campaign-default", nodes=5)
    assert len(checks) == 2
    assert not any(check.holds for check in checks.values()), checks


@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_the_urgent_displace_up_to_their_budget() -> None:
    """Urgent runs on a full fleet displace exactly as many seats as their budget allows."""
    checks = tried("urgent", "shares urgent=10", nodes=10)
    assert checks["seats taken from others at once"].found == 1
    assert checks["runs displaced"].found > 0


@pytest.mark.timeout(60)
def test_what_sets_do_not_promise_is_not_checked() -> None:
    """A set is not checked for a promise that it does not make."""
    assert tried("shares", "pscheduler") == {}
    assert tried("newcomers", "long-term") == {}


def test_a_check_is_described_with_its_bounds() -> None:
    """A failed check names the measured value and the bounds."""
    check = FleetCheck(
        trial="t", policy="p", who="w", unit="%", promised=5, least=4, most=6, found=7
    )
    assert not check.holds
    assert check.sentence == "t, p, w: 7 %, not at least 4 and at most 6"


@pytest.mark.timeout(60)
@pytest.mark.nightly
def test_the_same_seed_is_the_same_report() -> None:
    """Two plays with the same seed give equal reports."""
    scenario = fleet(sets=["shares"], runs=100, nodes=4, campaigns=THREE_CAMPAIGNS)
    reports = [play(scenario, lambda share, current: None) for _ in range(2)]  # noqa: ARG005
    assert reports[0] == reports[1]
    assert draw_fleet_report(reports[0]).count("<rect") > 20


@pytest.mark.parametrize(
    "changes",
    [
        {"sets": ["maui-magic"]},
        {"nodes": 1},
        {"campaigns": [{"name": "alone"}]},
        {"campaigns": [{"name": "a", "length": "PT7M"}, {"name": "b"}]},
    ],
)
def test_a_fleet_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    """Unknown sets, too few nodes or campaigns, and lengths not dividing an hour are refused."""
    with pytest.raises(InvalidDocument):
        fleet(**changes)


def test_few_runs_show_no_more_than_counting_allows() -> None:
    """The tolerance is 2 % from 10,000 runs on and grows as one over the root of fewer runs."""
    assert [tolerance(runs) for runs in (1_000_000, 10_000, 400, 100)] == [0.02, 0.02, 0.1, 0.2]
