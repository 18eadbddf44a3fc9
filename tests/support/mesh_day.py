"""A day of a mesh of five nodes, in the tables of the one that leads it, for pictures.

The node and its API are real, its tasks and runs are written into the tables. Everything is the
same each time, and its clock stands still.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from uuid import UUID, uuid5

from node.api.page import routes
from node.model import times
from node.model.times import HOUR, MINUTE, SECOND, format_duration, format_instant
from node.plugins.tests.http import TEST as HTTP
from node.plugins.tests.latency import TEST as LATENCY
from node.plugins.tests.throughput import TEST as THROUGHPUT
from node.runtime.clock import Synchronisation
from node.store.database import Notice
from tests.support.clocks import ManualClock
from tests.support.page_stand_in import NAMESPACE, identity_of
from tests.support.served_nodes import Asker, asker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOW = times.parse_instant("2026-12-01T12:00:00Z")
SELF = "berlin"
HOSTS = (SELF, "lisbon", "oslo", "prague", "zurich")
MESH = "backbone"
DELAYS_MS = {
    "berlin lisbon": 23.1, "berlin oslo": 9.8, "berlin prague": 4.2, "berlin zurich": 7.6,
    "lisbon oslo": 29.5, "lisbon prague": 24.9, "lisbon zurich": 17.8,
    "oslo prague": 13.6, "oslo zurich": 16.3, "prague zurich": 6.1,
}  # fmt: skip
"""The time that a packet takes from one host to the other, in milliseconds."""
AWAY = ((NOW - 230 * MINUTE, NOW - 190 * MINUTE), (NOW - 7 * MINUTE, NOW))
"""The times when prague was away, and is away now."""
LOSSY = (NOW - 9 * HOUR, NOW - 6 * HOUR)
"""The time when packets from oslo to lisbon were lost."""
NOT_THERE = "prague does not answer: no route to host"
NO_PORT = "iperf3 on zurich could not listen on port 5203: address already in use"
NO_PAGE = "www.example.net answered with status 503, expected 200"
SYNCHRONISED = Synchronisation(synchronised=True, error_bound=400)
BEHIND = "zurich is busy with exclusive runs until 2026-12-01T12:14:00Z"

_NODES = """
INSERT INTO node (
    identity, name, url, address, added_at, seen_at, heard_at, unreachable_since, last_error,
    attributes
)
SELECT
    identity, name, 'http://' || address || ':9', address, added_at, seen_at, seen_at,
    unreachable_since, last_error, attributes
FROM jsonb_to_recordset($1) AS given (
    identity text, name text, address text, added_at timestamptz, seen_at timestamptz,
    unreachable_since timestamptz, last_error text, attributes jsonb
)
"""
_TASKS = """
INSERT INTO task (
    id, lead, test, spec, tool, scheduling_class, duration, participants, participant, schedule,
    campaign, reference, created_at, state, reason, ended_at
)
SELECT
    id, self.identity, test, spec, tool, given.scheduling_class, duration::interval, participants,
    participant, schedule, campaign, reference, created_at, state, reason, ended_at
FROM jsonb_to_recordset($1) AS given (
    id uuid, test text, spec jsonb, tool text, scheduling_class scheduling_class, duration text,
    participants jsonb, participant smallint, schedule jsonb, campaign text, reference jsonb,
    created_at timestamptz, state task_state, reason text, ended_at timestamptz
), node AS self
WHERE self.is_self
"""
_PLANNING = """
INSERT INTO planning (task_id, campaign_id, next_run_at, plan_at, planned_to, added_at)
SELECT task.id, campaign.id, $1, $1, $1, task.created_at
FROM task INNER JOIN campaign ON coalesce(task.campaign, 'default') = campaign.name
WHERE task.state = 'active'
"""
_RUNS = """
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state,
    reason, started_at, finished_at, result, summary, verdict, verdict_reasons, created_at,
    changed_at
)
SELECT
    given.id, task.id, starts_at, 1, task.participant, task.scheduling_class, 0, starts_at,
    starts_at + task.duration, given.state, given.reason,
    CASE WHEN given.state IN ('finished', 'failed', 'running') THEN starts_at END,
    CASE WHEN given.state IN ('finished', 'failed') THEN starts_at + task.duration END,
    result, summary, verdict, verdict_reasons, starts_at - interval '6 hours',
    least(starts_at + task.duration, $2)
