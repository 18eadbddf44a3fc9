"""The speed of delivering results, and the cost of parked deliveries."""

from __future__ import annotations

import sys
import time
from typing import Any
from uuid import uuid4

import asyncpg

from node.execution import process
from node.execution.process import RunningProcess
from node.store.queries import Queries
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet

RESULTS = 20_000
PARKED = 100_000
ROUNDS = 5

_TASK = """
INSERT INTO task (id, lead, test, spec, scheduling_class, duration, participants, participant,
    created_at, state)
SELECT $1, identity, 'rtt', '{"dest": "192.0.2.1"}', 'background', interval '5 seconds',
    jsonb_build_array(
        jsonb_build_object('node', identity, 'name', name, 'url', url, 'address', address)
    ), 0, now(), 'finished'
FROM node WHERE is_self
"""
_RUNS = """
INSERT INTO run (id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at,
    ends_at, state, started_at, created_at, changed_at)
SELECT gen_random_uuid(), $1, at, 1, 0, 'background', 0, at, at + interval '5 seconds', 'merging',
    at, at, at
FROM generate_series($2::timestamptz, $2 + ($3 - 1) * interval '1 ms', interval '1 ms') AS at
"""
_PARTS = """
INSERT INTO part (run_id, participant, name, result, started_at, finished_at, command)
SELECT id, 0, 'a', '{}', starts_at, ends_at, '{ping,-c,10,192.0.2.1}' FROM run WHERE task_id = $1
"""
_END = """
UPDATE run SET state = 'finished', result = $2::jsonb, summary = '20.4 ms, loss 0 %',
    finished_at = ends_at, changed_at = now()
WHERE task_id = $1 AND state = 'merging'
"""
_STATES = "SELECT state::text, count(*) FROM archiving GROUP BY state"

RESULT = """{"sent": 10, "received": 10, "lost": 0, "duplicates": 0, "late": 0, "loss": 0.0,
"rtt_ms": {"min": 20.1, "mean": 20.4, "median": 20.4, "max": 21.0, "deviation": 0.2},
"padding": "%s"}""" % ("x" * 1_000)


async def archives(fleet: Fleet) -> list[Figure]:
    """Measure ``archived_per_s`` and ``parked_*`` with an HTTP server in another process."""
    name = fleet.names[0]
    server = await _receiver()
    try:
        url = server.url
        spec = {"url": url, "batch": 500}
        await fleet.ask(
            name, "POST", "/v1/archives", {"name": "bench", "archiver": "http", "spec": spec}
        )
        async with fleet.database(name) as database:
            idle = await _time_lookup(database)
            speed = await _delivery_rate(fleet, database)
            await fleet.ask(name, "PATCH", "/v1/archives/bench", {"spec": {"url": f"{url}404"}})
            await _insert_results(database, PARKED)
            await fleet.until(lambda: _is(database, "parked", PARKED))
            await database.execute("VACUUM ANALYZE archiving")
            await fleet.ask(name, "PATCH", "/v1/archives/bench", {"spec": {"url": url}})
            crowded = await _time_lookup(database)
            beside = await _delivery_rate(fleet, database)
            counting = await _time_backlog(fleet, name)
    finally:
        await server.running.end(5)
    how = (
        f"{RESULTS:,} results of 1.5 kB, written by one statement, until the last is noted as "
        "delivered; http in batches of 500, receiver in another process"
    )
    parked = f"with {PARKED:,} parked deliveries"
    return [
        Figure("archived_per_s", speed, "/s", how),
        Figure("archived_per_s_parked", beside, "/s", f"the same {parked}"),
        Figure("archive_look_ms", idle, "ms", "looking for due deliveries, nothing there"),
        Figure("archive_look_ms_parked", crowded, "ms", f"the same {parked}"),
        Figure("archive_backlog_ms", counting, "ms", f"GET /v1/archivings/backlog {parked}"),
    ]


class _Server:
    """The receiver, a process of its own."""

    def __init__(self, running: RunningProcess, url: str) -> None:
        """Wrap a receiver that is listening."""
        self.running = running
        self.url = url


async def _receiver() -> _Server:
    running = await process.start([sys.executable, "-m", "tests.bench.receiver"])
    await running.wait_for_output(b"\n")
    assert running._stdout is not None
    return _Server(running, running._stdout.kept.decode().strip())


async def _insert_results(database: asyncpg.Connection[Any], count: int) -> None:
    """Insert a task with ``count`` results measured just now."""
    task = uuid4()
    async with database.transaction():  # otherwise the node would search for late parts
        await database.execute(_TASK, task)
        first = await database.fetchval("SELECT now() - interval '1 hour'")
        await database.execute(_RUNS, task, first, count)
        await database.execute(_PARTS, task)
        await database.execute(_END, task, RESULT)


async def _delivery_rate(fleet: Fleet, database: asyncpg.Connection[Any]) -> float:
    before = await _count(database, "delivered")
    await _insert_results(database, RESULTS)
    written_at = time.perf_counter()

    async def all_delivered() -> bool:
        return await _count(database, "delivered") == before + RESULTS

    await fleet.until(all_delivered)
    return RESULTS / (time.perf_counter() - written_at)


async def _is(database: asyncpg.Connection[Any], state: str, count: int) -> bool:
    return await _count(database, state) == count


async def _count(database: asyncpg.Connection[Any], state: str) -> int:
    return int(dict(await database.fetch(_STATES)).get(state, 0))


async def _time_lookup(database: asyncpg.Connection[Any]) -> float:
    """Return the milliseconds of the query for due deliveries, which a node repeats."""
    query = Queries("node.store", "archives")["next_due"]
    durations = []
    for _ in range(ROUNDS * 4):
        started_at = time.perf_counter()
        await database.fetch(query, [])
        durations.append(time.perf_counter() - started_at)
    return sorted(durations)[len(durations) // 2] * 1_000


async def _time_backlog(fleet: Fleet, name: str) -> float:
    durations = []
    for _ in range(ROUNDS):
        started_at = time.perf_counter()
        await fleet.ask(name, "GET", "/v1/archivings/backlog")
        durations.append(time.perf_counter() - started_at)
    return sorted(durations)[len(durations) // 2] * 1_000
