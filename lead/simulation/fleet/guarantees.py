"""The trials of guarantees over many episodes: promised seats, and the gaps of moving priorities.

Terms that found no time take part in the episodes between their tries, as those of a lead do.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import partial

from lead.policy.settings import configured_recipe
from lead.policy.view import CampaignView, PostedRun, QueueView
from lead.pool.rehearsal.world import DemandStream, HeldEpisode
from lead.simulation.clock import START
from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.promises import promises_seats
from lead.simulation.fleet.report import FleetCheck
from lead.simulation.fleet.trials import StepDone, fleet_of
from node.model import times

_HOURS = 12
_PROMISED = 2
_SHORT = 5 * times.MINUTE
_LENGTHS = tuple(minutes * times.MINUTE for minutes in (10, 15, 20, 30))
_CROWD = 1.5
"""The part of the fleet that the others want together."""
_PASSES = 2
_WIDE_EVERY = 2 * times.HOUR
_FOUND_TIME = 0.1
"""The probability that no node refuses a wide run, so that it waits for some ten tries."""
_STEP = times.MINUTE


def promised_seats(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check that a group holds the seats it is promised at each instant at which it wants them.

    It wants two seats without a break, in runs that may not slip, and is promised two. The other
    group wants half as much again as the fleet has, in runs of five minutes at any time.
    """
    if not promises_seats(configured_recipe(name)):
        return
    rng = random.Random(f"{scenario.seed} seats")
    campaigns = [
        CampaignView("promised", target=_PROMISED, created_at=START - 1),
        CampaignView("others", target=scenario.nodes - _PROMISED, created_at=START - 2),
    ]
    streams = [
        DemandStream(f"promised-{number}", "promised", times.HOUR, length, length, slip=0)
        for number, length in enumerate(rng.choices(_LENGTHS, k=_PROMISED))
    ]
    count = round(_CROWD * scenario.nodes * times.HOUR / _SHORT)
    slip = times.HOUR - _SHORT
    streams += [
        DemandStream(f"others-{number}", "others", 0, times.HOUR, _SHORT, slip)
        for number in range(count)
    ]
    rng.shuffle(streams)
    fleet = fleet_of(scenario, name, streams, campaigns, 10 * times.MINUTE, with_blocked=True)
    runs: dict[str, PostedRun] = {}

    def watch(held: HeldEpisode) -> None:
        for booked in held.booked:
            for gone in booked.displaced:
                runs.pop(gone.run, None)
            runs[booked.run.run] = booked.run

    for _ in fleet.play(_HOURS * times.HOUR, watch):
        step_done()
    check = partial(FleetCheck, trial="seats", policy=name)
    own = [run for run in runs.values() if run.campaign == "promised"]
    span = START + 2 * times.HOUR, START + _HOURS * times.HOUR
    least = min(_held_at_each(own, span))
    missed = sum(it.candidate.campaign == "promised" for it in fleet.missed)
    who = "promised seats held at each instant"
    yield check(who=who, unit="seats", promised=_PROMISED, least=_PROMISED, found=least)
    who = "runs within the promise that were missed"
    yield check(who=who, unit="runs", promised=0, most=0, found=missed)


def _held_at_each(runs: Iterable[PostedRun], span: tuple[int, int]) -> Iterator[int]:
    """Yield how many nodes runs hold at the beginning of a span and after each change in it."""
    listed = list(runs)
    instants = {span[0], *(it.start for it in listed), *(it.end for it in listed)}
    for instant in instants:
        if span[0] <= instant < span[1]:
            yield sum(len(it.nodes) for it in listed if it.start <= instant < it.end)


def gaps(scenario: FleetScenario, name: str, step_done: StepDone) -> Iterable[FleetCheck]:
    """Check how often a wide task is passed, and whether a light queue waits while it is stuck.

    Runs on all nodes at once and single ones are of one campaign, whose gap is two passes. Those of
    the other campaign always have a lower priority, by more than the gap of the first. Nodes refuse
    now and then, which a run on all of them feels most.
    """
    if not configured_recipe(name).holds_others:
        return
    rng = random.Random(f"{scenario.seed} gaps")
    heavy = QueueView(floor=5, ceiling=9, gap=1, passes=_PASSES)
    campaigns = [
        CampaignView("heavy", queue=heavy, created_at=START - 2),
        CampaignView("light", queue=QueueView(floor=0, ceiling=1), created_at=START - 1),
    ]
    wide = DemandStream(
        "wide",
        "heavy",
        times.HOUR,
        _WIDE_EVERY,
        _SHORT,
        slip=_WIDE_EVERY - times.MINUTE,
        k=scenario.nodes,
        together=True,
        known_for=times.MINUTE,
    )
    # The wide task is the oldest, so that whatever starts before it passes it.
    streams = [wide, *_singles(rng, "heavy", scenario), *_singles(rng, "light", scenario)]
    refusals = 1 - _FOUND_TIME ** (1 / scenario.nodes)
    fleet = fleet_of(scenario, name, streams, campaigns, _STEP, refusals, with_blocked=True)
    watcher = _PassCounter()
    for _ in fleet.play(_HOURS * times.HOUR, watcher):
        step_done()
    check = partial(FleetCheck, trial="gaps", policy=name)
    due = (_HOURS * times.HOUR - wide.first - _WIDE_EVERY) // _WIDE_EVERY + 1
    yield check(who="most passes of a run on all nodes", unit="passes", promised=_PASSES,
                least=1, most=_PASSES, found=watcher.most)  # fmt: skip
    yield check(who="starts of the light queue while the heavy one was stuck", unit="starts",
                promised=0, most=0, found=watcher.light_starts)  # fmt: skip
    yield check(who="runs on all nodes that were delivered", unit="runs", promised=due, least=due,
                found=watcher.delivered)  # fmt: skip


def _singles(rng: random.Random, campaign: str, scenario: FleetScenario) -> Iterator[DemandStream]:
    """Yield runs of one node that together want half of the fleet, each known a minute ahead."""
    count = round(0.5 * scenario.nodes * times.HOUR / _LENGTHS[0])
    for number in range(count):
        yield DemandStream(
            f"{campaign}-{number}",
            campaign,
            rng.randrange(times.HOUR // times.MINUTE) * times.MINUTE,
            times.HOUR,
            _LENGTHS[0],
            slip=40 * times.MINUTE,
            known_for=times.MINUTE,
        )


class _PassCounter:
    """Counts, from what is booked alone, how often a wide task was passed while it waited."""

    def __init__(self) -> None:
        self.passes: dict[str, int] = {}
        self.most = self.light_starts = self.delivered = 0

    def __call__(self, held: HeldEpisode) -> None:
        """Count the bookings of an episode in their order."""
        waiting = [it.task for it in held.view.candidates if it.k > 1]
        stuck = [it for it in waiting if self.passes.get(it, 0) >= _PASSES]
        for booked in held.booked:
            if booked.candidate.k > 1:
                self.delivered += 1
                waiting.remove(booked.candidate.task)
                stuck = [it for it in stuck if it != booked.candidate.task]
            elif booked.candidate.campaign == "heavy":
                for task in waiting:
                    self.passes[task] = self.passes.get(task, 0) + 1
                    self.most = max(self.most, self.passes[task])
            elif stuck:
                self.light_starts += 1
