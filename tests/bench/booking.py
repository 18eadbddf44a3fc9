"""How fast one lead books: batches of runs, single runs, and how many requests that takes."""

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
class Booked:
    """One round: exchanges and runs booked, in how many seconds, with how many requests."""

    seconds: float
    exchanges: int
    runs: int
    requests: float
    lead_cpu: float


def idle(participants: list[str], schedule: dict[str, Any]) -> dict[str, Any]:
    """A task that takes a second on these nodes and leaves room for others.

    Its first run is a while away: what is measured is booking and not running.
    """
    start = time.time_ns() // 1000 + 20 * times.MINUTE
    return {
        "test": {"type": "idle", "spec": {"duration": "PT1S", "class": "normal"}},
        "participants": participants,
        "schedule": {"start": format_instant(start), **schedule},
    }


async def book(fleet: Fleet, documents: list[dict[str, Any]]) -> Booked:
    """Post the tasks, start the lead, wait until all is booked everywhere."""
    lead_name = fleet.names[0]
    await fleet.post_all(lead_name, documents)
    before = await fleet.peer_requests()
    lead = await fleet.start_lead(lead_name)
    seconds, exchanges, runs = 0.0, 0, 0
    async with fleet.database(lead_name) as connection:

        async def decided() -> bool:
            nonlocal seconds, exchanges, runs
            [(seconds, exchanges, runs)] = await connection.fetch(_SPAN)
            return exchanges >= len(documents) and not await connection.fetchval(_WAITING)

        await fleet.until(decided)
    for name in fleet.names:

        async def booked(name: str = name) -> bool:
            return bool(await fleet.value(name, _BOOKED) >= runs)

        await fleet.until(booked)
    spent = cpu_seconds(lead.pid)
    requests = await fleet.peer_requests() - before
    await fleet.end_lead(lead_name)
    await fleet.cancel_all()
    return Booked(seconds, exchanges, runs, requests, spent)


async def rounds(fleet: Fleet, documents: list[dict[str, Any]]) -> list[Booked]:
    """Some rounds of the same, after one that only warms up."""
    return [await book(fleet, documents) for _ in range(REPEATS + 1)][1:]


async def batches(fleet: Fleet) -> list[Figure]:
    """``batch_runs_per_s_K`` and the requests that took."""
    count = len(fleet.names)
    for campaign in CAMPAIGNS:
        await fleet.ask(fleet.names[0], "POST", "/v1/campaigns", {"name": campaign})
    documents = [
        {**idle(fleet.names, {"repeat": "PT5M"}), "campaign": CAMPAIGNS[number % len(CAMPAIGNS)]}
        for number in range(BATCH_TASKS)
    ]
    found = await rounds(fleet, documents)
    how = (
        f"{BATCH_TASKS} tasks of {len(CAMPAIGNS)} campaigns every 5 min over 24 h on {count} "
        "nodes: runs, from the first hold to the last decision; lead in a process of its own; "
        f"median of {REPEATS}"
    )
    figures = [
        Figure(
            f"batch_runs_per_s_{count}",
            statistics.median(each.runs / each.seconds for each in found),
            "1/s",
            how,
        )
    ]
    if count == 2:
        how = f"signed requests served by both nodes over runs booked, {BATCH_TASKS} such tasks"
        value = statistics.median(each.requests / each.runs for each in found)
        figures.append(Figure("requests_per_run", value, "", how))
    return figures


async def latency(fleet: Fleet) -> list[Figure]:
    """``post_to_commit_ms``."""
    lead = fleet.names[0]
    await fleet.start_lead(lead)
    took = []
    for _ in range(4 * REPEATS + 1):
        posted = time.time()
        task = await fleet.ask(lead, "POST", "/v1/tasks", idle(fleet.names, {"slip": "PT1H"}))
        ends: list[float] = []
        for name in fleet.names:

            async def committed(
                name: str = name, task: str = task["id"], ends: list[float] = ends
            ) -> bool:
                found = await fleet.value(name, _COMMITTED.format(task=task))
                ends.extend([found] if found else [])
                return found is not None

            await fleet.until(committed)
        took.append((max(ends) - posted) * 1000)
        await fleet.ask(lead, "DELETE", f"/v1/tasks/{task['id']}")
    await fleet.end_lead(lead)
    how = (
        "idle system, POST of a task with one run on two nodes, from before the POST until both "
        f"nodes have written its commit; lead in a process of its own; median of {4 * REPEATS}"
    )
    return [Figure("post_to_commit_ms", statistics.median(took[1:]), "ms", how)]


async def singles(fleet: Fleet) -> list[Figure]:
    """``single_exchanges_per_s``."""
    documents = [idle(fleet.names[:2], {"slip": "PT1H"}) for _ in range(SINGLE_TASKS)]
    found = await rounds(fleet, documents)
    how = (
        f"{SINGLE_TASKS} tasks with one run each on two nodes, 50 workers: exchanges, from the "
        f"first hold to the last decision; median of {REPEATS}"
    )
    value = statistics.median(each.exchanges / each.seconds for each in found)
    return [Figure("single_exchanges_per_s", value, "1/s", how)]
