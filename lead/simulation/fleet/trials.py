"""The trials of shares in the long run: high demand, overload, and a newcomer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, sqrt

from lead.policy.settings import configured_recipe
from lead.policy.view import BUCKET, CampaignView, NodeView, PostedRun
from lead.pool.rehearsal.ledger import by_hour
from lead.pool.rehearsal.world import (
    DemandStream,
    Fleet,
    FleetBooking,
    HeldEpisode,
    Situation,
    Watcher,
)
from lead.simulation.clock import START
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.promises import (
    BY_WEIGHT,
    EQUAL,
    keeps_time_ahead,
    promises_seats,
    pulls,
    sharing_of,
    wants_equal_runs,
)
from lead.simulation.fleet.pull_order import PullCounter
from lead.simulation.fleet.report import FleetCheck
from node.model import times

StepDone = Callable[[], None]
"""Called after each simulated hour."""

TOLERANCE = 0.02
"""Relative tolerance of shares that are measured over :data:`SAMPLE_SIZE` runs."""
SAMPLE_SIZE = 10_000
WARM_UP_HOURS = 24
"""Hours before counting starts: policies remember usage for up to a day."""
CROWDED_DEMAND = 0.5
"""The part of the fleet that each campaign wants in the trial of shares."""
OVERLOAD = 1.5
"""The part of the fleet that all campaigns together want in the trial of overload."""
_JOINS = 18
_LOOKED_AT = 24
_FIRST = 6
"""Hours after joining in which a newcomer must get its share, except in one."""


def tolerance(runs: int) -> float:
    """Return the relative tolerance of shares that are measured over ``runs`` runs.

    A count varies by its square root, so fewer runs than :data:`SAMPLE_SIZE` only support a wider
    bound.
    """
    return TOLERANCE * max(1.0, sqrt(SAMPLE_SIZE / runs))


def nodes_of(scenario: FleetScenario) -> list[NodeView]:
    """Return the nodes of a fleet."""
    return [NodeView(f"n{number:03}") for number in range(1, scenario.nodes + 1)]


def hourly(campaign: str, count: int, length: int) -> list[DemandStream]:
    """Return streams of ``count`` runs in each hour, movable within the hour."""
    slip = times.HOUR - length
    names = (f"{campaign}-{number}" for number in range(count))
    return [DemandStream(name, campaign, 0, times.HOUR, length, slip) for name in names]


def _streams_wanting(
    scenario: FleetScenario, name: str, part: float
) -> tuple[list[DemandStream], Counter[str]]:
    """Return streams in which every campaign wants ``part`` of the fleet, and their hourly demand.

    The order of the streams is drawn from the seed.
    """
    streams: list[DemandStream] = []
    demand: Counter[str] = Counter()
    equal = wants_equal_runs(configured_recipe(name))
    for it in scenario.campaigns:
        length = EQUAL if equal else it.length
        count = round(part * scenario.nodes * times.HOUR / length)
        streams += hourly(it.name, count, length)
        demand[it.name] = count * length
    random.Random(f"{scenario.seed} streams").shuffle(streams)
    return streams, demand


class DeliveredTime:
    """The seat time of each campaign in each hour, and the number of runs."""

    def __init__(self, since: int = 0) -> None:
        """Count the runs that start in hour ``since`` from the beginning, or later."""
        self._since = START + since * times.HOUR
        self.by_hour: dict[int, Counter[str]] = {}
        self.runs = 0

    def __call__(self, held: HeldEpisode) -> None:
        """Count the bookings of an episode."""
        for booked in held.booked:
            self.add(booked)
        for run in held.returned:
            self._count(run, -1)

    def add(self, booked: FleetBooking) -> None:
        """Count a run, and subtract the runs that it displaced."""
        self._count(booked.run, 1)
        for gone in booked.displaced:
            self._count(gone, -1)

    def _count(self, run: PostedRun, sign: int) -> None:
        if run.start >= self._since:
            self.runs += sign
            for hour, spent in by_hour(run.start, run.end):
                there = self.by_hour.setdefault((hour - START) // BUCKET, Counter())
                there[run.campaign] += sign * spent * len(run.nodes)

    def total(self) -> Counter[str]:
        """Return the seat time by campaign."""
        return sum(self.by_hour.values(), Counter())


def fleet_of(  # noqa: PLR0913 - the parts of a fleet
    scenario: FleetScenario,
    name: str,
    streams: Sequence[DemandStream],
    campaigns: Sequence[CampaignView],
    step: int = times.HOUR,
    refusals: float = 0,
    *,
    with_blocked: bool = False,
) -> Fleet:
    """Return a fleet with the policies of a named set."""
    rng = random.Random(f"{scenario.seed} {name}")
    nodes = nodes_of(scenario)
    policy, horizon = configured_recipe(name), scenario.horizon
    return Fleet(
        nodes,
        campaigns,
        streams,
        policy,
        horizon=horizon,
        rng=rng,
        step=step,
        refusals=refusals,
        situation=Situation(START),
        with_blocked=with_blocked,
    )


def shares(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check that each campaign gets its promised share when everyone wants half of the fleet."""
    policy = configured_recipe(name)
    sharing = sharing_of(policy)
    if sharing is None:
        return
    campaigns = scenario.shared_by()
    streams, demand = _streams_wanting(scenario, name, CROWDED_DEMAND)
    pull_counter = PullCounter()
    delivered = _play(
        scenario, name, streams, campaigns, step_done, *[pull_counter] * pulls(policy)
    )
    promised = sharing(campaigns, demand, scenario.nodes * times.HOUR)
    whole = scenario.nodes * times.HOUR if promises_seats(policy) else sum(promised.values())
    total = delivered.total()
    for campaign in promised:
        part = float(promised[campaign] / whole)
        share = total[campaign] / total.total()
        yield _share("shares", name, campaign, part, share, tolerance(scenario.runs))
    if pulls(policy):
        check = partial(FleetCheck, trial="shares", policy=name, unit="runs")
        yield check(who="runs compared", promised=1, least=1, found=pull_counter.compared)
        who = "before those further below target"
        yield check(who=who, promised=0, most=0, found=pull_counter.too_soon)


