"""Scenes in which several campaigns want the same time of a fleet, and when each asks for it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lead.policy.view import CampaignView, NodeView, PostedRun, QueueView
from lead.pool.rehearsal.world import DemandStream, Fleet, HeldEpisode, Situation
from lead.simulation.clock import START
from node.model import times
from tests.support.policies import COMPOSITIONS

SECOND, MINUTE = times.SECOND, times.MINUTE
BY_WEIGHT = (
    "campaign-default",
    "gridserver-usage",
    "gridserver-usage-aggregated",
    "gridserver-serial-usage",
    "gridserver-urgent",
    "gridserver-sla",
    "gridserver-sla-preempt",
    "gridserver-blacklist",
    "boinc-wrr",
    "boinc-backoff",
)
"""The sets that divide contested time by weight, by level, or by promise."""
BY_DEADLINE = ("boinc-rrsim", "boinc-edf", "boinc-fetch")
"""The sets in which deadlines come before shares."""
BY_STARTS = ("fbsng-dynamic", "fbsng-partition", "fbsng-placement")
"""The sets that divide starts, by price."""

Asking = Callable[[int, int], int]
"""``asking(campaign, run)``: the number of a campaign and of its run; when it asks (µs)."""


def at_once(campaign: int, run: int) -> int:
    """Return when all ask together."""
    del campaign, run
    return 0


def half_a_second_apart(campaign: int, run: int) -> int:
    """Return when one campaign after the other asks, the first one first."""
    del run
    return campaign * SECOND // 2


def last_one_first(campaign: int, run: int) -> int:
    """Return when one campaign after the other asks, the first one last."""
    return half_a_second_apart(7 - campaign, run)


def one_by_one(campaign: int, run: int) -> int:
    """Return when campaigns ask in turn, run by run."""
    return run * SECOND // 2 + campaign * SECOND // 20


def one_late(campaign: int, run: int) -> int:
    """Return when the last campaigns ask three minutes after the first one."""
    del run
    return 3 * MINUTE if campaign else 0


@dataclass(frozen=True)
class Burst:
    """A burst: each campaign wants ``count`` runs within ``places`` that are free at its start.

    It begins ``ahead`` of the first request; each of ``nodes`` has room for as many runs.
    """

    weights: Sequence[int]
    count: int
    nodes: int
    places: int
    length: int = MINUTE
    ahead: int = 5 * MINUTE

    @property
    def names(self) -> list[str]:
        """Return the names of the campaigns."""
        return [f"c{number}" for number in range(len(self.weights))]

    def campaigns(self) -> list[CampaignView]:
        """Return the campaigns: weight, level, promise, and price all say the same."""
        whole, most = sum(self.weights), max(self.weights)
        return [
            CampaignView(
                name,
                weight=weight,
                created_at=START - number,
                target=Fraction(weight, whole),
                queue=QueueView(price=Fraction(6 * most, weight)),
            )
            for number, (name, weight) in enumerate(zip(self.names, self.weights, strict=True))
        ]

    def streams(self, asking: Asking) -> list[DemandStream]:
        """Return the runs, each known when it is asked for."""
        end = self.ahead + self.places // self.nodes * self.length
        return [
            DemandStream(
                f"{name}-{run}",
                name,
                max(self.ahead, asking(number, run)),
                times.DAY,
                self.length,
                end - self.length - max(self.ahead, asking(number, run)),
                count=1,
                asked_at=asking(number, run),
            )
            for number, name in enumerate(self.names)
            for run in range(self.count)
        ]

    def played(self, policy: str, asking: Asking) -> list[PostedRun]:
        """Return the runs that are booked in the end."""
        fleet = Fleet(
            [NodeView(f"n{number}") for number in range(self.nodes)],
            self.campaigns(),
            self.streams(asking),
            COMPOSITIONS[policy],
            horizon=times.DAY,
            step=SECOND // 2,
            rng=random.Random(1),
            situation=Situation(START),
        )
        booked: dict[str, PostedRun] = {}

        def watch(held: HeldEpisode) -> None:
            booked.update((run.run, run) for it in held.booked for run in it.runs)
            gone = [run for it in held.booked for run in it.displaced]
            for run in (*gone, *held.returned):
                booked.pop(run.run, None)

        numbers = range(len(self.weights))
        last = max(asking(number, run) for number in numbers for run in range(self.count))
        for _ in fleet.play(last + 20 * SECOND, watch):
            pass
        return list(booked.values())

    def misses(self, runs: Sequence[PostedRun]) -> dict[str, float]:
        """Return by how many runs each campaign is further from its part than it may be.

        That is one run, or 5 % of what is contested. No campaign wants less than its part here.
        """
        counts, whole = Counter(run.campaign for run in runs), sum(self.weights)
        allowed = max(1, 0.05 * len(runs))
        parts = {
            name: len(runs) * weight / whole
            for name, weight in zip(self.names, self.weights, strict=True)
        }
        off = {name: abs(counts[name] - part) - allowed for name, part in parts.items()}
        return {name: round(by, 3) for name, by in off.items() if by > 1e-9}