FROM jsonb_to_recordset($1) AS given (
    id uuid, task uuid, starts_at timestamptz, state run_state, reason text, result jsonb,
    summary text, verdict text, verdict_reasons text []
)
INNER JOIN task ON given.task = task.id
"""
_CHARGES = """
INSERT INTO charge (
    campaign_id, run_id, participant, node, starts_at, ends_at, weight, cause, made_at
)
SELECT
    campaign.id, run.id, place.ordinality - 1, place.value ->> 'node', run.starts_at, run.ends_at,
    CASE run.scheduling_class WHEN 'exclusive' THEN 1000 ELSE 125 END, 'booked', run.created_at
FROM run
INNER JOIN task ON run.task_id = task.id
INNER JOIN campaign ON coalesce(task.campaign, 'default') = campaign.name
CROSS JOIN LATERAL jsonb_array_elements(task.participants) WITH ORDINALITY AS place
WHERE run.state IN ('finished', 'failed', 'running', 'booked')
"""
_DECISION = """
INSERT INTO decision (
    task_id, first_at, decided_at, outcome, sentence, asked, placed, first_slot, last_slot, trace
)
VALUES ($1, $2, $2, 'committed', $3, 6, 6, $4, $5, $6)
"""
_ALERTS = """
INSERT INTO alert (id, task_id, rule, run_id, raised_at, over_at, sentence, value)
VALUES
    (gen_random_uuid(), $1, 'outcome', $2, $3::timestamptz - interval '20 minutes', NULL, $4, NULL),
    (
        gen_random_uuid(), $1, 'loss.forward', $2, $3::timestamptz - interval '5 hours',
        $3::timestamptz - interval '4 hours', 'loss.forward is 0.06, bad from 0.05 or more on', 0.06
    )
"""
_FOLLOW_UP = """
WITH asked AS (
    SELECT run.*, task.participants, task.duration, task.lead, task.reference
    FROM run INNER JOIN task ON run.task_id = task.id WHERE run.id = $1
),
follower AS (
    INSERT INTO task (
        id, lead, test, spec, scheduling_class, duration, participants, participant, schedule,
        created_at
    )
    SELECT
        gen_random_uuid(), lead, 'trace', '{"source": "berlin", "dest": "zurich"}', 'background',
        '10 s', participants, 0, jsonb_build_object('after', jsonb_build_object(
            'task', task_id, 'outcome', 'succeeded', 'within', 'PT10M', 'when', 'failed',
            'per_hour', 2
        )), created_at
    FROM asked RETURNING id
)
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state,
    summary, result, created_at, changed_at, finished_at, judgement
)
SELECT
    gen_random_uuid(), follower.id, asked.ends_at, 1, 0, 'background', 0,
    asked.ends_at + interval '1 s', asked.ends_at + interval '11 s', 'finished',
    '5 hops to zurich, 12.4 ms', '{}', asked.ends_at, asked.ends_at, asked.ends_at, 'good'
FROM asked, follower
"""
_BACKLOG = """
WITH place AS (
    INSERT INTO destination (digest, archiver, spec, label, ordered, last_error, last_error_at)
    VALUES ('x', 'http', '{}', 'https://collector.example/in', false, $2, $1) RETURNING id
),
named AS (
    INSERT INTO archive (id, name, destination_id, runs, created_at, changed_at)
    SELECT gen_random_uuid(), 'collector', id, 'all', $1, $1 FROM place RETURNING id, destination_id
)
INSERT INTO archiving (
    archive_id, destination_id, run_id, edition, outcome, attempts, created_at, next_at, last_error
)
SELECT named.id, named.destination_id, run.id, 1, run.state, 3, run.changed_at, $1, $2
FROM named, run
WHERE run.state = 'finished' AND run.ends_at > $1::timestamptz - interval '20 minutes'
"""


@dataclass
class Day:
    """The tasks and runs of the day, as rows."""

    rng: Random = field(default_factory=lambda: Random(7))
    tasks: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    identities: dict[str, str] = field(default_factory=dict)

    def task(self, test: str, ends: tuple[str, ...], **fields: Any) -> dict[str, Any]:
        """Add a task that one or two hosts have measured since yesterday."""
        people = [
            {
                "node": self.identities[name],
                "name": name,
                "url": f"https://{name}:8642",
                "address": address_of(name),
                "accepted": True,
            }
            for name in ends
            if name in HOSTS
        ]
        made = {
            "id": str(uuid5(NAMESPACE, f"{test} {ends} {fields}")),
            "test": test,
            "spec": {"source": ends[0], "dest": ends[-1]},
            "scheduling_class": "normal",
            "participants": people,
            "participant": ends.index(SELF) if SELF in ends else None,
            "campaign": None,
            "reference": None,
            "created_at": format_instant(NOW - 2 * times.DAY),
            "state": "active",
            **fields,
        }
        self.tasks.append(made)
        return made

    def run(self, task: dict[str, Any], at: int, state: str, **fields: Any) -> None:
        """Add a run of a task."""
        name = uuid5(NAMESPACE, f"{task['id']} {at}")
        empty: dict[str, Any] = {"reason": None, "result": None, "summary": None}
        empty |= {"verdict": "clean" if state == "finished" else None, "verdict_reasons": []}
        run = {"id": str(name), "task": task["id"], "starts_at": format_instant(at), "state": state}
        self.runs.append({**run, **empty, **fields})

    def instants(self, task: dict[str, Any], offset: int) -> Iterator[tuple[int, bool]]:
        """Yield the starts of a task's runs from a day ago on, and whether each is over."""
        every = times.parse_duration(task["schedule"]["repeat"])
        length = times.parse_duration(task["duration"])
        for at in range(NOW - times.DAY + offset, NOW + 12 * HOUR, every):
            yield at, at + length < NOW

    def plan(self, task: dict[str, Any], offset: int, outcome: Any) -> None:
        """Add the runs of a task; those that are over as ``outcome(at)`` says."""
        for at, is_over in self.instants(task, offset):
            if is_over:
                self.run(task, at, **outcome(at))
            else:
                self.run(task, at, "running" if at <= NOW else "booked")


