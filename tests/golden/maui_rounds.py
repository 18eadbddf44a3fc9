"""Rounds of scheduling, translated into episodes whose driver only offers time from now on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lead.policy.axes.fill import Protected
from lead.policy.episode import Episode
from lead.policy.joint_placement import place
from lead.policy.placement_requests import Ask, EpisodeOutcome
from lead.policy.sets import SETS, PolicyComposition
from lead.policy.timetable import PlacementRequest, booked, earliest, free_for, timetable_for
from lead.policy.view import CampaignView, Candidate, NodeView, PoolView, PostedRun, View
from node.model import times
from node.model.classes import SchedulingClass
from node.model.spans import Span, normalise
from tests.golden.figures import micros, seconds, told

Given = dict[str, Any]

_ALL = "all"
_SLOT = "slot of "


# -- what is given ---------------------------------------------------------------------------------


def names_of(given: Given) -> list[str]:
    """The nodes; ``n1`` and so on where only their number is told."""
    nodes = told(given, "nodes", "processors")
    return [f"n{at + 1}" for at in range(nodes)] if isinstance(nodes, int) else list(nodes or ())


def running_of(given: Given) -> list[PostedRun]:
    """What runs; where only a number of nodes is told, on the first that are idle."""
    idle, runs = names_of(given), []
    for at, run in enumerate(given["running"]):
        taken = told(run, "nodes", "procs")
        nodes = idle[:taken] if isinstance(taken, int) else list(taken)
        idle = [name for name in idle if name not in nodes]
        until = micros(told(run, "until", "limit_left"))
        runs.append(_run(run.get("id", f"running {at}"), nodes, 0, until))
    return runs


def _run(task: str, nodes: Sequence[str], start: int, end: int) -> PostedRun:
    return PostedRun(task, task, _ALL, nodes, start, end)


def busy(given: Given) -> dict[str, list[Span]]:
    """When nodes are busy with what runs and with what is reserved."""
    found: dict[str, list[Span]] = {name: [] for name in names_of(given)}
    kept = given.get("reservations", [given["reservation"]] if "reservation" in given else [])
    for run in running_of(given):
        for name in run.nodes:
            found[name].append((run.start, run.end))
    for reservation in kept:
        start = micros(reservation["start"])
        for name in reservation["nodes"]:
            found[name].append((start, start + micros(reservation["duration"])))
    return {name: normalise(spans) for name, spans in found.items()}


def requests(queue: Iterable[Given], names: Sequence[str]) -> list[PlacementRequest]:
    """The queue by priority, each on any of these nodes."""
    return [
        PlacementRequest(
            job["id"],
            told(job, "nodes", "procs", default=1),
            micros(told(job, "dur", "duration")),
            names,
        )
        for job in queue
    ]


# -- one round -------------------------------------------------------------------------------------


def starting_now(
    queue: Sequence[PlacementRequest],
    runs: Sequence[PostedRun],
    now: int,
    policy: PolicyComposition,
) -> EpisodeOutcome:
    """Who starts now, and what is kept for the others: whatever cannot start now is refused."""
    names = queue[0].nodes if queue else ()
    view = View(
        now=now,
        horizon=times.LONGEST,
        pool=PoolView("p", names),
        nodes={name: NodeView(name) for name in names},
        campaigns={_ALL: CampaignView(_ALL)},
        candidates=[_candidate(request, at, now) for at, request in enumerate(queue)],
        runs=runs,
        workers=len(queue),
    )
    episode = Episode(view, policy, random.Random(0))
    placed: list[PostedRun] = []
    while (ask := episode.next()) is not None:
        if place(ask, _offered(ask, [*runs, *placed], now)):
            task, duration = ask.candidate.task, ask.candidate.duration
            placed.append(_run(task, ask.nodes, now, now + duration))
            episode.placed(ask, placed[-1])
        else:
            episode.refused(ask)
    return episode.outcome()


def _filling(fill: Protected) -> PolicyComposition:
    return replace(SETS["maui-fifo"], fill=fill)


def _candidate(request: PlacementRequest, at: int, now: int) -> Candidate:
    return Candidate(
        task=request.task,
        campaign=_ALL,
        next_run_at=now,
        duration=request.duration,
        nodes=request.nodes,
        slip=times.LONGEST,
        added_at=at,
        k=request.k,
        k_min=request.k,
        together=True,
        waits_since=now,
    )


def _offered(ask: Ask, runs: Iterable[PostedRun], now: int) -> dict[str, list[Span]]:
    """Time to start now and at no other instant."""
    taken = booked(runs)[SchedulingClass.EXCLUSIVE]
    free = free_for({name: taken.get(name, ()) for name in ask.nodes}, now)
    length = ask.candidate.duration
    return {
        name: [(now, now + length)] for name, has in free.items() if has is None or has >= length
    }


def _reserved(outcome: EpisodeOutcome) -> dict[str, Any]:
    return {it.name.removeprefix(_SLOT): seconds(it.start) for it in outcome.reservations}


# -- the cases -------------------------------------------------------------------------------------


def depths(given: Given) -> Given:
    """One round with so many slots each; when those start that others passed."""
    queue, runs = requests(given["queue"], names_of(given)), running_of(given)
    answered: Given = {}
    for depth in given["depths"]:
        outcome = starting_now(queue, runs, 0, _filling(Protected(depth)))
        started, reserved = [run.task for run in outcome.placed], _reserved(outcome)
        found: Given = {"started_now": started, "reserved": reserved}
        taken = booked([*runs, *outcome.placed])
        for at, request in enumerate(queue):
            passed_over = any(later.task in started for later in queue[at + 1 :])
            if passed_over and request.task not in {*started, *reserved}:
                kept = outcome.reservations
                free = timetable_for(_candidate(request, at, 0), taken, kept)
                then = earliest(free, request, 0)
                found[f"then_{request.task}_earliest"] = then and seconds(then.start)
        answered[f"depth_{depth}"] = found
    return answered


@dataclass(frozen=True)
class Played:
    """When each started, and what each round came to, by the instant of the round."""

    starts: dict[str, int]
    rounds: dict[int, EpisodeOutcome]


def early_end(given: Given) -> Given:
    """Rounds at 0, at the event, and whenever something ends, until all have started."""
    at, depth = micros(given["event"]["at"]), given.get("depth", 1)
    filled = _played(given, Protected(depth))
    plain = _played(given, Protected(depth, overtaking=False))
    first, after = filled.rounds[0], filled.rounds[at]
    started = [run.task for run in after.placed]
    return {
        "at_0": {"started": [run.task for run in first.placed], "reserved": _reserved(first)},
        "after_event": {"reserved": _reserved(after)} | ({"started": started} if started else {}),
        "starts": {task: seconds(start) for task, start in filled.starts.items()},
    } | {f"{task}_without_backfill": seconds(start) for task, start in plain.starts.items()}


def _played(given: Given, fill: Protected) -> Played:
    queue, running = requests(given["queue"], names_of(given)), running_of(given)
    at, gone = micros(given["event"]["at"]), given["event"]["id"]
    played = Played({}, {})
    now = 0
    while len(played.starts) < len(queue) or at not in played.rounds:
        running = [run for run in running if run.end > now and not (now >= at and run.run == gone)]
        waiting = [request for request in queue if request.task not in played.starts]
        outcome = played.rounds[now] = starting_now(waiting, running, now, _filling(fill))
        for run in outcome.placed:
            played.starts[run.task] = now
            running.append(run)
        coming = [run.end for run in running] + [at] * (now < at)
        if not coming:
            break
        now = min(coming)
    return played
