"""The trials of waiting: runs on many nodes at once, reserved slots, and urgent runs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import floor

from lead.policy.axes.preempt import UrgentByScore
from lead.policy.preempt.score import Urgency
from lead.policy.settings import configured_recipe
from lead.policy.view import URGENT, CampaignView, PostedRun
from lead.pool.rehearsal.world import DemandStream, HeldEpisode
from lead.simulation.clock import START
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.promises import protects_slots
from lead.simulation.fleet.report import FleetCheck
from lead.simulation.fleet.trials import StepDone, fleet_of, hourly
from node.model import times

_STEP = times.MINUTE
_SINGLE = 10 * times.MINUTE
_SLIP = 20 * times.MINUTE
_WIDE = 5 * times.MINUTE
_EVERY = 3 * times.HOUR
_HOURS = 24
_REFUSALS = 0.1
_BURST = 6


def _endless_streams(
    scenario: FleetScenario, rng: random.Random, part: float
) -> Iterator[DemandStream]:
    """Yield single-node runs for ``part`` of the fleet, at any time, known a minute ahead."""
    count = round(part * scenario.nodes * times.HOUR / _SINGLE)
    names = [it.name for it in scenario.campaigns]
    for number in range(count):
        campaign = names[number % len(names)]
        first = rng.randrange(times.HOUR // times.MINUTE) * times.MINUTE
        name = f"{campaign}-{number}"
        yield DemandStream(
            name, campaign, first, times.HOUR, _SINGLE, _SLIP, known_for=times.MINUTE
        )


def starvation(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check the wait of an occasional run on all nodes at once among endless single ones."""
    rng = random.Random(f"{scenario.seed} starvation")
    wide = DemandStream(
        "wide",
        scenario.campaigns[-1].name,
        times.HOUR,
        _EVERY,
        _WIDE,
        2 * times.HOUR,
        k=scenario.nodes,
        together=True,
        known_for=times.MINUTE,
    )
    fleet = fleet_of(
        scenario, name, [*_endless_streams(scenario, rng, 1.3), wide], scenario.shared_by(), _STEP
    )
    waits: list[int] = []

    def watch(held: HeldEpisode) -> None:
        waits.extend(
            it.run.start - it.candidate.next_run_at for it in held.booked if it.candidate.k > 1
        )

    for _ in fleet.play(_HOURS * times.HOUR, watch):
        step_done()
    missed = sum(it.candidate.k > 1 for it in fleet.missed)
    due = (_HOURS * times.HOUR - wide.first - 2 * times.HOUR) // _EVERY
    check = partial(FleetCheck, trial="starvation", policy=name)
    bound = (_SLIP + _SINGLE) / times.MINUTE
    longest = max(waits, default=times.DAY) / times.MINUTE
    who = f"{scenario.nodes} nodes at once, longest wait"
    yield check(who=who, unit="min", promised=0, most=bound, found=round(longest, 3))
    yield check(
        who="runs on all nodes that were delivered",
        unit="runs",
        promised=due,
        least=due,
        found=len(waits) if not missed else len(waits) - missed,
    )


def backfill(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check that nothing is filled into a reserved slot when nodes refuse and runs are blocked."""
    if not protects_slots(configured_recipe(name)):
        return
    rng = random.Random(f"{scenario.seed} backfill")
    streams = list(_endless_streams(scenario, rng, 1.3))
    streams = [
        replace(it, k=scenario.nodes // 4, together=True) if number % 20 == 0 else it
        for number, it in enumerate(streams)
    ]
    fleet = fleet_of(scenario, name, streams, scenario.shared_by(), _STEP, refusals=_REFUSALS)
    reserved = delayed = 0

    def watch(held: HeldEpisode) -> None:
        nonlocal reserved, delayed
        reserved += len(held.outcome.reservations)
        for slot in held.outcome.reservations:
            blocked = next(iter(slot.tasks))
            for booked in held.booked:
                delayed += (
                    booked.candidate.task != blocked
                    and booked.after_slot(slot.name)
                    and not set(slot.nodes).isdisjoint(booked.run.nodes)
                    and booked.run.start < slot.end
                    and slot.start < booked.run.end
                )

    for _ in fleet.play(_HOURS * times.HOUR, watch):
        step_done()
    check = partial(FleetCheck, trial="backfill", policy=name, unit="runs")
    yield check(who="slots that were reserved", promised=1, least=1, found=reserved)
    yield check(who="runs filled into a slot", promised=0, most=0, found=delayed)


def urgent(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check that bursts of urgent runs on a full fleet displace others only within their budget."""
    if not isinstance(configured_recipe(name).preempt, UrgentByScore):
        return
    crowd = [
        stream
        for it in scenario.campaigns
        for stream in hourly(it.name, scenario.nodes * 6 // 2, _SINGLE)
    ]
    burst = [
        DemandStream(
            f"alarm-{number}",
            "alarm",
            (2 * times.HOUR) + 17 * times.MINUTE,
            times.HOUR,
            _SINGLE,
            5 * times.MINUTE,
            known_for=times.MINUTE,
        )
        for number in range(_BURST)
    ]
    campaigns = [*scenario.shared_by(), CampaignView("alarm", level=URGENT, created_at=START)]
    fleet = fleet_of(scenario, name, [*crowd, *burst], campaigns, _STEP)
    displacing: list[PostedRun] = []
    displaced = 0

    def watch(held: HeldEpisode) -> None:
        nonlocal displaced
        for it in held.booked:
            if it.displaced:
                displacing.append(it.run)
                displaced += len(it.displaced)

    for _ in fleet.play(_HOURS * times.HOUR, watch):
        step_done()
    check = partial(FleetCheck, trial="urgent", policy=name)
    budget = floor(_urgency(name).percent * scenario.nodes / 100)
    who = "seats taken from others at once"
    in_use = _most_at_once(displacing)
    yield check(who=who, unit="seats", promised=budget, most=budget, found=in_use)
    # A budget of less than one node allows nothing to be displaced.
    some = min(budget, 1)
    yield check(who="runs displaced", unit="runs", promised=some, least=some, found=displaced)


def _urgency(name: str) -> Urgency:
    preempt = configured_recipe(name).preempt
    return preempt.urgency if isinstance(preempt, UrgentByScore) else Urgency(Fraction(0))


def _most_at_once(runs: Iterable[PostedRun]) -> int:
    changes = sorted(
        change
        for run in runs
        for change in ((run.start, 1, len(run.nodes)), (run.end, 0, -len(run.nodes)))
    )
    now = most = 0
    for _, _, change in changes:
        now += change
        most = max(most, now)
    return most
