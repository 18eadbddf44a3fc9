"""``parley node compare`` with two real nodes: what differed, what was repaired, and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, Command, know, served
from tests.support.served_pairs import Pair, paired


@pytest.fixture
async def pair(
    a: Asker, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Serve a and b, which know each other."""
    async with served("b", await new_database(), clock, tmp_path / "b") as b:
        yield await paired(a, b, clock)


@pytest.mark.nightly
async def test_what_differs_is_told_and_repaired(ask: Command, pair: Pair) -> None:
    """A run and a task that only one side has are listed and repaired; then nothing differs."""
    kept, lost = await pair.book(1), await pair.book(3)
    await pair.show_lead()
    nothing = await ask("node", "compare", "b", "-o", "table")
    assert nothing.out == "nothing differs: 2 tasks, 4 runs compared\n"
    await pair.at_b("DELETE FROM task WHERE id = $1", lost)
    await pair.at_b(
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
    assert len(await pair.at_b("SELECT FROM task")) == 2


@pytest.mark.nightly
async def test_tasks_that_the_other_node_leads_are_compared(ask: Command, pair: Pair) -> None:
    """A comparison covers the tasks that the other node leads, too; it is shown as JSON."""
    task = await pair.book(1)
    swapped = (
        "UPDATE task SET lead = $1, participants = jsonb_set(participants, '{0,accepted}', 'true')"
    )
    await pair.at_b(swapped, pair.b.card.identity)
    await pair.a.rows(swapped, pair.b.card.identity)
    await pair.a.rows("DELETE FROM planning")
    await pair.a.rows("DELETE FROM run WHERE id = (SELECT id FROM run LIMIT 1)")
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
    await pair.book(1)
    alone = await ask("node", "compare", "b")
    assert (alone.code, "start parley-lead" in alone.err) == (8, True)
    await pair.show_lead()
    await know(pair.a.node)
    await pair.a.rows("UPDATE node SET url = 'http://127.0.0.1:9' WHERE name = 'b'")
    await pair.a.node.directory.refresh()
    away = await ask("node", "compare", "b")
    assert (away.code, "b cannot be reached" in away.err) == (5, True)
