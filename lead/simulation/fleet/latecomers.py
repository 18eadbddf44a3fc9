"""Who asks after others have asked for a whole day has its part of all but two hours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from lead.policy.view import BUCKET
from lead.simulation.clock import START
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.promises import EQUAL, LATECOMERS, SHARES
from lead.simulation.fleet.report import FleetCheck
from lead.simulation.fleet.trials import DeliveredTime, Tell, fleet_of, hourly
from node.model import times

_STEP = times.MINUTE
_HOURS = 8
"""So long the day is, all of which is asked for at once."""
_TOLERANCE = 0.05
"""Its part of six hours is some forty runs."""
_NEAR = 2
"""These hours are whose they were."""


def latecomers(scenario: FleetScenario, name: str, tell: Tell) -> Iterable[FleetCheck]:
    """All others ask for half of the fleet each, then the one with the least weight, too.

    Once it was known before as a campaign that wanted nothing, once it is made only then.
    """
    if name not in LATECOMERS:
        return
    scenario = scenario.model_copy(update={"horizon": _HOURS * times.HOUR})
    campaigns = scenario.shared_by()
    least = min(campaigns, key=lambda it: it.weight)
    count = scenario.nodes * times.HOUR // EQUAL // 2
    streams = [
        replace(it, asked_at=_STEP if campaign is least else 0, count=_HOURS)
        for campaign in campaigns
        for it in hourly(campaign.name, count, EQUAL)
    ]
    demand = {it.name: count * EQUAL for it in campaigns}
    promised = SHARES[name](campaigns, demand, scenario.nodes * BUCKET)
    for known in ("known before", "made only then"):
        late = least if known == "known before" else replace(least, created_at=START + _STEP)
        everybody = [late if it is least else it for it in campaigns]
        delivered = DeliveredTime(_NEAR)
        fleet = fleet_of(scenario, name, streams, everybody, _STEP)
        for _ in fleet.play((_HOURS - 1) * times.HOUR, delivered):
            tell()
        part = float(promised[least.name] / (scenario.nodes * BUCKET))
        found = delivered.total()
        yield partial(FleetCheck, trial="latecomers", policy=name, unit="%")(
            who=f"{least.name}, {known}",
            promised=round(100 * part, 3),
            least=round(100 * part * (1 - _TOLERANCE), 3),
            found=round(100 * found[least.name] / found.total(), 3),
        )
