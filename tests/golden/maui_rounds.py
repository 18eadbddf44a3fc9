"""Rounds of scheduling, translated into episodes whose driver offers time from now on only."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lead.policy.axes.fill import Protected
from lead.policy.episode import Episode
from lead.policy.placement_requests import Ask, EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.timetable import (
    PlacementRequest,
    earliest_placement,
    free_times,
    timetable_for,
    timetables_by_class,
)
from lead.policy.view import CampaignView, Candidate, NodeView, PoolView, PostedRun, View
from lead.pool.rehearsal.seats import starts_by_node
from node.model import times
from node.model.classes import SchedulingClass
from node.model.spans import Span, normalise
from tests.golden.figures import first_given, micros, seconds
from tests.support.policies import COMPOSITIONS

Given = dict[str, Any]

_ALL = "all"
_SLOT = "slot of "


# -- what is given ---------------------------------------------------------------------------------


def names_of(given: Given) -> list[str]:
    """Return the nodes; ``n1`` and so on if only their number is given."""
    nodes = first_given(given, "nodes", "processors")
    return [f"n{at + 1}" for at in range(nodes)] if isinstance(nodes, int) else list(nodes or ())


def running_of(given: Given) -> list[PostedRun]:
    """Return the running runs; a number of nodes means the first idle ones."""
    idle, runs = names_of(given), []
    for at, run in enumerate(given["running"]):
        count_or_names = first_given(run, "nodes", "procs")
        nodes = idle[:count_or_names] if isinstance(count_or_names, int) else list(count_or_names)
        idle = [name for name in idle if name not in nodes]
        until = micros(first_given(run, "until", "limit_left"))
        runs.append(_run(run.get("id", f"running {at}"), nodes, 0, until))
    return runs


def _run(task: str, nodes: Sequence[str], start: int, end: int) -> PostedRun:
    return PostedRun(task, task, _ALL, nodes, start, end)


def busy(given: Given) -> dict[str, list[Span]]:
    """Return when nodes are busy with running runs and with reservations."""
    spans_by_node: dict[str, list[Span]] = {name: [] for name in names_of(given)}
    reservations = given.get(
        "reservations", [given["reservation"]] if "reservation" in given else []
    )
    for run in running_of(given):
        for name in run.nodes:
            spans_by_node[name].append((run.start, run.end))
    for reservation in reservations:
        start = micros(reservation["start"])
        for name in reservation["nodes"]:
            spans_by_node[name].append((start, start + micros(reservation["duration"])))
    return {name: normalise(spans) for name, spans in spans_by_node.items()}


def requests(queue: Iterable[Given], names: Sequence[str]) -> list[PlacementRequest]:
    """Return the queue by priority, each request on any of these nodes."""
    return [
        PlacementRequest(
            job["id"],
            first_given(job, "nodes", "procs", default=1),
            micros(first_given(job, "dur", "duration")),
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
    """Drive one round: runs start now or are refused, and the outcome has the reservations."""
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
    while (ask := episode.next_ask()) is not None:
        if starts_by_node(ask, _offered(ask, [*runs, *placed], now)):
            task, duration = ask.candidate.task, ask.candidate.duration
            placed.append(_run(task, ask.nodes, now, now + duration))
            episode.record_placement(ask, placed[-1])
        else:
            episode.record_refusal(ask)
    return episode.outcome()


def _filling(fill: Protected) -> PolicyComposition:
    return replace(COMPOSITIONS["maui-fifo"], fill=fill)


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
    """Return free time for a start now and at no other instant."""
    busy_spans = timetables_by_class(runs)[SchedulingClass.EXCLUSIVE]
    free = free_times({name: busy_spans.get(name, ()) for name in ask.nodes}, now)
    duration = ask.candidate.duration
    return {
        name: [(now, now + duration)]
        for name, free_time in free.items()
        if free_time is None or free_time >= duration
    }


def _reserved(outcome: EpisodeOutcome) -> dict[str, Any]:
    return {it.name.removeprefix(_SLOT): seconds(it.start) for it in outcome.reservations}


# -- the cases -------------------------------------------------------------------------------------


def depths(given: Given) -> Given:
    """Run one round for each depth, and find the start of requests that others passed."""
    queue, runs = requests(given["queue"], names_of(given)), running_of(given)
    answer: Given = {}
    for depth in given["depths"]:
        outcome = starting_now(queue, runs, 0, _filling(Protected(depth)))
        started, reserved = [run.task for run in outcome.placed], _reserved(outcome)
        result: Given = {"started_now": started, "reserved": reserved}
        occupied = timetables_by_class([*runs, *outcome.placed])
        for at, request in enumerate(queue):
            passed_over = any(later.task in started for later in queue[at + 1 :])
            if passed_over and request.task not in {*started, *reserved}:
                reservations = outcome.reservations
                free = timetable_for(_candidate(request, at, 0), occupied, reservations)
                placement = earliest_placement(free, request, 0)
                result[f"then_{request.task}_earliest"] = placement and seconds(placement.start)
        answer[f"depth_{depth}"] = result
    return answer


@dataclass(frozen=True)
class Played:
    """The start of each request, and the outcome of each round by its instant."""

    starts: dict[str, int]
    rounds: dict[int, EpisodeOutcome]


def early_end(given: Given) -> Given:
    """Run rounds at 0, at the event, and whenever a run ends, until all have started."""
    event_at, depth = micros(given["event"]["at"]), given.get("depth", 1)
    filled = _played(given, Protected(depth))
    plain = _played(given, Protected(depth, overtaking=False))
    first, after_event = filled.rounds[0], filled.rounds[event_at]
    started = [run.task for run in after_event.placed]
    return {
        "at_0": {"started": [run.task for run in first.placed], "reserved": _reserved(first)},
        "after_event": {"reserved": _reserved(after_event)}
        | ({"started": started} if started else {}),
        "starts": {task: seconds(start) for task, start in filled.starts.items()},
    } | {f"{task}_without_backfill": seconds(start) for task, start in plain.starts.items()}


def _played(given: Given, fill: Protected) -> Played:
    queue, running = requests(given["queue"], names_of(given)), running_of(given)
    event_at, ended = micros(given["event"]["at"]), given["event"]["id"]
    played = Played({}, {})
    now = 0
    while len(played.starts) < len(queue) or event_at not in played.rounds:
        running = [
            run for run in running if run.end > now and not (now >= event_at and run.run == ended)
        ]
        waiting = [request for request in queue if request.task not in played.starts]
        outcome = played.rounds[now] = starting_now(waiting, running, now, _filling(fill))
        for run in outcome.placed:
            played.starts[run.task] = now
            running.append(run)
        coming = [run.end for run in running] + [event_at] * (now < event_at)
        if not coming:
            break
        now = min(coming)
    return played
