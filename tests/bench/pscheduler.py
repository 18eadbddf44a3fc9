"""The speed of the façade: a conversation of the command line, a list for psConfig's agent."""

from __future__ import annotations

import statistics
import time
from uuid import UUID

from node.runtime.clock import SystemClock
from tests.bench.figures import Figure
from tests.bench.fleet import Fleet, facade_of
from tests.support.pscheduler.agent import Agent
from tests.support.pscheduler.command import CommandLine

TASKS, RUNS = 5_000, 24
ROUNDS, CONVERSATIONS = 5, 10

_COPIES = """
WITH made AS (
    INSERT INTO task (
        id, lead, test, spec, tool, scheduling_class, duration, participants, participant,
        addresses, schedule, campaign, reference, requester, created_at
    )
    SELECT
        gen_random_uuid(), lead, test, spec, tool, scheduling_class, duration, participants,
        participant, addresses, schedule, campaign, reference, requester, created_at
    FROM task CROSS JOIN generate_series(2, $2::integer)
    WHERE id = $1
    RETURNING id
)

INSERT INTO pscheduler_task (task_id, document, secret, detail, participant, requester)
SELECT made.id, posted.document, posted.secret, posted.detail, posted.participant, posted.requester
FROM made CROSS JOIN pscheduler_task AS posted
WHERE posted.task_id = $1
"""
_RUNS = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, created_at,
    changed_at, started_at, finished_at
)
SELECT
    gen_random_uuid(), task.id, at, 1, 'background', 0, at, at + interval '3 s', 'finished', at, at,
    at, at
FROM task
CROSS JOIN generate_series(now() - $1::integer * interval '1 hour', now(), interval '1 hour') AS at
ON CONFLICT DO NOTHING
"""


async def conversations(fleet: Fleet) -> list[Figure]:
    """Measure ``pscheduler_task_ms`` and ``pscheduler_list_s``."""
    name = fleet.names[0]
    host = facade_of(fleet.node(name).url)
    await fleet.start_lead(name)
    answered, placed = [], []
    for _ in range(CONVERSATIONS):
        command = CommandLine(host)
        await command.task("idle", "--duration", "PT1S")
        waits = ("runs/first", "wait")
        answered.append(
            1e3 * sum(took for asked, took in command.took if not asked.endswith(waits))
        )
        placed.append(1e3 * max(took for asked, took in command.took if asked.endswith(waits[:1])))
    agent, now = Agent(host), SystemClock().now()
    archive = {"archiver": "http", "data": {"_url": "https://archive.example/", "op": "post"}}
    task = agent.task("rtt", {"dest": "192.0.2.7", "count": 10}, now, archives=[archive])
    [url] = (await agent.run([task])).added
    await fleet.end_lead(name)
    async with fleet.database(name) as database:
        await database.execute("SET session_replication_role = replica")  # with no triggers: faster
        await database.execute(_COPIES, UUID(url.rpartition("/")[2]), TASKS)
        await database.execute(_RUNS, RUNS)
        await database.execute("VACUUM ANALYZE")
    listed = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        found = await agent.mine()
        listed.append(time.monotonic() - began)
        assert len(found) == TASKS
    figures = f"median of {CONVERSATIONS}; TLS with a connection for each request"
    tasks = f"{TASKS} tasks with detail, {RUNS} runs each; median of {ROUNDS}"
    return [
        Figure("pscheduler_task_ms", statistics.median(answered), "ms", f"all answers; {figures}"),
        Figure("pscheduler_first_ms", statistics.median(placed), "ms", f"runs/first; {figures}"),
        Figure(
            "pscheduler_list_s",
            statistics.median(listed),
            "s",
            f"{tasks}, {max(listed):.2f} at most",
        ),
    ]