def address_of(name: str) -> str:
    """Return the address of a host; nothing answers there."""
    return f"127.0.0.{11 + HOSTS.index(name)}"


def way_of(source: str, dest: str) -> float:
    """Return the delay from one host to another, in milliseconds."""
    there = DELAYS_MS.get(f"{source} {dest}")
    return there if there is not None else DELAYS_MS[f"{dest} {source}"] + 0.3


def within(at: int, span: tuple[int, int]) -> bool:
    """Return whether an instant lies in a span."""
    return span[0] <= at < span[1]


def day_of(identities: dict[str, str]) -> Day:
    """Return the day of a mesh, of a few tasks for others, and what went wrong in it."""
    day = Day(identities=identities)
    pairs = [(source, dest) for source in HOSTS for dest in HOSTS if source != dest]
    for number, pair in enumerate(pairs):
        _add_latency(day, pair, number)
    for number, other in enumerate(HOSTS[1:]):
        _add_throughput(day, (SELF, other), 2 * number)
        _add_throughput(day, (other, SELF), 2 * number + 1)
    _add_http(day)
    reason = "oslo has no tool for trace: install the package traceroute there"
    ended = {"reason": reason, "ended_at": format_instant(NOW - HOUR)}
    day.task("trace", ("oslo", "lisbon"), duration="PT20S", schedule={}, state="refused", **ended)
    return day


def _reference(test: str, pair: tuple[str, str]) -> dict[str, str]:
    source, dest = pair
    return {"mesh": MESH, "key": f"{test}/{source}/{dest}", "source": source, "dest": dest}


def _add_latency(day: Day, pair: tuple[str, str], number: int) -> None:
    task = day.task(
        "latency",
        pair,
        tool="stamp",
        duration="PT12S",
        schedule={"repeat": "PT10M"},
        campaign="operations",
        reference=_reference("latency", pair),
    )

    def outcome(at: int) -> dict[str, Any]:
        if "prague" in pair and any(within(at, span) for span in AWAY):
            return {"state": "missed", "reason": NOT_THERE}
        lossy = pair == ("oslo", "lisbon") and within(at, LOSSY)
        result = latency_result(day.rng, pair, at, loss=day.rng.uniform(0.02, 0.09) * lossy)
        told = {"state": "finished", "result": result, "summary": LATENCY.summary(result)}
        if SELF in pair and day.rng.random() < 0.02:
            why = "berlin sent 212 Mb/s besides the run"
            told |= {"verdict": "contaminated", "verdict_reasons": [why]}
        return told

    day.plan(task, 20 * SECOND * number, outcome)


