"""Lists of tasks and runs are filtered by what is measured, and for whom, with one query each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

import pytest
from asyncpg.pool import PoolConnectionProxy

from node.model.wire.campaigns import CampaignDocument
from node.store import runs
from node.store.database import PostgresDatabase
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.query_plans import reads_of
from tests.support.served_nodes import Asker, asker

FORWARD = "/v1/runs?order=asc&"
LAB, _, WAN = (UUID(f"00000000-0000-4000-8000-00000000000{last}") for last in "abc")
_LATER_RUNS = """
    INSERT INTO run (
        id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at,
        state, judgement, finished_at, created_at, changed_at
    )
    SELECT
        gen_random_uuid(), $1, at.slot, 1, 0, 'background-multi', 0, at.slot,
        at.slot + interval '1 s', 'finished', 'good', at.slot, at.slot, at.slot
    FROM
        generate_series(1, 5000) AS number,
        LATERAL (SELECT $2::timestamptz + number * interval '1 minute' AS slot) AS at
"""
_TASKS = """
    INSERT INTO task (
        id, lead, test, spec, scheduling_class, duration, participants, participant, schedule,
        created_at, campaign, reference, requester
    )
    SELECT
        each.id::uuid, node.identity, each.test, each.spec::jsonb, each.class::scheduling_class,
        interval '1 s', each.participants::jsonb, 0, '{}', $1, each.campaign,
        each.reference::jsonb, each.requester
    FROM
        node,
        (
            VALUES
            (
                '00000000-0000-4000-8000-00000000000a', 'rtt', '{"dest": "192.0.2.7"}',
                'background-multi', '[{"node": "x", "name": "a", "url": null, "address": "a"}]',
                NULL,
                '{"mesh": "lab"}', 'alice'
            ),
            (
                '00000000-0000-4000-8000-00000000000b', 'http', '{"url": "https://b.example/x"}',
                'background-multi', '[{"node": "x", "name": "a", "url": null, "address": "a"}]',
                'ops', '[1]', 'bob'
            ),
            (
                '00000000-0000-4000-8000-00000000000c', 'throughput', '{"dest": "b"}',
                'exclusive', '[{"node": "x", "name": "a", "url": null, "address": "a"},
                {"node": "y", "name": "b", "url": null, "address": "b"}]', 'ops',
                '{"mesh": "wan"}', 'alice'
            )
        ) AS each (id, test, spec, class, participants, campaign, reference, requester)
    WHERE node.is_self
"""
_RUNS = """
    INSERT INTO run (
        id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at,
        lane, state, result, verdict, finished_at, created_at, changed_at
    )
    SELECT
        gen_random_uuid(), task.id, $1, 1, 0, task.scheduling_class, 0, $1,
        $1::timestamptz + interval '1 s', int8range(NULL, NULL), 'finished', '{}',
        CASE task.test WHEN 'rtt' THEN 'clean' ELSE 'suspicious' END, $1, $1, $1
    FROM task
