"""The cost of an episode over 10,000 due tasks, 300 nodes, and 200 campaigns.

The driver answers at once, so this is the processor time of the policies alone: per set, on one
core, and its growth with ten times as many tasks.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator
from fractions import Fraction

from lead.policy.episode import Episode
from lead.policy.placement_requests import EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.view import (
    CampaignView,
    Candidate,
    Charge,
    LimitView,
    NodeView,
    PoolView,
    PostedRun,
    QueueView,
    RememberedState,
    View,
)
from lead.pool.rehearsal.seats import starts_by_node
from node.model import times
from node.model.classes import SchedulingClass
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet
from tests.support.policies import COMPOSITIONS

TASKS = 10_000
NODES = 300
CAMPAIGNS = 200
PARENTS = 20
RUNS = 5_000
WORKERS = 50
REPEATS = 3
NOW = 20_000 * times.DAY + 17 * times.MINUTE
HORIZON = times.DAY
NO_TIME_EVERY = 10
"""One request in this many finds no time."""


def world(tasks: int, rng: random.Random) -> View:
    """Return a busy pool as a lead would see it."""
    nodes = {
        f"n{number:03}": NodeView(
            f"n{number:03}",
            {"site": f"s{number % 120}", "country": f"c{number % 30}"},
            lanes=8,
            up=number % 50 != 0,
            resources={"mbps": 1000 * rng.choice([1, 10])},
            load=rng.random(),
            used_at=NOW - rng.randrange(times.HOUR),
        )
        for number in range(NODES)
    }
    names = tuple(nodes)
    matches = [names, *(tuple(sorted(rng.sample(names, min(40, NODES)))) for _ in range(20))]
    return View(
        now=NOW,
        horizon=HORIZON,
        pool=PoolView("everywhere", names),
        nodes=nodes,
        campaigns={campaign.name: campaign for campaign in _campaigns(rng)},
        candidates=[_candidate(number, matches, rng) for number in range(tasks)],
        runs=[_run(number, names, rng) for number in range(RUNS)],
        ledger=list(_ledger(rng)),
        state=RememberedState(),
        workers=WORKERS,
    )


def _campaigns(rng: random.Random) -> Iterator[CampaignView]:
    for number in range(PARENTS):
        target = Fraction(1, 2 * PARENTS)
        yield CampaignView(f"p{number}", weight=1 + number % 5, target=target, created_at=number)
    for number in range(PARENTS, CAMPAIGNS):
        yield CampaignView(
            f"c{number}",
            parent=f"p{number % PARENTS}",
            weight=Fraction(rng.randrange(1, 40), 10),
            level=rng.randrange(1, 11),
            created_at=number,
            seats_max=200 if number % 4 == 0 else None,
            preemptor=number % 3 == 0,
            preemptee=number % 2 == 0,
            limits={"runs": LimitView(50, 100), "seat_time": LimitView(None, 400 * times.HOUR)},
            quotas={"mbps": 40_000} if number % 5 == 0 else {},
            queue=QueueView(price=rng.randrange(1, 12), passes=5),
        )


def _candidate(number: int, matches: list[tuple[str, ...]], rng: random.Random) -> Candidate:
    due = NOW + rng.randrange(HORIZON - times.HOUR)
    k = rng.choice([1, 1, 1, 2, 2, 20])
    return Candidate(
        task=f"t{number}",
        campaign=f"c{rng.randrange(PARENTS, CAMPAIGNS)}",
        next_run_at=due,
        duration=rng.choice([60, 600, 1200, 1800]) * times.SECOND,
        nodes=rng.choice(matches),
        slip=rng.choice([0, 60, 900]) * times.SECOND,
        added_at=number,
        scheduling_class=rng.choice([SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL]),
        priority=rng.randrange(10),
        k=k,
        k_min=max(1, k // 2),
        spare=2,
        together=k == 20 and number % 2 == 0,
        spread={"site": 1} if k == 20 else {},
        needs={"mbps": 500} if number % 10 == 0 else {},
        target=f"target{number % 500}",
        waits_since=NOW - rng.randrange(times.HOUR),
    )


def _run(number: int, names: tuple[str, ...], rng: random.Random) -> PostedRun:
    start = NOW + rng.randrange(HORIZON) - times.HOUR
    return PostedRun(
        f"r{number}",
        f"old{number}",
        f"c{rng.randrange(PARENTS, CAMPAIGNS)}",
        rng.sample(names, rng.choice([1, 2])),
        start,
        start + rng.choice([10, 60, 600]) * times.SECOND,
        priority=rng.randrange(10),
        running=start < NOW,
    )


def _ledger(rng: random.Random) -> Iterator[Charge]:
    first = NOW // times.HOUR - 24
    for hour in range(first, first + 48):
        for number in range(PARENTS, CAMPAIGNS):
            start = hour * times.HOUR
            amount = rng.randrange(times.HOUR // 2)
            yield Charge(f"c{number}", start, start + times.HOUR, amount)


def drive(view: View, policy: PolicyComposition) -> tuple[EpisodeOutcome, float]:
    """Play an episode in which every request is placed, except one in :data:`NO_TIME_EVERY`.

    Returns its outcome, and the seconds that its driver took to search for seats.
    """
    episode = Episode(view, policy, random.Random(1))
    number, searching = 0, 0.0
    while (ask := episode.next_ask()) is not None:
        number += 1
        window = ask.candidate.next_run_at, ask.candidate.start_by + ask.candidate.duration
        began = time.process_time()
        starts = starts_by_node(ask, {name: [window] for name in ask.nodes})
        searching += time.process_time() - began
        if number % NO_TIME_EVERY == 0 or not starts:
            episode.record_refusal(ask, ask.nodes[:1])
            continue
        start = min(starts.values())
        run = PostedRun(
            f"new{number}",
            ask.candidate.task,
            ask.candidate.campaign,
            tuple(starts),
            start,
            start + ask.candidate.duration,
            ask.candidate.scheduling_class,
            ask.candidate.priority,
        )
        episode.record_placement(ask, run)
    return episode.outcome(), searching


def median_ms(view: View, policy: PolicyComposition) -> float:
    """Return the median processor time of an episode in milliseconds."""
    times_ms = []
    for _ in range(REPEATS):
        gc.collect()
        started_at = time.process_time()
        outcome, searching = drive(view, policy)
        times_ms.append((time.process_time() - started_at - searching) * 1000)
        assert len(outcome.placed) >= WORKERS * (NO_TIME_EVERY - 1) // NO_TIME_EVERY
    return statistics.median(times_ms)


async def episodes(fleet: Fleet) -> list[Figure]:
    """Measure ``episode_ms_<set>`` and ``episode_10x_<set>`` for each set."""
    del fleet
    view, larger = (world(tasks, random.Random(7)) for tasks in (TASKS, 10 * TASKS))
    figures = []
    for name, policy in COMPOSITIONS.items():
        short = name.replace("-", "_")
        base, more = median_ms(view, policy), median_ms(larger, policy)
        how = (
            f"processor time of an episode over {TASKS:,} due tasks, {NODES} nodes, {CAMPAIGNS} "
            f"campaigns, {RUNS:,} booked runs; {WORKERS} runs requested; median of {REPEATS}"
        )
        figures.append(Figure(f"episode_ms_{short}", base, "ms", how))
        figures.append(
            Figure(
                f"episode_10x_{short}",
                more / base,
                "",
                f"with {10 * TASKS:,} tasks, relative to that",
            )
        )
    return figures
