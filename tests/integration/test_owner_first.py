"""The tasks of a host's owner come before those of other nodes, whatever priorities these have."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lead.assembly.lead import Lead
from lead.assembly.with_node import lead_of
from node.model import times
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import RANKED_ALIKE, limit
from tests.support.served_nodes import Asker, asker, know

SLOT = START + 3 * times.HOUR


@dataclass
class Owners:
    """Two nodes that know each other, each with a user and a lead."""

    a: Asker
    b: Asker
    leads: tuple[Lead, Lead]

    async def book(self, who: Asker, priority: int, *nodes: str) -> tuple[str, str | None]:
        """Have a node lead an exclusive run in the only slot; return its state and reason there."""
        spec = {"duration": "PT30S", "class": "exclusive", "participants": list(nodes)}
        document = {
            "test": {"type": "idle", "spec": spec},
            "schedule": {"start": times.format_instant(SLOT), "slip": "PT0S"},
            "priority": priority,
        }
        status, task = await who.ask("POST", "/v1/tasks", document)
        assert status == 201, task
        lead = self.leads[(self.a, self.b).index(who)]
        await lead.workers.run_once()
        await asyncio.gather(*lead.workers._busy)
        for each in (self.a, self.b):
            await each.node.outbox.run_once()
        return await self.run(who)

    async def run(self, who: Asker) -> tuple[str, str | None]:
        """Return state and reason of the first run that a node leads."""
        identity = who.node.card.identity
        query = (
            "SELECT run.state::text, run.reason FROM run "
            "INNER JOIN task ON run.task_id = task.id WHERE task.lead = $1 ORDER BY run.attempt"
        )
        first, *_ = await who.rows(query, identity)
        return first[0], first[1]


@pytest.fixture
async def owners(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Owners]:
    """Return two nodes whose limits say nothing of ranks."""
    async with contextlib.AsyncExitStack() as stack:
        a, b = [
            await stack.enter_async_context(
                asker(name, await new_database(), clock, tmp_path / name)
            )
            for name in ("a", "b")
        ]
        clock.advance(times.HOUR)
        await know(a.node, b.node)
        await know(b.node, a.node)
        leads = [lead_of(it.node, owner="worker", rng=random.Random(1)) for it in (a, b)]
        yield Owners(a, b, (leads[0], leads[1]))


async def test_a_peer_does_not_displace_the_owner(owners: Owners) -> None:
    """A run of the owner's keeps its time, though that of another node has a higher priority."""
    assert await owners.book(owners.b, 0, "b") == ("booked", None)
    state, reason = await owners.book(owners.a, 1000, "a", "b")
    assert (state, "exclusive run that another node leads" in str(reason)) == ("waiting", True)
    assert await owners.run(owners.b) == ("booked", None)


@pytest.mark.nightly
async def test_the_owner_takes_time_back(owners: Owners) -> None:
    """A run of the owner's takes the only slot, though another node has booked it first."""
    assert await owners.book(owners.a, 1000, "a", "b") == ("booked", None)
    assert await owners.book(owners.b, 0, "b") == ("booked", None)
    state, reason = await owners.run(owners.a)
    assert state == "displaced"
    assert reason == "displaced by a run that the owner of the host puts first"


@pytest.mark.nightly
async def test_an_owner_may_let_others_rank_with_the_own(owners: Owners) -> None:
    """By a rule of this rank the priorities alone decide."""
    await limit(owners.b.node, RANKED_ALIKE)
    assert await owners.book(owners.b, 0, "b") == ("booked", None)
    assert await owners.book(owners.a, 1000, "a", "b") == ("booked", None)
    state, reason = await owners.run(owners.b)
    assert state == "displaced"
    assert str(reason).startswith("displaced by a run of higher priority (idle of task ")