"""


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Serve a node with three tasks, each with a run."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        await client.node.campaigns.create(campaign())
        await client.rows(_TASKS, START)
        await client.rows(_RUNS, START)
        yield client


def campaign() -> CampaignDocument:
    """Return the campaign of some of the tasks."""
    return CampaignDocument(name="ops")


CASES: list[tuple[dict[str, str], set[str]]] = [
    ({"participant": "b"}, {"c"}),
    ({"participant": "a"}, {"a", "b", "c"}),
    ({"target": "192.0.2.7"}, {"a"}),
    ({"target": "https://b.example/x"}, {"b"}),
    ({"target": "b"}, {"c"}),
    ({"campaign": "ops"}, {"b", "c"}),
    ({"campaign": "default"}, {"a"}),
    ({"mesh": "lab"}, {"a"}),
    ({"class": "exclusive"}, {"c"}),
    ({"class": "exclusive,background-multi"}, {"a", "b", "c"}),
    ({"requester": "alice"}, {"a", "c"}),
    ({"q": "THROUGHPUT a → b"}, {"c"}),
    ({"q": "4000-8000-00000000000a"}, {"a"}),
    ({"q": "b.example/x http"}, {"b"}),
    ({"q": "lab alice"}, {"a"}),
    ({"q": "lab bob"}, set()),
    ({"requester": "alice", "campaign": "ops"}, {"c"}),
    ({"participant": "b", "mesh": "lab"}, set()),
]


@pytest.mark.nightly
async def test_tasks_and_runs_have_the_same_filters(a: Asker) -> None:
    """Each filter leaves the tasks that meet it, and their runs; several must all be met."""
    for filters, expected in CASES:
        for path, field in (("/v1/tasks?", "id"), ("/v1/runs?", "task"), (FORWARD, "task")):
            _, answer = await a.ask("GET", f"{path}{urlencode(filters)}")
            assert {item[field][-1] for item in answer["items"]} == expected, (path, filters)


ORDERS = {
    "sort=name": "bac",
    "sort=name&order=desc": "cab",
    "sort=mesh": "acb",
    "sort=state": "acb",
    "sort=next": "abc",
    "order=asc": "abc",
    "": "cba",
}


@pytest.mark.nightly
async def test_tasks_are_sorted_page_by_page(a: Asker) -> None:
    """Each order of tasks holds over all pages: by name, mesh, state, next run, and creation."""
    await a.rows("UPDATE task SET state = 'refused', reason = 'no' WHERE test = 'rtt'")
    await a.rows("UPDATE task SET state = 'paused' WHERE test = 'http'")
    for order, expected in ORDERS.items():
        found, cursor = "", ""
        while cursor is not None:
            path = f"/v1/tasks?limit=1&{order}" + (f"&cursor={quote(cursor)}" if cursor else "")
            _, answer = await a.ask("GET", path)
            found += "".join(item["id"][-1] for item in answer["items"])
            cursor = answer["next"]
        assert found == expected, order
    for wrong in ("sort=size", "sort=name,mesh", "sort=name&cursor=x", "sort=name&cursor=%00_x"):
        assert (await a.ask("GET", f"/v1/tasks?{wrong}"))[0] == 422, wrong


async def test_tasks_have_their_latest_result(a: Asker) -> None:
    """A task has its latest run with a result in one line; one without a result has none."""
    await a.rows(
        "UPDATE run SET summary = '20 ms' FROM task WHERE run.task_id = task.id AND test = 'rtt'"
    )
    _, answer = await a.ask("GET", "/v1/tasks")
    latest = {item["id"][-1]: item["latest"] for item in answer["items"]}
    assert latest["a"]["summary"] == "20 ms"
    assert latest["a"]["verdict"] == "clean"
    assert (latest["b"], latest["c"]) == (None, None)


async def test_runs_are_filtered_by_verdict(a: Asker) -> None:
    """Only runs with one of the verdicts are listed; an unknown verdict is refused."""
    _, clean = await a.ask("GET", "/v1/runs?verdict=clean")
    assert {item["task"][-1] for item in clean["items"]} == {"a"}
    _, both = await a.ask("GET", "/v1/runs?verdict=clean,suspicious")
    assert len(both["items"]) == 3
    for wrong in (
        "verdict=good",
        "class=fast",
        "target=",
        "participant=%00",
        "target=%C3%A4",
        "state=",
    ):
        assert (await a.ask("GET", f"/v1/runs?{wrong}"))[0] == 422, wrong


async def test_a_list_is_one_query(a: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows a page has, the database is asked for it once."""
    asked: list[str] = []
    connection = a.node.database.connection
    assert isinstance(a.node.database, PostgresDatabase)
    async with connection() as one:
        kind = type(one)
    fetch = kind.fetch

    async def counted(self: object, query: str, *values: object) -> object:
        asked.append(query)
        return await fetch(self, query, *values)  # type: ignore[arg-type]

    monkeypatch.setattr(kind, "fetch", counted)
    filtered = "/v1/runs?order=asc&mesh=lab&campaign=default"  # of which tasks is asked first
    for path, queries in (("/v1/tasks", 1), ("/v1/runs", 1), (filtered, 2)):
        asked.clear()
        status, answer = await a.ask("GET", path)
        assert (status, bool(answer["items"])) == (200, True)
        assert len(asked) == queries, (path, asked)


@pytest.mark.nightly
async def test_a_list_reads_no_history_of_other_tasks(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that ended before 5,000 of another task are found without reading those."""
    await a.rows(_LATER_RUNS, LAB, START)
    await a.rows("UPDATE run SET starts_at = starts_at - interval '1 day' WHERE task_id <> $1", LAB)
    await a.rows("VACUUM (ANALYZE) run")
    [(ended,)] = await a.rows("SELECT id FROM run WHERE task_id = $1", WAN)
    plans = await _explained(monkeypatch)
    for path, found in (
        (f"/v1/runs?task={WAN}", 1),
        ("/v1/runs?mesh=wan", 1),
        ("/v1/runs?test=throughput", 1),
        ("/v1/runs?target=b", 1),
        ("/v1/runs?mesh=none", 0),
        (f"/v1/runs?prefix={str(ended)[:13]}", 1),
        (f"/v1/runs?prefix={str(ended)[:7]}-", 0),
        ("/v1/runs?prefix=run", 0),
    ):
        plans.clear()
        _, answer = await a.ask("GET", path)
        assert len(answer["items"]) == found, path
        reads = [read for plan in plans for read in reads_of(plan)]
        assert not [read for read in reads if read[1] >= 100], path


async def _explained(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return a list to which the plan of each query is added before it is executed."""
    plans: list[dict[str, Any]] = []
    fetch = PoolConnectionProxy.fetch

    async def explained(self: Any, query: str, *values: object) -> object:
        if "FROM run" in query:
            [(plan,)] = await fetch(self, f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *values)
            plans.append(json.loads(plan)[0]["Plan"])
        return await fetch(self, query, *values)

    monkeypatch.setattr(PoolConnectionProxy, "fetch", explained)
    return plans


async def test_a_search_that_takes_too_long_is_ended(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node breaks off a search that takes too long, says what to do, and answers the next."""
    monkeypatch.setattr(runs, "SEARCH_S", 0.0)
    status, answer = await a.ask("GET", "/v1/runs?q=lab")
    assert (status, answer["type"]) == (422, "/problems/search-too-wide")
    assert "search in a shorter span (since, before)" in answer["detail"]
    status, answer = await a.ask("GET", "/v1/runs")
    assert (status, len(answer["items"])) == (200, 3)
