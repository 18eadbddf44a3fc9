"""Signs of life of the processes that plan, and how long the oldest due task has waited."""

from __future__ import annotations

from typing import NamedTuple

from node.model.readiness import LEAD_SILENT
from node.store.database import Connection
from node.store.queries import Queries

_SQL = Queries("node.store", "readiness")


class PlanningFacts(NamedTuple):
    """The last sign of a lead, the number of leads, and since when the oldest task is due."""

    lead_seen_at: int | None
    leads: int
    due_at: int | None


async def keep_lead(connection: Connection, owner: str, now: int, forget_before: int) -> None:
    """Store that a process plans at ``now``, and forget those last heard before an instant.

    If no process was heard for :data:`LEAD_SILENT` or longer, store that as an absence.
    """
    await connection.execute(_SQL["keep_lead"], owner, now, forget_before, now - LEAD_SILENT)


async def facts(connection: Connection, heard_after: int, slots_before: int) -> PlanningFacts:
    """Return the facts; a lead counts if it was heard, and a task if its slot is that near."""
    row = await connection.fetchrow(_SQL["facts"], heard_after, slots_before)
    return PlanningFacts(*row) if row is not None else PlanningFacts(None, 0, None)


async def leads(connection: Connection, heard_after: int) -> bool:
    """Return whether a lead was heard after an instant, or nothing is led here."""
    return bool(await connection.fetchval(_SQL["leads"], heard_after))