def latency_result(rng: Random, pair: tuple[str, str], at: int, *, loss: float) -> dict[str, Any]:
    """Return a result: delays that follow the hour of the day, and seldom a longer way."""
    source, dest = pair
    swing = 1 + 0.04 * math.sin(2 * math.pi * at / times.DAY + len(source))
    back_loss = round(loss / 4, 2)
    forward, backward = (
        delays(rng, way_of(*ends) * swing * (1.5 if rng.random() < 0.01 else 1))
        for ends in (pair, (dest, source))
    )
    both = {name: forward[name] + backward[name] for name in forward}
    loss = round(loss, 2)
    arrived = round(100 * (1 - loss))
    jitter = round(rng.uniform(0.05, 0.3), 3)
    clock = {"synchronised": True, "error_bound_ms": 0.4, "stepped_ms": 0, "identity": "x"}
    return {
        "sent": 100,
        "received_at_dest": arrived,
        "received_back": round(arrived * (1 - back_loss)),
        "late": 0,
        "loss": {"forward": loss, "backward": back_loss, "round_trip": round(loss + back_loss, 2)},
        "delay_ms": {"forward": forward, "backward": backward, "round_trip": both},
        "jitter_ms": {"forward": jitter, "backward": jitter, "round_trip": 2 * jitter},
        "duplicates": {"forward": 0, "backward": 0},
        "reordered": {"forward": 0, "backward": 0},
        "hops": {"forward": 7, "backward": 7},
        "unreachable": 0,
        "strays": 0,
        "clocks": {"source": clock, "dest": clock},
        "clocks_synchronised": True,
        "clock_error_ms": 0.8,
    }


def delays(rng: Random, median: float) -> dict[str, float]:
    """Return the figures of delays with about this median, in milliseconds."""
    median *= 1 + rng.uniform(-0.01, 0.01)
    shares = {"min": 0.98, "median": 1, "mean": 1.01, "p95": 1.05, "max": 1.2, "stdev": 0.02}
    return {name: round(median * share, 3) for name, share in shares.items()}


def _add_throughput(day: Day, pair: tuple[str, str], number: int) -> None:
    task = day.task(
        "throughput",
        pair,
        tool="iperf3",
        duration="PT3M",
        scheduling_class="exclusive",
        schedule={"repeat": "PT2H", "slip": "PT10M"},
        campaign="research" if number % 2 else "operations",
        reference=_reference("throughput", pair),
    )

    def outcome(at: int) -> dict[str, Any]:
        if "prague" in pair and any(within(at, span) for span in AWAY):
            return {"state": "unplaced", "reason": NOT_THERE}
        if pair == (SELF, "zurich") and at > NOW - 3 * HOUR:
            return {"state": "failed", "reason": NO_PORT}
        result = throughput_result(day.rng, 940e6 if "lisbon" not in pair else 480e6)
        return {"state": "finished", "result": result, "summary": THROUGHPUT.summary(result)}

    day.plan(task, 15 * MINUTE * number + 5 * MINUTE, outcome)
    if pair == (SELF, "lisbon"):
        day.run(task, NOW + 4 * MINUTE, "waiting", reason=BEHIND)


def throughput_result(rng: Random, rate_bps: float) -> dict[str, Any]:
    """Return a result of TCP at about this rate."""
    rate_bps *= 1 - rng.uniform(0, 0.05)
    moved = {"bytes": round(rate_bps * 10 / 8), "duration_ms": 10_000, "rate_bps": rate_bps}
    return {
        "protocol": "tcp",
        "reverse": False,
        "streams": 1,
        "congestion": "cubic",
        "omitted_ms": 0,
        "rate_bps": rate_bps,
        "sent": {**moved, "retransmits": rng.randrange(40)},
        "received": moved,
        "datagrams": None,
        "rtt_ms": {"min": 8.1, "mean": 9.4, "max": 14.2},
        "cpu": {"source": 0.21, "dest": 0.34},
        "intervals": [],
    }


def _add_http(day: Day) -> None:
    spec = {"url": "https://www.example.net/"}
    fields = {"tool": "fetch", "spec": spec, "duration": "PT10S", "schedule": {"repeat": "PT20M"}}
    task = day.task("http", (SELF,), scheduling_class="background", **fields)

    def outcome(at: int) -> dict[str, Any]:
        if day.rng.random() < 0.12:
            return {"state": "failed", "reason": NO_PAGE}
        first = round(day.rng.uniform(40, 60), 1)
        phases = {"name": 4.2, "connect": 12.1, "tls": 26.0, "first_byte": first, "transfer": 3.1}
        result = {
            "url": spec["url"],
            "address": "203.0.113.9",
            "status": 200,
            "protocol": "HTTP/1.1",
            "phases_ms": phases,
            "total_ms": round(sum(phases.values()), 1),
            "redirects": 0,
            "redirect_ms": 0,
            "body_bytes": 12_504,
            "complete": True,
            "matched": None,
            "failure": None,
        }
        return {"state": "finished", "result": result, "summary": HTTP.summary(result)}

    day.plan(task, 4 * MINUTE, outcome)


