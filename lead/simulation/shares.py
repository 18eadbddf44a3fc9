"""Whether campaigns were given of a pool what its policies promise them. Pure.

Here whole leads and nodes have played: demand that comes little by little, proposals, slips, seats
that are tried again. What a set promises is what :mod:`lead.simulation.fleet.promises` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from lead.planning.pool_view import campaign_of
from lead.policy.view import BUCKET, CampaignView
from lead.simulation.fleet.promises import SHARES
from lead.simulation.fleet.report import FleetCheck, FleetTrial
from lead.simulation.scenario import PromiseExpectation, Scenario
from node.model.wire.campaigns import DEFAULT
from node.sharing.campaigns import settings_of


def promised_and_delivered(scenario: Scenario, measured: Mapping[str, int]) -> FleetTrial | None:
    """What each campaign was promised and what it got; None if the scenario looks at no shares.

    ``measured`` has by campaign the seat time (µs) of the runs that were delivered. The promise is
    made of the time that was delivered, divided as far as each wanted some.
    """
    looked_at = scenario.shares
    if looked_at is None:
        return None
    policy = scenario.pool(looked_at.pool).policy.set
    demand = _demand(scenario, looked_at)
    campaigns = [it for it in _campaigns(scenario) if it.name in demand]
    total = sum(measured.get(name, 0) for name in demand)
    promised = SHARES[policy](campaigns, demand, total)
    share = {name: promised[name] / max(1, total) for name in demand}
    checks = [
        _check(policy, name, share[name], Fraction(measured.get(name, 0), max(1, total)), looked_at)
        for name in sorted(demand)
    ]
    told = (
        f"Each campaign gets of pool {looked_at.pool} what it was promised, within "
        f"{looked_at.within:.0%} of it, whatever else the leads and nodes have to do."
    )
    return FleetTrial(name="shares", promise=told, checks=tuple(checks))


def _campaigns(scenario: Scenario) -> list[CampaignView]:
    return [
        campaign_of(vars(settings_of(document)), number)
        for number, document in enumerate(scenario.campaigns)
    ]


def _demand(scenario: Scenario, looked_at: PromiseExpectation) -> Counter[str]:
    """By campaign, the seat time (µs) that is wanted of the pool in the time that counts."""
    hours = (scenario.duration - looked_at.after) // BUCKET
    found: Counter[str] = Counter()
    for group in scenario.tasks:
        asked = group.participants
        if asked is not None and asked.pool == looked_at.pool and group.every is not None:
            runs = group.count * hours * BUCKET // group.every
            found[group.campaign or DEFAULT] += runs * group.length * asked.k
    return found


def _check(
    policy: str, name: str, share: Fraction, found: Fraction, looked_at: PromiseExpectation
) -> FleetCheck:
    part = float(100 * share)
    return FleetCheck(
        trial="shares",
        policy=policy,
        who=name,
        unit="%",
        promised=round(part, 3),
        least=round(part * (1 - looked_at.within), 3),
        most=round(part * (1 + looked_at.within), 3),
        found=round(float(100 * found), 3),
    )
