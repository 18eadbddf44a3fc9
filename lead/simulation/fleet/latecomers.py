"""The trial of a campaign that asks for time when others have already asked for a whole day."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from lead.policy.settings import configured_recipe
from lead.policy.view import BUCKET
from lead.simulation.clock import START
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.promises import EQUAL, keeps_time_ahead, sharing_of
from lead.simulation.fleet.report import FleetCheck
from lead.simulation.fleet.trials import DeliveredTime, StepDone, fleet_of, hourly
from node.model import times

_STEP = times.MINUTE
_HOURS = 8
"""Length of the day, all of which is requested at once."""
_TOLERANCE = 0.05
"""Tolerance of the share: its part of six hours is only some forty runs."""
_NEAR = 2
"""The first hours, which are not counted: they stay with the campaigns that have booked them."""


def latecomers(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check the share of a campaign that asks last, from the third hour on.

    All other campaigns ask for half of the fleet each; then the one with the least weight asks,
    too. The trial is played twice: with a latecomer that existed before but wanted nothing, and
    with one that is created only then.
    """
    policy = configured_recipe(name)
    sharing = sharing_of(policy)
    if sharing is None or not keeps_time_ahead(policy):
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
    promised = sharing(campaigns, demand, scenario.nodes * BUCKET)
    for known in ("known before", "made only then"):
        late = least if known == "known before" else replace(least, created_at=START + _STEP)
        all_campaigns = [late if it is least else it for it in campaigns]
        delivered = DeliveredTime(_NEAR)
        fleet = fleet_of(scenario, name, streams, all_campaigns, _STEP)
        for _ in fleet.play((_HOURS - 1) * times.HOUR, delivered):
            step_done()
        part = float(promised[least.name] / (scenario.nodes * BUCKET))
        delivered_time = delivered.total()
        yield partial(FleetCheck, trial="latecomers", policy=name, unit="%")(
            who=f"{least.name}, {known}",
            promised=round(100 * part, 3),
            least=round(100 * part * (1 - _TOLERANCE), 3),
            found=round(100 * delivered_time[least.name] / delivered_time.total(), 3),
        )
