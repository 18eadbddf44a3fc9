"""The trial of deadlines: runs that miss their latest start, forecast and prevented."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from lead.policy.axes.feasible import FeasibilityRules
from lead.policy.axes.order import ByRecentWorkOrder, LateFirst, forecast_in_turns
from lead.policy.episode_figures import Board
from lead.policy.sets import PolicyComposition
from lead.policy.settings import configured_recipe
from lead.policy.share import recent_work
from lead.pool.rehearsal.world import DemandStream, Fleet, HeldEpisode, Situation
from lead.simulation.clock import START
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.report import FleetCheck
from lead.simulation.fleet.trials import StepDone, nodes_of
from node.model import times

_HOURS = 12
_LENGTH = 10 * times.MINUTE
_WANTED = 0.9
"""The part of the fleet that is wanted: all of it could be had, in the right order."""
_TIGHT = 5 * times.MINUTE
_FORECAST_SHARE = 95.0
_FORECAST_SHARE_ELSEWHERE = 75.0
"""The least percentage of missed runs that must have been forecast.

The forecast lets campaigns take turns and asks every node. Where another rule orders them, or nodes
are left alone for a while, a run may lose its time to one that the forecast had put behind it.
"""


def without_deadlines(policy: PolicyComposition) -> PolicyComposition | None:
    """Return the same policies without regard to deadlines; None if they have none."""
    if isinstance(policy.order, LateFirst):
        return replace(policy, order=policy.order.others)
    if isinstance(policy.order, ByRecentWorkOrder) and policy.order.deadlines:
        return replace(policy, order=replace(policy.order, deadlines=False))
    return None


def deadlines(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check that missed runs were forecast, and that regard to deadlines prevents some.

    Half of the runs may slip for five minutes only, the others for the rest of two hours.
    """
    policy = configured_recipe(name)
    regardless = without_deadlines(policy)
    if regardless is None:
        return
    missed, forecast = _count_missed(scenario, name, policy, step_done)
    before, forecast_before = _count_missed(scenario, name, regardless, step_done)
    check = partial(FleetCheck, trial="deadlines", policy=name)
    yield check(who="runs missed without regard to deadlines", unit="runs", promised=1, least=1,
                found=before)  # fmt: skip
    # Late tasks that pass none of other campaigns may find all places of their own taken by such,
    # and put others off in vain: there are fewer misses in most seeds, but not in each.
    most = before + before // 3 if isinstance(policy.order, LateFirst) else before - 1
    yield check(who="runs missed", unit="runs", promised=0, most=most, found=missed)
    by_turns = isinstance(policy.order, ByRecentWorkOrder)
    asks_all = by_turns and policy.feasible == FeasibilityRules()
    bound = _FORECAST_SHARE if asks_all else _FORECAST_SHARE_ELSEWHERE
    for who, lost, known in (
        ("missed runs that were forecast", missed, forecast),
        ("those missed without regard that were forecast", before, forecast_before),
    ):
        part = 100 * known / lost if lost else 100
        yield check(who=who, unit="%", promised=100, least=bound, found=round(part, 3))


def _count_missed(
    scenario: FleetScenario, name: str, policy: PolicyComposition, step_done: StepDone
) -> tuple[int, int]:
    """Return how many runs were missed, and how many of them a forecast had said would be."""
    fleet = Fleet(
        nodes_of(scenario),
        scenario.shared_by(),
        list(_streams(scenario)),
        policy,
        horizon=scenario.horizon,
        rng=random.Random(f"{scenario.seed} {name}"),
        step=_TIGHT,
        situation=Situation(START),
        with_blocked=True,
    )
    late: set[str] = set()

    def watch(held: HeldEpisode) -> None:
        expected = forecast_in_turns(Board(held.view), held.view.candidates, recent_work.HALF_LIFE)
        late.update(it.task for it in expected if it.is_late)

    for _ in fleet.play(_HOURS * times.HOUR, watch):
        step_done()
    missed = [
        it.candidate.task for it in fleet.missed if it.candidate.next_run_at >= START + times.HOUR
    ]
    return len(missed), len(late.intersection(missed))


def _streams(scenario: FleetScenario) -> Iterable[DemandStream]:
    rng = random.Random(f"{scenario.seed} deadlines")
    names = [it.name for it in scenario.campaigns]
    for number in range(round(_WANTED * scenario.nodes * times.HOUR / _LENGTH)):
        campaign = names[number % len(names)]
        first = rng.randrange(times.HOUR // times.MINUTE) * times.MINUTE
        slip = rng.choice((_TIGHT, 2 * times.HOUR - _LENGTH))
        yield DemandStream(f"{campaign}-{number}", campaign, first, times.HOUR, _LENGTH, slip)
