"""The shares of a pool that campaigns were promised and got in a simulated world."""

from __future__ import annotations

from typing import Any

import pytest

from lead.simulation.scenario import PromiseExpectation, Scenario, named_scenario, validated
from lead.simulation.shares import promised_and_delivered, shares_of_leads
from lead.simulation.world import simulate
from node.model import times
from node.model.errors import InvalidDocument

_LEADS = {"one": "n7", "two": "n8"}


def scenario(**changes: Any) -> Scenario:
    """Return the built-in scenario of shares with changes."""
    document = named_scenario("shares").model_dump(by_alias=True, mode="json")
    return validated(Scenario, document | changes)


def test_shares_within_two_percent_hold() -> None:
    """Shares within 2 % hold; campaigns without an expectation do not count."""
    got = {"atlas": 99, "belle": 203, "cello": 300, "dune": 398, "others": 50}
    trial = promised_and_delivered(
        scenario(), {name: part * 24 * times.MINUTE for name, part in got.items()}
    )
    assert trial is not None
    assert trial.broken_checks == ()
    assert [(check.who, check.promised, check.found) for check in trial.checks] == [
        ("atlas", 10, 9.9),
        ("belle", 20, 20.3),
        ("cello", 30, 30),
        ("dune", 40, 39.8),
    ]


def test_a_share_that_is_too_small_is_reported() -> None:
    """Shares beyond the tolerance are reported, and without deliveries every share is 0."""
    got = {"atlas": 110, "belle": 200, "cello": 300, "dune": 390}
    trial = promised_and_delivered(
        scenario(), {name: part * 24 * times.MINUTE for name, part in got.items()}
    )
    assert trial is not None
    assert [sentence.split(":")[0] for sentence in trial.broken_checks] == [
        "shares, campaign-default, atlas",
        "shares, campaign-default, dune",
    ]
    nothing = promised_and_delivered(scenario(), {})
    assert nothing is not None
    assert {check.found for check in nothing.checks} == {0}


def test_who_wants_less_than_its_part_is_promised_what_it_wants() -> None:
    """A campaign is promised at most what it wants; the rest is divided by weight."""
    whole = scenario(days=10, shares={"pool": "all", "after": "P9D"})
    some = [it.model_copy(update={"count": 1}) if it.name == "dune" else it for it in whole.tasks]
    few = whole.model_copy(update={"tasks": some})
    wanted = 24 * 10 * times.MINUTE
    trial = promised_and_delivered(
        few, {"atlas": 10 * wanted, "belle": 20 * wanted, "cello": 30 * wanted}
    )
    assert trial is not None
    assert [check.promised for check in trial.checks] == [16.389, 32.778, 49.167, 1.667]


@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_whole_leads_and_nodes_share_a_pool_by_weight() -> None:
    """Campaigns share half of the nodes by weight for five hours, within 10 %."""
    # A run is 3 % of the share of atlas in five hours, hence the wide tolerance.
    few = scenario(
        days=0.25,
        nodes={"count": 6, "horizon": "PT2H"},
        shares={"pool": "all", "after": "PT1H", "within": 0.1},
    )
    fewer = [it.model_copy(update={"count": it.count * 3 // 10}) for it in few.tasks]
    report = simulate(few.model_copy(update={"tasks": tuple(fewer)}))
    assert report.shares is not None
    assert [check.who for check in report.shares.checks] == ["atlas", "belle", "cello", "dune"]
    assert report.violations == ()
    assert report.delivered > 180


@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_what_is_given_is_delivered_and_few_are_asked_in_vain() -> None:
    """Under overload every seat that was given is delivered, with few proposals in vain."""
    few = scenario(days=0.125, nodes={"count": 5, "horizon": "PT2H"}, shares=None)
    tasks = [
        it.model_copy(update={"count": it.count * 3 // 10, "slip": 20 * times.MINUTE})
        for it in few.tasks
    ]
    report = simulate(few.model_copy(update={"tasks": tuple(tasks)}))
    assert report.delivered > 80
    assert report.promised == report.delivered
    assert report.messages["proposals"] < 3 * report.delivered


@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_two_leads_of_the_same_nodes_keep_what_they_promise() -> None:
    """Two leads that share nodes move a seat to another node when the other lead was faster."""
    few = scenario(days=0.25, nodes={"count": 8, "horizon": "PT2H"}, shares=None)
    [pool] = few.pools
    # The hosts of the leads are not in the pool: there the tasks of each would come first.
    match = {"not": {"name": list(_LEADS.values())}}
    tasks = [
        it.model_copy(
            update={
                "name": f"{name} {it.name}",
                "count": it.count * 9 // 50,
                "participants": it.participants.model_copy(update={"pool": name}),
            }
        )
        for name in ("one", "two")
        for it in few.tasks
        if it.participants is not None
    ]
    pools = [
        pool.model_copy(update={"name": name, "lead": at, "match": match})
        for name, at in _LEADS.items()
    ]
    both = few.model_copy(update={"pools": tuple(pools), "tasks": tuple(tasks)})
    report = simulate(both)
    slots_by_state = {reason.state: reason.slots for reason in report.not_delivered}
    assert slots_by_state.keys() == {"cancelled"}
    # Both leads start with all tasks at one instant, and find the same time for them.
    assert slots_by_state["cancelled"] < 0.25 * report.delivered
    assert report.delivered > 180
    # A node that has no time is asked again with each retry, hence more questions than seats: 11.7
    # to 13.3 for each delivered run with the seeds 1 to 3.
    assert report.messages["proposals"] < 16 * report.delivered


@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_leads_have_the_shares_that_owners_give_them() -> None:
    """Three leads that want more than there is have their shares of four nodes within hours."""
    # A run is 5 % of the share of n3 in these hours, hence the tolerance of two runs; the scenario
    # looks at four days of twenty nodes.
    whole = named_scenario("leads")
    few = whole.model_copy(
        update={
            "days": 0.2,
            "nodes": whole.nodes.model_copy(update={"count": 4, "horizon": 2 * times.HOUR}),
            "tasks": tuple(it.model_copy(update={"count": it.count // 5}) for it in whole.tasks),
            "shares": PromiseExpectation(after=0, within=0.12),
        }
    )
    report = simulate(few)
    assert report.shares is not None
    assert [check.who for check in report.shares.checks] == ["n1", "n2", "n3"]
    assert report.violations == ()
    assert report.delivered > 0.95 * 4 * 6 * 4.8


def test_shares_of_leads_are_compared_with_what_they_had() -> None:
    """A lead with too little is reported, and a scenario without shares of leads is refused."""
    trial = shares_of_leads(named_scenario("leads"), {"n1": 300, "n2": 200, "n3": 90})
    assert trial is not None
    assert [sentence.split(":")[0] for sentence in trial.broken_checks] == ["shares, leads, n3"]
    with pytest.raises(InvalidDocument):
        scenario(shares={})


def test_worlds_without_promises_have_none() -> None:
    """A scenario without an expectation of shares gets no check."""
    assert promised_and_delivered(named_scenario("small"), {}) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shares": {"pool": "none"}}, "there is no pool none"),
        ({"pools": [{"name": "all", "match": {"site": "a"}, "policy": {"set": "pscheduler"}}]},
         "pscheduler promises no shares"),
    ],
)  # fmt: skip
def test_shares_that_nobody_promises_cannot_be_checked(
    changes: dict[str, Any], reason: str
) -> None:
    """An expectation is refused for an unknown pool or for policies that promise no shares."""
    with pytest.raises(InvalidDocument) as caught:
        scenario(**changes)
    assert reason in str(caught.value.faults)