def _play(
    scenario: FleetScenario,
    name: str,
    streams: Sequence[DemandStream],
    campaigns: Sequence[CampaignView],
    step_done: StepDone,
    *watchers: Watcher,
) -> DeliveredTime:
    """Play until ``scenario.runs`` runs have been counted; ``watchers`` see each episode, too."""
    fleet = fleet_of(scenario, name, streams, campaigns)
    delivered = DeliveredTime(WARM_UP_HOURS)

    def watch(held: HeldEpisode) -> None:
        delivered(held)
        for watcher in watchers:
            watcher(held)

    for _ in fleet.play(times.LONGEST, watch):
        step_done()
        if delivered.runs >= scenario.runs:
            break
    return delivered


def _share(
    trial: str, name: str, campaign: str, part: float, found: float, within: float
) -> FleetCheck:
    policy = configured_recipe(name)
    unbounded = promises_seats(policy) or pulls(policy)
    return FleetCheck(
        trial=trial,
        policy=name,
        who=campaign,
        unit="%",
        promised=round(100 * part, 3),
        least=None if pulls(policy) else round(100 * part * (1 - within), 3),
        most=None if unbounded else round(100 * part * (1 + within), 3),
        found=round(100 * found, 3),
    )


def overload(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check who loses when all want the same, together 1.5 times the fleet; all must be in use."""
    campaigns = scenario.shared_by()
    part = OVERLOAD / len(campaigns)
    streams, demand = _streams_wanting(scenario, name, part)
    delivered = _play(scenario, name, streams, campaigns, step_done)
    whole = scenario.nodes * times.HOUR
    hours = sorted(delivered.by_hour)[:-1]
    total = sum((delivered.by_hour[hour] for hour in hours), Counter[str]())
    busy = total.total() / (whole * len(hours))
    policy = configured_recipe(name)
    if (sharing := sharing_of(policy)) is not None:
        # Divide the time in use only: unused time is checked below, and is no campaign's loss.
        in_use = whole if promises_seats(policy) else total.total() // len(hours)
        promised = sharing(campaigns, demand, in_use)
        for it in campaigns:
            part = float(promised[it.name] / in_use)
            share = total[it.name] / total.total()
            yield _share("overload", name, it.name, part, share, tolerance(scenario.runs))
    yield FleetCheck(
        trial="overload",
        policy=name,
        who="all of the fleet in use",
        unit="%",
        promised=100,
        least=100 * (1 - TOLERANCE),
        found=round(100 * busy, 3),
    )


def newcomers(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check that the campaign with the least weight gets its share, not more, in a full fleet."""
    policy = configured_recipe(name)
    if not keeps_time_ahead(policy):
        return
    campaigns = scenario.shared_by()
    least = min(campaigns, key=lambda it: it.weight)
    joins = _JOINS
    new = replace(least, created_at=START + joins * times.HOUR)
    streams, demand = _streams_wanting(scenario, name, CROWDED_DEMAND)
    streams = [
        replace(it, first=(joins + 1) * times.HOUR) if it.campaign == new.name else it
        for it in streams
    ]
    all_campaigns = [new if it is least else it for it in campaigns]
    delivered = DeliveredTime()
    until = joins + 1 + _LOOKED_AT
    for _ in fleet_of(scenario, name, streams, all_campaigns).play(until * times.HOUR, delivered):
        step_done()
    sharing = sharing_of(policy) or BY_WEIGHT
    seats = float(sharing(all_campaigns, demand, scenario.nodes * BUCKET)[new.name])
    seats /= BUCKET
    seats_by_hour = [delivered.by_hour[hour][new.name] / BUCKET for hour in range(joins + 1, until)]
    first = sum(seats_by_hour[:_FIRST]) / _FIRST
    check = partial(
        FleetCheck, trial="newcomers", policy=name, unit="seats", promised=round(seats, 3)
    )
    yield check(who=f"{new.name}, fullest hour", most=ceil(seats) + 1, found=max(seats_by_hour))
    # Sets that promise whole seats grant them in every hour. In the others, the campaign that is
    # served last in an hour may get nothing of it, as those before it catch up on their deficits.
    # It is then an hour behind them, more than any other, so it comes first and loses no second
    # hour.
    enough = seats if promises_seats(policy) else seats * (_FIRST - 1) / _FIRST
    who = f"{new.name}, first {_FIRST} hours"
    yield check(who=who, least=round(enough, 3), found=round(first, 3))
