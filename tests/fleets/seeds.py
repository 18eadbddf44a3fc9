"""Plays the trials of fleets seed by seed, and finds the seed that is closest to its bound."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from lead.simulation.fleet.document import FleetScenario
from lead.simulation.fleet.play import TRIALS
from lead.simulation.fleet.report import FleetCheck
from lead.simulation.scenario import FLEET, named_scenario, read, validated
from lead.simulation.world import simulate
from tests.soak.seeds import end_with

PROMISES: dict[str, Sequence[tuple[str, Sequence[str]]]] = {
    "shares": (
        (
            "shares",
            (
                "campaign-default",
                "gridserver-usage",
                "gridserver-sla",
                "maui-fairshare",
                "fbsng-dynamic",
                "boinc-wrr",
            ),
        ),
        ("overload", ("campaign-default", "fbsng-dynamic", "boinc-wrr")),
    ),
    "guarantees": (
        ("seats", ("gridserver-sla", "gridserver-sla-preempt")),
        ("gaps", ("fbsng-dynamic",)),
        ("backfill", ("maui-fifo", "maui-reservations")),
        ("starvation", ("maui-fifo", "campaign-default")),
    ),
    "deadlines": (("deadlines", ("boinc-edf", "boinc-rrsim", "campaign-default")),),
}
"""By promise: the trials of fleets that show it, and the sets of policies that make it."""

WHOLE = {"leads": "leads"}
"""By promise: the scenario of whole leads and nodes that shows it; each seed takes minutes."""


@dataclass(frozen=True)
class Play:
    """One trial of one set, or one scenario of whole leads and nodes, with one seed."""

    promise: str
    seed: int
    runs: int
    nodes: int
    trial: str = ""
    policy: str = ""


@dataclass(frozen=True)
class Worst:
    """The check of one promise that came closest to its bound, or broke it, and its seed."""

    check: FleetCheck
    seed: int


def plays(promises: Iterable[str], seeds: Iterable[int], runs: int, nodes: int) -> list[Play]:
    """Return everything that shows these promises, seed by seed."""
    listed = list(promises)
    return [
        play
        for seed in seeds
        for promise in listed
        for play in (
            [Play(promise, seed, runs, nodes)]
            if promise in WHOLE
            else [
                Play(promise, seed, runs, nodes, trial, policy)
                for trial, policies in PROMISES[promise]
                for policy in policies
            ]
        )
    ]


def checks_of(play: Play) -> list[FleetCheck]:
    """Play it and return its checks."""
    if play.promise in WHOLE:
        report = simulate(
            named_scenario(WHOLE[play.promise]).model_copy(update={"seed": play.seed})
        )
        return [] if report.shares is None else list(report.shares.checks)
    figures = {"seed": play.seed, "runs": play.runs, "nodes": play.nodes}
    scenario = validated(FleetScenario, {**read(FLEET), **figures})
    return list(TRIALS[play.trial][0](scenario, play.policy, _ignore))


def _ignore() -> None:
    """Take no notice of the progress."""


def played(listed: Sequence[Play], jobs: int) -> Iterator[tuple[Play, list[FleetCheck]]]:
    """Yield each play with its checks, in several processes if there is more than one job."""
    if jobs == 1:
        yield from ((play, checks_of(play)) for play in listed)
        return
    with ProcessPoolExecutor(jobs, initializer=end_with, initargs=(os.getpid(),)) as pool:
        yield from zip(listed, pool.map(checks_of, listed), strict=True)


def margin(check: FleetCheck) -> float:
    """Return how far a check is from its nearest bound, as a part of it; negative if it fails."""
    sides = [
        (check.found - check.least) / (abs(check.least) or 1) if check.least is not None else None,
        (check.most - check.found) / (abs(check.most) or 1) if check.most is not None else None,
    ]
    return min((it for it in sides if it is not None), default=float("inf"))


def worst(outcomes: Iterable[tuple[Play, Sequence[FleetCheck]]]) -> list[Worst]:
    """Return the worst check of all seeds for each trial, set, and party, in the order played.

    The parties of shares count as one: the campaign that is furthest off stands for all.
    """
    found: dict[tuple[str, ...], Worst] = {}
    for play, checks in outcomes:
        for check in checks:
            alike = "" if check.trial in {"shares", "overload"} and check.unit == "%" else check.who
            known = found.get(key := (check.trial, check.policy, alike))
            if known is None or margin(check) < margin(known.check):
                found[key] = Worst(check, play.seed)
    return list(found.values())
