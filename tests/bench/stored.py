"""The time that lists take beside the results of a year: a million of them, and ten million.

Each task measures hourly for a year, so that ten times as many results are those of ten times as
many tasks. Half of the tasks are of a mesh. Each question is asked over HTTP as people ask it, the
page first, and the slowest answer is told.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from node.model import times
from node.model.times import format_instant
from node.runtime.clock import SystemClock
from tests.bench.archives import RESULT
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet

SIZES = (1_000_000, 10_000_000)
"""Numbers of results."""
ASKED = 30
"""Number of times that each question is asked."""
HOURS = 365 * 24
_HOURS_AT_ONCE = 100
_TOO_WIDE = 422
"""A search for words that was ended, because it took too long."""

_TASKS = """
INSERT INTO task (
    id, lead, test, spec, scheduling_class, duration, participants, created_at, campaign, reference,
    schedule
)
SELECT
    gen_random_uuid(), node.identity, CASE number % 3 WHEN 0 THEN 'latency' ELSE 'rtt' END,
    jsonb_build_object('dest', format('n%s.example', number / 2)), 'background', interval '5 s',
    jsonb_build_array(
        jsonb_build_object(
            'node', node.identity, 'name', node.name, 'url', node.url, 'address', node.address
        )
    ),
    now() - interval '1 year', 'default',
    CASE
        WHEN number % 2 = 0
            THEN jsonb_build_object('mesh', 'big', 'key', format('delay/n%s/n%s', number, 1))
    END,
    '{"repeat": "PT1H"}'
FROM node, generate_series(0, $1::integer - 1) AS number
WHERE node.is_self
"""
_RUNS = """
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state,
    reason, started_at, finished_at, result, summary, judgement, created_at, changed_at
)
SELECT
    gen_random_uuid(), task.id, due.slot, 1, 0, 'background', 0, due.slot,
    due.slot + interval '5 s',
    CASE WHEN odds.failed THEN 'failed' ELSE 'finished' END::run_state,
    CASE WHEN odds.failed THEN 'ping: no route to host' END,
    due.slot, due.slot + interval '6 s',
    CASE WHEN NOT odds.failed THEN $3::jsonb END,
    CASE WHEN NOT odds.failed THEN '20.4 ms, loss 0 %' END,
    CASE WHEN odds.failed THEN 'failed' ELSE 'good' END,
    due.slot, due.slot + interval '6 s'
FROM task
CROSS JOIN generate_series($1::integer, $2::integer - 1) AS hour
CROSS JOIN LATERAL (
    SELECT
        date_trunc('hour', now()) - (hour + 1) * interval '1 hour'
        + abs(hashtext(task.id::text)) % 3600 * interval '1 s' AS slot
) AS due
CROSS JOIN LATERAL (
    SELECT hashtext(task.id::text || due.slot) % 1000 = 0 AS failed
) AS odds
"""
_SIZE = "SELECT pg_total_relation_size('run')"


async def stored(fleet: Fleet) -> list[Figure]:
    """Measure ``stored_*``: the size of all runs, and the time of each question."""
    name, figures = fleet.names[0], list[Figure]()
    for size in SIZES:
        tasks = max(4, size // HOURS)
        await _fill(fleet, name, tasks)
        async with fleet.database(name) as database:
            size_gb = await database.fetchval(_SIZE) / 1e9
        how = f"{size:,} results of 1.5 kB: hourly for a year, of {tasks:,} tasks"
        figures.append(
            Figure(f"stored_{size}_gb", size_gb, "GB", f"runs with their indexes; {how}")
        )
        for kind, path in (await _questions(fleet, name)).items():
            slowest = await _slowest_ms(fleet, name, path)
            asked = f"GET {path.partition('?')[0]}, {kind}; the slowest of {ASKED}; {how}"
            figures.append(Figure(f"stored_{size}_{kind}_ms", slowest, "ms", asked))
        await fleet.cancel_all()
    return figures


async def _fill(fleet: Fleet, name: str, tasks: int) -> None:
    """Insert the tasks and a year of their results."""
    async with fleet.database(name) as database:
        await database.execute("SET session_replication_role = replica")  # with no triggers: faster
        await database.execute(_TASKS, tasks)
        for first in range(0, HOURS, _HOURS_AT_ONCE):
            await database.execute(_RUNS, first, min(HOURS, first + _HOURS_AT_ONCE), RESULT)
        await database.execute("VACUUM ANALYZE")


async def _questions(fleet: Fleet, name: str) -> Mapping[str, str]:
    """Return the path of each question, by what it asks for."""
    async with fleet.database(name) as database:
        task = await database.fetchval(
            "SELECT id FROM task WHERE reference ->> 'mesh' = 'big' LIMIT 1"
        )
        run = await database.fetchval("SELECT id FROM run WHERE task_id = $1 LIMIT 1", task)
    now = SystemClock().now()
    then = now - 180 * times.DAY
    hour = f"from={format_instant(then)}&to={format_instant(then + times.HOUR)}"
    return {
        "newest": "/v1/runs?limit=50",
        "hour": f"/v1/runs?{hour}&limit=500",
        "task": f"/v1/runs?task={task}&limit=200",
        "task_then": f"/v1/runs?task={task}&to={format_instant(then)}&limit=200",
        "task_hour": f"/v1/runs?task={task}&{hour}&order=asc",
        "over": "/v1/runs?state=finished,failed,missed,unplaced&order=desc&limit=30",
        "failed": "/v1/runs?state=failed&limit=50",
        "bad": "/v1/runs?outcome=bad&limit=50",
        "mesh": "/v1/runs?mesh=big&limit=50",
        "no_mesh": "/v1/runs?mesh=none&limit=50",
        "target": "/v1/runs?target=n1.example&limit=50",
        "no_target": "/v1/runs?target=none.example&limit=50",
        "test": "/v1/runs?test=latency&limit=50",
        "no_test": "/v1/runs?test=trace&limit=50",
        "words": "/v1/runs?q=route&limit=50",
        "no_words": "/v1/runs?q=nowhere&limit=50",
        "participant": "/v1/runs?participant=nobody&limit=50",
        "run": f"/v1/runs/{run}",
        "prefix": f"/v1/runs?prefix={str(run)[:8]}",
        "tasks": "/v1/tasks?limit=100",
        "outcomes": "/v1/outcomes",
        "mesh_pairs": "/v1/meshes/big/pairs",
        "matrix": "/v1/meshes/big/matrix",
        "meshes": "/v1/meshes/big",
        "status": "/v1/status",
    }


async def _slowest_ms(fleet: Fleet, name: str, path: str) -> float:
    """Return the slowest answer of all, without the first, which finds nothing in memory."""
    durations = []
    for _ in range(ASKED + 1):
        began = time.perf_counter()
        async with fleet.session.get(
            fleet.node(name).url + path, headers=fleet.authorization(name)
        ) as response:
            assert response.status in {200, _TOO_WIDE}, await response.text()
            await response.read()
        durations.append(time.perf_counter() - began)
    return max(durations[1:]) * 1000
