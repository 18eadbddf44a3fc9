"""The booking speed of one lead: batches of runs, single runs, and the requests they take."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from node.model import times
from node.model.times import format_instant
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, cpu_seconds

BATCH_TASKS = 40
CAMPAIGNS = ("ops", "lab", "thesis", "outage")
SINGLE_TASKS = 1500
REPEATS = 5
_SPAN = """
    SELECT extract(EPOCH FROM max(decided_at) - min(opened_at))::float8, count(*),
           coalesce(sum(cardinality(run_ids)), 0)
    FROM negotiation WHERE state = 'committed'
"""
_BOOKED = "SELECT count(*) FROM run_known WHERE state = 'scheduled'"
_COMMITTED = """
    SELECT extract(EPOCH FROM max(decided_at))::float8 FROM exchange
    WHERE state = 'committed' AND task_id = '{task}'
"""
_WAITING = "SELECT count(*) FROM planning WHERE plan_at < now() + interval '1 minute'"


@dataclass(frozen=True)
class BookingRound:
    """A round: the exchanges and runs booked, in how many seconds, with how many requests."""

    seconds: float
    exchanges: int
    runs: int
    requests: float
    lead_cpu: float


def idle(participants: list[str], schedule: dict[str, Any]) -> dict[str, Any]:
    """Return a task of one second on these nodes that leaves room for others.

    Its first run is 20 minutes ahead, so that booking is measured and not running.
    """
    start = time.time_ns() // 1000 + 20 * times.MINUTE
    return {
        "test": {"type": "idle", "spec": {"duration": "PT1S", "class": "normal"}},
        "participants": participants,
        "schedule": {"start": format_instant(start), **schedule},
    }


async def book(fleet: Fleet, documents: list[dict[str, Any]]) -> BookingRound:
    """Post the tasks, start the lead, and wait until all runs are booked on all nodes."""
    lead_name = fleet.names[0]
    await fleet.post_all(lead_name, documents)
    requests_before = await fleet.peer_requests()
    lead = await fleet.start_lead(lead_name)
    seconds, exchanges, runs = 0.0, 0, 0
    async with fleet.database(lead_name) as connection:

        async def all_decided() -> bool:
            nonlocal seconds, exchanges, runs
            [(seconds, exchanges, runs)] = await connection.fetch(_SPAN)
            return exchanges >= len(documents) and not await connection.fetchval(_WAITING)

        await fleet.until(all_decided)
    for name in fleet.names:

        async def all_booked(name: str = name) -> bool:
            return bool(await fleet.value(name, _BOOKED) >= runs)

        await fleet.until(all_booked)
    lead_cpu = cpu_seconds(lead.pid)
    requests = await fleet.peer_requests() - requests_before
    await fleet.end_lead(lead_name)
    await fleet.cancel_all()
    return BookingRound(seconds, exchanges, runs, requests, lead_cpu)


async def rounds(fleet: Fleet, documents: list[dict[str, Any]]) -> list[BookingRound]:
    """Return some equal rounds, after one that warms up."""
    return [await book(fleet, documents) for _ in range(REPEATS + 1)][1:]


async def batches(fleet: Fleet) -> list[Figure]:
    """Measure ``batch_runs_per_s_K`` and the requests per run."""
    count = len(fleet.names)
    for campaign in CAMPAIGNS:
        await fleet.ask(fleet.names[0], "POST", "/v1/campaigns", {"name": campaign})
    documents = [
        {**idle(fleet.names, {"repeat": "PT5M"}), "campaign": CAMPAIGNS[number % len(CAMPAIGNS)]}
        for number in range(BATCH_TASKS)
    ]
    measured = await rounds(fleet, documents)
    how = (
        f"{BATCH_TASKS} tasks of {len(CAMPAIGNS)} campaigns every 5 min over 24 h on {count} "
        "nodes: runs, from the first hold to the last decision; lead in a process of its own; "
        f"median of {REPEATS}"
    )
    figures = [
        Figure(
            f"batch_runs_per_s_{count}",
            statistics.median(each.runs / each.seconds for each in measured),
            "1/s",
            how,
        )
    ]
    if count == 2:
        how = f"signed requests served by both nodes over runs booked, {BATCH_TASKS} such tasks"
        value = statistics.median(each.requests / each.runs for each in measured)
        figures.append(Figure("requests_per_run", value, "", how))
    return figures


async def latency(fleet: Fleet) -> list[Figure]:
    """Measure ``post_to_commit_ms``."""
    lead = fleet.names[0]
    await fleet.start_lead(lead)
    durations = []
    for _ in range(4 * REPEATS + 1):
        posted_at = time.time()
        task = await fleet.ask(lead, "POST", "/v1/tasks", idle(fleet.names, {"slip": "PT1H"}))
        ends: list[float] = []
        for name in fleet.names:

            async def committed(
                name: str = name, task: str = task["id"], ends: list[float] = ends
            ) -> bool:
                decided_at = await fleet.value(name, _COMMITTED.format(task=task))
                ends.extend([decided_at] if decided_at else [])
                return decided_at is not None

            await fleet.until(committed)
        durations.append((max(ends) - posted_at) * 1000)
        await fleet.ask(lead, "DELETE", f"/v1/tasks/{task['id']}")
    await fleet.end_lead(lead)
    how = (
        "idle system, POST of a task with one run on two nodes, from before the POST until both "
        f"nodes have written its commit; lead in a process of its own; median of {4 * REPEATS}"
    )
    return [Figure("post_to_commit_ms", statistics.median(durations[1:]), "ms", how)]


async def singles(fleet: Fleet) -> list[Figure]:
    """Measure ``single_exchanges_per_s``."""
    documents = [idle(fleet.names[:2], {"slip": "PT1H"}) for _ in range(SINGLE_TASKS)]
    measured = await rounds(fleet, documents)
    how = (
        f"{SINGLE_TASKS} tasks with one run each on two nodes, 50 workers: exchanges, from the "
        f"first hold to the last decision; median of {REPEATS}"
    )
    value = statistics.median(each.exchanges / each.seconds for each in measured)
    return [Figure("single_exchanges_per_s", value, "1/s", how)]
