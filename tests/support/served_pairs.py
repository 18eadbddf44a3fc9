"""Two served nodes that know each other: a, which has a user and can plan, and b."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from lead.assembly.lead import Lead
from lead.assembly.with_node import lead_of
from node.model import times
from node.store import readiness
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, Served, know


@dataclass
class Pair:
    """Node a, its lead, and node b; no loop of theirs runs."""

    a: Asker
    b: Served
    lead: Lead
    clock: ManualClock

    async def create(self, first: int) -> str:
        """Have a lead a task of both that runs twice, so many hours later; return its id."""
        document = {
            "test": {"type": "idle", "spec": {"duration": "PT30S", "participants": ["a", "b"]}},
            "schedule": {
                "start": times.format_instant(START + first * times.HOUR),
                "repeat": "PT30M",
                "max_runs": 2,
            },
        }
        status, task = await self.a.ask("POST", "/v1/tasks", document)
        assert (status, task["participants"][1]["accepted"]) == (201, True), task
        return str(task["id"])

    async def plan(self) -> None:
        """Plan what is due at a."""
        await self.lead.workers.run_once()
        await asyncio.gather(*self.lead.workers._busy)

    async def book(self, first: int) -> str:
        """Create such a task, and have it booked for minutes; return its id."""
        task = await self.create(first)
        await self.plan()
        self.clock.advance(5 * times.MINUTE)
        return task

    async def show_lead(self) -> None:
        """Write that a process plans what a leads."""
        async with self.a.node.database.connection() as connection:
            await readiness.keep_lead(connection, "worker", self.clock.now(), 0)

    async def at_b(self, query: str, *values: Any) -> list[Any]:
        """Return rows of the tables of b, or execute a statement."""
        async with self.b.database.connection() as connection:
            return list(await connection.fetch(query, *values))


async def paired(a: Asker, b: Served, clock: ManualClock) -> Pair:
    """Make the two nodes known to each other, and return them with a lead for the first one."""
    await know(a.node, b)
    await know(b, a.node)
    return Pair(a, b, lead_of(a.node, owner="worker", rng=random.Random(1)), clock)
