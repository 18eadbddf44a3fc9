"""The cost of a long agenda: claiming out of a million tasks, keeping ten thousand planned."""

from __future__ import annotations

import statistics
import time
from uuid import uuid4

from lead.store import planning
from node.model import times
from node.runtime.clock import SystemClock
from node.store.database import Database, PostgresDatabase
from tests.bench.booking import idle
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, cpu_seconds

CLAIMED = 50
SIZES = (1_000, 1_000_000)
REPEATS = 15
KEPT_TASKS = 10_000
WATCHED_S = 60.0

# Tasks as a lead keeps them: every five minutes, planned for the next 21 to 24 hours, and to be
# planned again when three hours of that have passed.
_TASKS = """
    INSERT INTO task (
        id, lead, state, test, spec, tool, scheduling_class, duration, participants, participant,
        schedule, created_at
    )
    SELECT
        gen_random_uuid(), (SELECT identity FROM node WHERE is_self), 'active', 'idle', $2::jsonb,
        'sleep', 'background', '1 s', $3::jsonb, 0, $4::jsonb, now() - interval '1 day'
    FROM generate_series(1, $1::integer)
"""
_AGENDA = """
    INSERT INTO planning (task_id, campaign_id, added_at, next_run_at, plan_at, planned_to)
    SELECT
        id, 1, created_at, at + interval '21 hours' + interval '5 min', at, at + interval '21 hours'
    FROM (
        SELECT id, created_at, now() - interval '1 s' + (
            row_number() OVER (ORDER BY id) * (interval '3 hours' / count(*) OVER ())
        ) AS at
        FROM task
    ) AS task
"""
_COLUMNS = """
    SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
    WHERE table_name = 'task' AND table_schema = 'public' AND column_name <> 'id'
        AND is_generated = 'NEVER'
"""
_BOOKED = "SELECT count(*) FROM run WHERE state = 'booked'"


async def claims(fleet: Fleet) -> list[Figure]:
    """Measure ``claim_1m_over_1k`` and its two times."""
    name, clock = fleet.names[0], SystemClock()
    figures, medians = [], {}
    for size in SIZES:
        async with fleet.database(name) as connection:
            await connection.execute("TRUNCATE task CASCADE")
            await connection.execute(_TASKS, size, "{}", "[]", "{}")
            await connection.execute(_AGENDA)
            await connection.execute("VACUUM ANALYZE")
        database = PostgresDatabase(fleet.node(name).dsn)
        await database.open()
        medians[size] = await _time_claims(database, clock.now() + 4 * times.HOUR)
        await database.close()
        how = f"{CLAIMED} tasks claimed out of {size:,} that are due; median of {REPEATS}"
        figures.append(Figure(f"claim_{size}_ms", medians[size], "ms", how))
    ratio = medians[SIZES[-1]] / medians[SIZES[0]]
    return [*figures, Figure("claim_1m_over_1k", ratio, "", "of these times, last over first")]


async def _time_claims(database: Database, now: int) -> float:
    durations = []
    for number in range(REPEATS + 3):
        async with database.transaction() as connection:
            lease = planning.LeaseRequest(f"bench {number}", now, now + times.HOUR)
            started_at = time.perf_counter()
            claims = await planning.claim(connection, lease, now + times.DAY, CLAIMED)
            durations.append((time.perf_counter() - started_at) * 1000)
        assert len(claims) == CLAIMED
    return statistics.median(durations[3:])


async def core_share(fleet: Fleet) -> list[Figure]:
    """Measure ``lead_core_share_10k_tasks``."""
    lead, clock = fleet.names[0], SystemClock()
    task = await fleet.ask(lead, "POST", "/v1/tasks", idle(fleet.names, {"repeat": "PT5M"}))
    ids = [uuid4() for _ in range(KEPT_TASKS)]
    for name in fleet.names:
        async with fleet.database(name) as connection:
            columns = await connection.fetchval(_COLUMNS)
            statement = f"INSERT INTO task (id, {columns}) SELECT copy, {columns} FROM task, "
            await connection.execute(statement + "unnest($1::uuid []) AS copy", ids)
            await connection.execute("DELETE FROM task WHERE id = $1::text::uuid", task["id"])
    async with fleet.database(lead) as connection:
        await connection.execute(_AGENDA)
        await connection.execute("VACUUM ANALYZE")
    process = await fleet.start_lead(lead)
    await fleet.until(lambda: _some(fleet, lead))
    cpu_before, started_at = cpu_seconds(process.pid), time.perf_counter()
    runs = await fleet.value(lead, _BOOKED)
    await clock.sleep(WATCHED_S)
    share = (cpu_seconds(process.pid) - cpu_before) / (time.perf_counter() - started_at) * 100
    booked = (await fleet.value(lead, _BOOKED) - runs) / WATCHED_S
    await fleet.end_lead(lead)
    expected = KEPT_TASKS * times.DAY / (5 * times.MINUTE) / (times.DAY / times.SECOND)
    assert booked > expected * 0.8, booked
    how = (
        f"CPU time of the lead over {WATCHED_S:.0f} s in which it kept {KEPT_TASKS} tasks every "
        f"5 min on two nodes planned for 21 to 24 h: {booked:.1f} runs booked a second, "
        f"{expected:.1f} fall due"
    )
    return [Figure("lead_core_share_10k_tasks", share, "%", how)]


async def _some(fleet: Fleet, name: str) -> bool:
    return bool(await fleet.value(name, _BOOKED))
