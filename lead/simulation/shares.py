"""The check that campaigns got their promised share of a pool, or leads theirs of nodes. Pure.

The figures come from a simulation of whole leads and nodes: demand that arrives little by little,
proposals, slips, seats that are retried. :mod:`lead.simulation.fleet.promises` defines what a set
promises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from lead.assembly.with_node import composition_of
from lead.planning.pool_view import campaign_of
from lead.policy.view import BUCKET, CampaignView
from lead.simulation.fleet.promises import sharing_of
from lead.simulation.fleet.report import FleetCheck, FleetTrial
from lead.simulation.scenario import PromiseExpectation, Scenario
from node.model.policysets import PolicyRecipe
from node.model.wire.campaigns import DEFAULT
from node.sharing.campaigns import settings_of


def promised_and_delivered(scenario: Scenario, measured: Mapping[str, int]) -> FleetTrial | None:
    """Compare what each campaign was promised and got; None if the scenario does not check shares.

    ``measured`` is the seat time (µs) of the delivered runs by campaign. The promise divides the
    delivered time, up to what each campaign wanted.
    """
    expectation = scenario.shares
    if expectation is None or expectation.pool is None:
        return None
    chosen = scenario.pool(expectation.pool).policy
    sharing = sharing_of(composition_of(chosen))
    if sharing is None:
        return None
    policy = PolicyRecipe(chosen.set, chosen.options).words
    demand = _demand(scenario, expectation)
    campaigns = [it for it in _campaigns(scenario) if it.name in demand]
    total = sum(measured.get(name, 0) for name in demand)
    promised = sharing(campaigns, demand, total)
    share = {name: promised[name] / max(1, total) for name in demand}
    checks = [
        _check(
            policy, name, share[name], Fraction(measured.get(name, 0), max(1, total)), expectation
        )
        for name in sorted(demand)
    ]
    promise = (
        f"Each campaign gets of pool {expectation.pool} what it was promised, within "
        f"{expectation.within:.0%} of it, whatever else the leads and nodes have to do."
    )
    return FleetTrial(name="shares", promise=promise, checks=tuple(checks))


def shares_of_leads(scenario: Scenario, measured: Mapping[str, int]) -> FleetTrial | None:
    """Compare what leads were given and had; None if the scenario does not check that.

    ``measured`` is the seat time (µs) of the delivered runs by lead. Each lead is expected to want
    its share at least.
    """
    expectation = scenario.shares
    if expectation is None or expectation.pool is not None:
        return None
    given = scenario.lead_shares
    total, had = sum(given.values()), sum(measured.get(lead, 0) for lead in given)
    checks = [
        _check(
            "leads",
            lead,
            Fraction(given[lead], max(1, total)),
            Fraction(measured.get(lead, 0), max(1, had)),
            expectation,
        )
        for lead in sorted(given)
    ]
    promise = (
        "Each lead gets of the nodes what their owners gave it, within "
        f"{expectation.within:.0%} of it, whichever of them asks first."
    )
    return FleetTrial(name="shares", promise=promise, checks=tuple(checks))


def _campaigns(scenario: Scenario) -> list[CampaignView]:
    return [
        campaign_of(vars(settings_of(document)), number)
        for number, document in enumerate(scenario.campaigns)
    ]


def _demand(scenario: Scenario, expectation: PromiseExpectation) -> Counter[str]:
    """Return by campaign the seat time (µs) wanted of the pool in the time that counts."""
    hours = (scenario.duration - expectation.after) // BUCKET
    demand: Counter[str] = Counter()
    for group in scenario.tasks:
        request = group.participants
        if request is not None and request.pool == expectation.pool and group.every is not None:
            runs = group.count * hours * BUCKET // group.every
            demand[group.campaign or DEFAULT] += runs * group.length * request.k
    return demand


def _check(
    policy: str, name: str, share: Fraction, delivered: Fraction, expectation: PromiseExpectation
) -> FleetCheck:
    part = float(100 * share)
    return FleetCheck(
        trial="shares",
        policy=policy,
        who=name,
        unit="%",
        promised=round(part, 3),
        least=round(part * (1 - expectation.within), 3),
        most=round(part * (1 + expectation.within), 3),
        found=round(float(100 * delivered), 3),
    )
