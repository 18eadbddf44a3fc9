"""``parley node compare`` with two real nodes: what differed, what was repaired, and errors."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lead.assembly import lead_of
from node.model import times
from node.service import NodeService
from node.store import readiness
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, Command, Served, know, served


@dataclass
class Pair:
    """Two nodes that know each other; the first has a user, and a lead that can be called."""

    a: Asker
    b: Served
    clock: ManualClock

    async def book(self, lead: NodeService, first: int) -> Any:
        """Have a node lead a task of both that runs twice; return its id."""
        document = {
            "test": {
                "type": "idle",
                "spec": {"duration": "PT30S", "participants": ["a", "b"]},
            },
            "schedule": {
                "start": times.format_instant(START + first * times.HOUR),
                "repeat": "PT30M",
                "max_runs": 2,
            },
        }
        status, task = await self.a.ask("POST", "/v1/tasks", document)
        assert (status, task["participants"][1]["accepted"]) == (201, True), task
        planning = lead_of(lead, owner="worker", rng=random.Random(1))
        await planning.workers.run_once()
        await asyncio.gather(*planning.workers._busy)
        self.clock.advance(5 * times.MINUTE)
        return task["id"]

    async def show_lead(self) -> None:
        """Write that a process plans what a leads."""
        async with self.a.node.database.connection() as connection:
            await readiness.keep_lead(connection, "worker", self.clock.now(), 0)


@pytest.fixture
async def pair(
    a: Asker, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Serve a and b, which know each other."""
    async with served("b", await new_database(), clock, tmp_path / "b") as b:
        await know(a.node, b)
        await know(b, a.node)
        yield Pair(a, b, clock)


async def test_what_differs_is_told_and_repaired(ask: Command, pair: Pair) -> None:
    """A run and a task that only one side has are listed and repaired; then nothing differs."""
    kept, lost = await pair.book(pair.a.node, 1), await pair.book(pair.a.node, 3)
    await pair.show_lead()
    nothing = await ask("node", "compare", "b", "-o", "table")
    assert nothing.out == "nothing differs: 2 tasks, 4 runs compared\n"
    async with pair.b.database.connection() as connection:
        await connection.execute("DELETE FROM task WHERE id = $1", lost)
        await connection.execute(
            "DELETE FROM run WHERE id = (SELECT id FROM run WHERE task_id = $1 LIMIT 1)", kept
        )
    ended = await ask("node", "compare", "b", "-o", "table")
    assert ended.code == 0
    *rows, summary = ended.out.splitlines()[1:]
    assert summary == "4 differences repaired: 2 tasks, 4 runs compared"
    assert sum(lost in row for row in rows) == 3
    assert sum("b does not know it" in row and "told again" in row for row in rows) == 1
    taken_back = [row for row in rows if "b does not have it any more" in row]
    assert len(taken_back) == 3
    assert all("to be placed again" in row for row in taken_back)
    await pair.a.node.outbox.run_once()
    async with pair.b.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM task") == 2


async def test_tasks_that_the_other_node_leads_are_compared(ask: Command, pair: Pair) -> None:
    """A comparison covers the tasks that the other node leads, too; it is shown as JSON."""
    task = await pair.book(pair.a.node, 1)
    # The same nodes, seen from b: a's users ask a to compare what b leads.
    for node in (pair.a.node, pair.b):
        async with node.database.connection() as connection:
            await connection.execute(
                "UPDATE task SET lead = $1, participants = jsonb_set(participants,"
                " '{0,accepted}', 'true')",
                pair.b.card.identity,
            )
    async with pair.a.node.database.connection() as connection:
        await connection.execute("DELETE FROM planning")
        await connection.execute("DELETE FROM run WHERE id = (SELECT id FROM run LIMIT 1)")
    told = json.loads((await ask("node", "compare", "b", "-o", "json")).out)
    assert told["led_here"] == {"tasks": 0, "runs": 0, "found": 0, "differences": []}
    there = told["led_there"]
    assert (there["tasks"], there["runs"], there["found"]) == (1, 2, 1)
    [found] = there["differences"]
    assert (found["task"], found["difference"]) == (task, "a does not have it any more")
    listed = await ask("node", "compare", "b", "-o", "csv")
    assert listed.out.splitlines()[0] == "lead,task,run,difference,repair"


async def test_errors_are_plain(ask: Command, pair: Pair) -> None:
    """An unknown node, this node itself, no lead, and a node that does not answer are told."""
    unknown = await ask("node", "compare", "x")
    assert (unknown.code, "no other node named x is known here" in unknown.err) == (6, True)
    assert (await ask("node", "compare", "a")).code == 6
    await pair.book(pair.a.node, 1)
    alone = await ask("node", "compare", "b")
    assert (alone.code, "start parley-lead" in alone.err) == (8, True)
    await pair.show_lead()
    await know(pair.a.node)
    async with pair.a.node.database.connection() as connection:
        await connection.execute("UPDATE node SET url = 'http://127.0.0.1:9' WHERE name = 'b'")
    await pair.a.node.directory.refresh()
    away = await ask("node", "compare", "b")
    assert (away.code, "b cannot be reached" in away.err) == (5, True)
