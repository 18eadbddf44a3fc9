"""The bookings that count toward the limits of campaigns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from node.store.database import Connection
from node.store.statements import Query, Statements

_SQL = Statements("lead.store", "limits")


@dataclass(frozen=True)
class BookedTime:
    """A booked run of a campaign, on these nodes (identities); instants in microseconds."""

    task_id: UUID
    campaign: str
    starts_at: int
    ends_at: int
    scheduling_class: str
    nodes: Sequence[str]


async def booked_times(
    connection: Connection, campaigns: Collection[str], since: int, until: int
) -> list[BookedTime]:
    """Return the booked runs of these campaigns in this period, by start."""
    rows = await connection.fetch(_SQL["counted"], sorted(campaigns), since, until)
    return [BookedTime(**row) for row in rows]


is_contested: Query[[str, Sequence[str], int], bool] = _SQL.value("is_contested")
"""Return whether another campaign has a run that waits for time on one of these nodes."""


async def lock_campaigns(connection: Connection, campaigns: Collection[str]) -> None:
    """Lock campaigns, so that decisions of each are made one after the other."""
    await connection.execute(_SQL["lock_campaigns"], sorted(campaigns))


async def wake_tasks(
    connection: Connection, campaigns: Collection[str], now: int, limit: int
) -> list[UUID]:
    """Make tasks that wait for room in these campaigns, or below them, due now; return them.

    They are at most ``limit``, those whose runs come soonest.
    """
    rows = await connection.fetch(_SQL["wake_tasks"], sorted(campaigns), now, limit)
    return [row[0] for row in rows]


async def wake_terms(connection: Connection, campaigns: Collection[str], now: int) -> list[UUID]:
    """Make the terms that wait for room there due now; return their pool tasks."""
    rows = await connection.fetch(_SQL["wake_terms"], sorted(campaigns), now)
    return [row[0] for row in rows]