def trace_of(at: int) -> dict[str, Any]:
    """Return the trace of an attempt to plan: what was in the way on one of the nodes."""
    other = {"window": 0, "test": "throughput", "scheduling_class": "exclusive", "priority": 5}
    other |= {"starts_at": at, "ends_at": at + 4 * MINUTE}
    return {
        "windows": [[at, at + 10 * MINUTE]],
        "offers": [
            {"node": SELF, "free": "everything", "obstacles": [], "reason": None},
            {
                "node": "zurich",
                "free": [[at + 4 * MINUTE, at + 10 * MINUTE]],
                "obstacles": [other],
                "reason": None,
            },
        ],
        "choices": [[at, at + 4 * MINUTE, False]],
    }


@dataclass
class MeshDay:
    """The node that leads the mesh, and the run whose start was explained."""

    client: Asker
    explained: UUID

    @property
    def url(self) -> str:
        """Return the address of its page."""
        return str(self.client.node.card.url)

    @property
    def token(self) -> str:
        """Return the token of its owner."""
        return "secret"


@asynccontextmanager
async def mesh_day(dsn: str, directory: Path) -> AsyncIterator[MeshDay]:
    """Serve the node, with its day in an empty database, on a host whose clock is synchronised."""
    kernel = patch("node.operation.status.synchronisation", return_value=SYNCHRONISED)
    with kernel:
        async with asker(SELF, dsn, ManualClock(NOW), directory, pages=routes()) as a:
            yield MeshDay(a, await _fill(a))


async def _fill(a: Asker) -> UUID:
    """Write the day into the tables; return the run whose start is explained."""
    await _add_nodes(a)
    await _add_sharing(a)
    day = day_of({name: identity_of(name) for name in HOSTS} | {SELF: a.node.key.identity})
    await a.rows(_TASKS, day.tasks)
    await a.rows(_RUNS, day.runs, NOW)
    await a.rows(_PLANNING, NOW + 12 * HOUR)
    await a.rows(_CHARGES)
    await a.rows(_BACKLOG, NOW, "404 Not Found")
    for run in sorted(day.runs, key=itemgetter("starts_at")):
        if format_instant(NOW - 20 * MINUTE) < run["starts_at"] <= format_instant(NOW):
            a.node.hub.on_notice(Notice("run", run["id"], (run["task"], run["state"])))
    failed = next(run for run in day.runs if run["reason"] == NO_PORT)
    at = times.parse_instant(failed["starts_at"])
    sentence = "6 of 6 windows placed; zurich was busy at the start of one."
    given = (UUID(failed["task"]), at - HOUR, sentence, at, at + 10 * HOUR, trace_of(at))
    await a.rows(_DECISION, *given)
    await a.rows(_FOLLOW_UP, UUID(failed["id"]))
    await a.rows(_ALERTS, UUID(failed["task"]), UUID(failed["id"]), NOW, failed["reason"])
    return UUID(failed["id"])


async def _add_nodes(a: Asker) -> None:
    nodes: list[dict[str, Any]] = [
        {
            "identity": identity_of(name),
            "name": name,
            "address": address_of(name),
            "added_at": format_instant(NOW - times.DAY),
            "seen_at": format_instant(NOW - MINUTE),
            "attributes": {"version": "0.3.0", "country": name[:2].upper(), "os": "Linux"},
        }
        for name in HOSTS[1:]
    ]
    away = next(node for node in nodes if node["name"] == "prague")
    away |= {"unreachable_since": format_instant(AWAY[1][0]), "last_error": "no route to host"}
    await a.rows(_NODES, nodes)
    await a.node.directory.refresh()


async def _add_sharing(a: Asker) -> None:
    """Add campaigns, a pool and a reservation, as users do it."""
    event = {"start": format_instant(NOW + 13 * HOUR)}
    hours = format_duration(2 * HOUR)
    documents = [
        ("campaigns", {"name": "operations", "weight": 3, "quotas": {"bytes": "50G/P1D"}}),
        ("campaigns", {"name": "research", "weight": 1, "quotas": {"mbps": 1000}}),
        ("pools", {"name": "europe", "match": {"os": "Linux"}}),
        (
            "reservations",
            {"kind": "demo", "name": "SC26", "schedule": event, "duration": hours},
        ),
    ]
    for kind, document in documents:
        status, answer = await a.ask("POST", f"/v1/{kind}", document)
        assert status == 201, answer
