"""Reads what fails of the tasks led here, and what is common to it."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from node.model.headline import direction, headline
from node.model.troubles import HostFacts, Newest, Troubles, sum_up
from node.model.wire.outcomes import FailingTask, JudgedOutcome
from node.store import nodes, outcomes
from node.store.database import Connection
from node.store.outcomes import TaskOutcome


async def read_troubles(
    connection: Connection, lead: str, now: int, only: Collection[UUID] | None = None
) -> Troubles:
    """Return what fails of the active tasks that this node, ``lead``, leads; of ``only`` these."""
    hosts = {
        each.name: HostFacts(each.address, each.unreachable_since)
        for each in await nodes.find_all(connection)
    }
    rows = await outcomes.find_all(connection, now)
    return sum_up([_newest(row, lead) for row in rows], hosts, only)


def _newest(row: TaskOutcome, lead: str) -> Newest:
    names = [str(each["name"]) for each in row.participants]
    source, dest = direction(names, row.spec)
    outcome = JudgedOutcome.told(row.judgement, row.code, row.reason, ended_at=row.slot, lead=lead)
    task = FailingTask(
        task=row.id,
        run=row.run,
        headline=headline(row.test, names, row.spec),
        since=row.since,
        outcome=outcome,
    )
    return Newest(task, source, dest, row.test, row.tool or row.test, lead, row.slot)
