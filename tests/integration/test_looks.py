"""The looks of a node that knows more others than it looks at in a round."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.model import times
from node.model.looks import PARTNERS_EVERY, ROUND, ROUND_MAX
from node.model.wire.nodes import NodeCard
from node.store import nodes
from node.trust.keys import NodeKey
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.loopback import free_port
from tests.support.served_nodes import Asker, asker

MANY = 3 * ROUND_MAX


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node that knows many others, none of which is there."""
    async with asker("a", await new_database(), clock, tmp_path / "a") as a:
        port = free_port()
        async with a.node.database.transaction() as connection:
            for number in range(MANY):
                card = NodeCard(
                    identity=NodeKey.generate().identity,
                    name=f"n{number}",
                    url=f"http://127.0.1.{number}:{port}",
                    address="127.0.0.1",
                    attributes={},
                    lanes=1,
                )
                await nodes.keep(connection, card, clock.now())
        await a.node.directory.refresh()
        yield a


async def silent(a: Asker) -> set[str]:
    """Return the names of the nodes that are known not to answer."""
    rows = await a.rows("SELECT name FROM node WHERE unreachable_since IS NOT NULL")
    return {row[0] for row in rows}


async def share_task(a: Asker, name: str) -> None:
    """Store an open task that is shared with a node."""
    document = {
        "test": {"type": "idle", "spec": {"participants": ["a", name], "duration": "PT10S"}},
        "schedule": {"start": "2026-12-03T00:00:00Z"},
    }
    status, task = await a.ask("POST", "/v1/tasks", document)
    assert status == 201, task


@pytest.mark.nightly
async def test_a_large_fleet_is_looked_at_in_rounds(a: Asker, clock: ManualClock) -> None:
    """Each round has room for some; after as many rounds as it takes all have been looked at."""
    for number in range(1, 4):
        await a.node.peer_monitor.run_once()
        assert len(await silent(a)) == number * ROUND_MAX
        clock.advance(ROUND)


@pytest.mark.nightly
async def test_partners_are_looked_at_in_each_round(a: Asker, clock: ManualClock) -> None:
    """A node with which an open task is shared is looked at again in the next round."""
    for _ in range(3):
        await a.node.peer_monitor.run_once()
        clock.advance(ROUND)
    await share_task(a, "n7")
    clock.advance(PARTNERS_EVERY)
    async with a.node.database.connection() as connection:
        partners = set(await nodes.partners(connection))
    assert partners == {it.identity for it in a.node.directory.all if it.name in {"a", "n7"}}
    await a.rows("UPDATE node SET unreachable_since = NULL, last_error = NULL RETURNING 1")
    await a.node.directory.refresh()
    await a.node.peer_monitor.run_once()
    assert await silent(a) == {"n7"}
    clock.advance(10 * times.MINUTE)
    await a.node.peer_monitor.run_once()
    assert len(await silent(a)) == ROUND_MAX


async def test_only_leads_are_asked_about_tasks_in_a_large_fleet(a: Asker) -> None:
    """In a large fleet, whoever leads no open task here is not asked about its tasks."""
    assert await a.node.confirmer._asked() == []
    await share_task(a, "n3")
    assert await a.node.confirmer._asked() == []
    [[lead]] = await a.rows("SELECT identity FROM node WHERE name = 'n3'")
    await a.rows("UPDATE task SET lead = $1 RETURNING 1", lead)
    assert await a.node.confirmer._asked() == [lead]
