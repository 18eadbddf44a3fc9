"""The time that it takes to tell what a large mesh has delivered."""

from __future__ import annotations

import sys
import time

from node.execution import process
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet

TASKS = 84_000
HOURS = 24
SLOTS = TASKS * HOURS
ROUNDS = 3

_TASKS = """
INSERT INTO task (
    id, lead, test, spec, scheduling_class, duration, participants, created_at, campaign, reference
)
SELECT
    gen_random_uuid(), node.identity, 'latency', '{"dest": "192.0.2.1", "count": 10}', 'background',
    interval '5 s',
    jsonb_build_array(
        jsonb_build_object('node', node.identity, 'name', node.name, 'address', node.address)
    ),
    now(), 'default',
    jsonb_build_object('mesh', 'big', 'key', format('delay/n%s/n%s', number / 300, number % 300))
FROM node, generate_series(0, $1 - 1) AS number
WHERE node.is_self
"""
_RUNS = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at, finished_at
)
SELECT
    gen_random_uuid(), task.id, due.slot, 1, 'background', 0, due.slot, due.slot + interval '5 s',
    CASE WHEN odds.missing THEN 'missed' ELSE 'finished' END::run_state,
    CASE
        WHEN odds.missing
            THEN format(
                'n%s: restarted at %s', hashtext(task.id::text) % 9,
                to_char(due.slot, 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
            )
    END,
    due.slot, due.slot + interval '6 s', due.slot + interval '6 s'
FROM task
CROSS JOIN LATERAL (
    SELECT
        date_trunc('hour', now()) - $1::integer * interval '1 hour'
        + abs(hashtext(task.id::text)) % 3600 * interval '1 s' AS slot
) AS due
CROSS JOIN LATERAL (SELECT hashtext(task.id::text || due.slot) % 50 = 0 AS missing) AS odds
WHERE due.slot < now()
"""

_MARKS = """
INSERT INTO mesh_recount (task_id, hour)
SELECT task_id, date_bin('1 hour', slot, 'epoch') FROM run ORDER BY task_id, slot
"""


async def meshes(fleet: Fleet) -> list[Figure]:
    """Measure ``mesh_slots_summed``, ``mesh_status_s``, ``mesh_delivery_s``: two million slots."""
    name = fleet.names[0]
    node = fleet.node(name)
    async with fleet.database(name) as database:
        await database.execute("SET session_replication_role = replica")  # with no triggers: faster
        await database.execute(_TASKS, TASKS)
        for hour in range(HOURS + 1):
            await database.execute(_RUNS, hour)
        slots = await database.fetchval("SELECT count(*) FROM run")
        await database.execute("VACUUM ANALYZE")
        marked_at = time.monotonic()
        await database.execute(_MARKS)

        async def summed_up() -> bool:
            return not await database.fetchval("SELECT EXISTS (SELECT FROM mesh_recount)")

        await fleet.until(summed_up)
        summing = time.monotonic() - marked_at
        await database.execute("VACUUM ANALYZE")
    ask = ("--server", node.url, "--token", node.token)
    typed = [sys.executable, "-c", "from node.cli.main import main; main()", *ask]
    status, delivery = [], []
    for _ in range(ROUNDS):
        began = time.monotonic()
        answer = await fleet.ask(name, "GET", "/v1/meshes/big")
        delivery.append(time.monotonic() - began)
        assert answer["delivery"]["due"] > 0
        began = time.monotonic()
        done = await process.finish([*typed, "-o", "table", "mesh", "status", "big"], timeout_s=300)
        status.append(time.monotonic() - began)
        assert b"mesh big: " in done.stdout, done.stderr
    await fleet.cancel_all()
    how = f"of a mesh of {TASKS:,} hourly tasks, {slots:,} slots in 25 hours"
    return [
        Figure("mesh_slots_summed", slots / summing, "1/s", f"slots summed up by the node {how}"),
        Figure("mesh_status_s", sorted(status)[ROUNDS // 2], "s", f"parley mesh status {how}"),
        Figure("mesh_delivery_s", sorted(delivery)[ROUNDS // 2], "s", f"GET /v1/meshes/big {how}"),
    ]
