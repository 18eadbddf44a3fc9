"""The run tables of all nodes after all other tests. Runs last."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.acceptance.conftest import HOLD_LIFE_S
from tests.acceptance.outsider import Outsider

_TRIES = 5

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

Row = dict[str, Any]

# A run occupies its range while it is booked, and until its part was over once it is measured.
OVERLAPS = """
WITH occupied AS (
    SELECT
        run.id, run.scheduling_class, run.state,
        tstzrange(run.starts_at, CASE
            WHEN run.state IN ('booked', 'running') THEN run.ends_at
            ELSE greatest(run.starts_at, least(run.ends_at, part.finished_at))
        END) AS during
    FROM run
    LEFT JOIN part ON part.run_id = run.id AND part.participant = run.participant
    WHERE
        run.participant IS NOT NULL
        AND (run.state IN ('booked', 'running') OR part.started_at IS NOT NULL)
)
SELECT one.id, other.id AS other
FROM occupied AS one
INNER JOIN occupied AS other ON one.id < other.id AND one.during && other.during
WHERE
    one.scheduling_class = 'exclusive' AND other.scheduling_class IN ('exclusive', 'normal')
    OR one.scheduling_class = 'normal' AND other.scheduling_class = 'exclusive'
"""
RUNS = """
SELECT
    run.id, run.state::text, run.starts_at, run.ends_at, run.slot, run.attempt, run.participant,
    task.participants, exchange.state::text AS exchange
FROM run
INNER JOIN task ON run.task_id = task.id
LEFT JOIN exchange ON run.exchange_id = exchange.id
"""
WITHOUT_REASON = """
SELECT run_id, state FROM run_known
WHERE state IN ('waiting', 'failed', 'missed', 'cancelled', 'displaced', 'unplaced')
AND coalesce(reason, '') = ''
"""
OLD_HOLDS = """
SELECT id, held_at FROM exchange
WHERE state = 'held' AND held_at < now() - make_interval(secs => $1)
"""
UNDECIDED = "SELECT id FROM negotiation WHERE state = 'open' AND expires_at < now()"
# An end that is told again, once no message of whoever planned the task can arrive, is for later.
UNSAID = "SELECT kind, message, last_error FROM outbox WHERE attempts > 0 OR next_at <= now()"
VIEWS = ("run_now", "run_upcoming", "run_missed", "run_history", "node_occupancy", "decision_trace")


async def _measure(nodes: list[Outsider]) -> None:
    """Measure once; a run that a busy host starts too late fails, and another one is tried."""
    reasons = []
    for _ in range(_TRIES):
        run = await nodes[0].over(await nodes[0].run(await nodes[0].create("idle", *nodes)))
        if run["state"] == "finished":
            return
        reasons.append(run["reason"])
    raise AssertionError(reasons)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tables(nodes: list[Outsider]) -> AsyncIterator[dict[str, asyncpg.Connection]]:
    """Connect to every node's database, with at least one measured and one cancelled run."""
    _, b, c = nodes
    cancelled = await b.create("idle", b, c, spec={"duration": "PT1H"})
    await _measure(nodes)
    await b.cancel(cancelled)
    opened = {node.name: await asyncpg.connect(node.dsn) for node in nodes}
    yield opened
    for connection in opened.values():
        await connection.close()


async def rows(connection: asyncpg.Connection, query: str, *values: object) -> list[Row]:
    """Return the rows of a query."""
    return [dict(row) for row in await connection.fetch(query, *values)]


async def soon_none(connection: asyncpg.Connection, query: str, *values: object) -> None:
    """Assert that a query finds nothing, now or within twice the life of a hold and a bit."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 2 * HOLD_LIFE_S + 5
    nothing = asyncio.Event()
    while remaining := await rows(connection, query, *values):
        assert loop.time() < deadline, remaining
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(nothing.wait(), 0.2)


async def test_no_forbidden_overlap(tables: dict[str, asyncpg.Connection]) -> None:
    """No exclusive run shares its time with an exclusive or a normal one on any node."""
    for connection in tables.values():
        assert await rows(connection, OVERLAPS) == []


async def test_all_participants_have_a_run(tables: dict[str, asyncpg.Connection]) -> None:
    """A run that is booked or measured on one participant is on all, with the same range."""
    for connection in tables.values():
        await soon_none(connection, UNSAID)
    known: dict[object, dict[str, Row]] = defaultdict(dict)
    for name, connection in tables.items():
        for row in await rows(connection, RUNS):
            known[row["id"]][name] = row
    checked = 0
    for by_node in known.values():
        live = [
            row
            for row in by_node.values()
            if row["state"] in {"booked", "running", "merging", "finished"}
            and row["exchange"] != "held"
        ]
        if not live:
            continue
        checked += 1
        # Hosts of other schedulers, which tests of this lab add, have no tables.
        participants = {p["name"] for p in json.loads(live[0]["participants"])} & tables.keys()
        there = {name for name, row in by_node.items() if row["participant"] is not None}
        assert there == participants, by_node
        fields = ("starts_at", "ends_at", "slot", "attempt")
        assert len({tuple(row[f] for f in fields) for row in by_node.values()}) == 1, by_node
        booked = {row["state"] == "booked" for row in by_node.values()}
        assert len(booked) == 1 or "running" in {row["state"] for row in by_node.values()}, by_node
    assert checked >= 1


async def test_no_old_hold(tables: dict[str, asyncpg.Connection]) -> None:
    """No hold is older than twice its life, and no exchange stays undecided."""
    for connection in tables.values():
        assert await rows(connection, OLD_HOLDS, 2.0 * HOLD_LIFE_S + 1) == []
        await soon_none(connection, UNDECIDED)


async def test_reasons(tables: dict[str, asyncpg.Connection]) -> None:
    """Every run that did not take place has a reason."""
    for connection in tables.values():
        assert await rows(connection, WITHOUT_REASON) == []
    assert any([await rows(each, "SELECT * FROM run_missed") for each in tables.values()])


async def test_views(tables: dict[str, asyncpg.Connection]) -> None:
    """The views can be read by the role for dashboards and have comments, but tables cannot."""
    for connection in tables.values():
        await connection.execute("SET ROLE parley_reader")
        try:
            for view in VIEWS:
                await rows(connection, f"SELECT * FROM {view} LIMIT 100")
                (comment,) = await rows(
                    connection, "SELECT obj_description($1::text::regclass)", view
                )
                assert comment["obj_description"].endswith((".", "say why."))
            for table in ("run", "task", "node", "access_token", "outbox"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetch(f"SELECT * FROM {table}")
        finally:
            await connection.execute("RESET ROLE")
    history = await asyncio.gather(
        *(rows(each, "SELECT * FROM run_history") for each in tables.values())
    )
    assert all(any(row["state"] == "finished" for row in of_node) for of_node in history)
