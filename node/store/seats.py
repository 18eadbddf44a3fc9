"""Pool tasks led here: what they ask for, their terms, and who has their seats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection, Queries, Record

_SQL = Queries("node.store", "seats")


@dataclass(frozen=True)
class GoingOn:
    """With which slot the next term begins, when it is due, and how many rounds are left.

    No ``next_slot``: there are no more terms. No ``rounds_left``: as many as there are slots.
    """

    next_slot: int | None
    due_at: int | None
    rounds_left: int | None = None


async def keep(
    connection: Connection, task: UUID, pool: str, request: dict[str, Any], on: GoingOn
) -> bool:
    """Make a task a pool task; False if the pool is not there (any more)."""
    kept = await connection.fetchval(
        _SQL["keep_pool_task"], task, pool, request, on.next_slot, on.due_at, on.rounds_left
    )
    return kept is not None


async def request_of(connection: Connection, task: UUID) -> dict[str, Any] | None:
    """What a pool task asks of its pool; None if it is none."""
    found: dict[str, Any] | None = await connection.fetchval(_SQL["request_of"], task)
    return found


async def change(
    connection: Connection, task: UUID, pool: str, request: dict[str, Any], on: GoingOn
) -> bool:
    """What it asks for from now on; False if the pool is not there (any more)."""
    kept = await connection.fetchval(
        _SQL["change_pool_task"], task, pool, request, on.next_slot, on.due_at, on.rounds_left
    )
    return kept is not None


async def tasks_of(connection: Connection, task: UUID) -> list[UUID]:
    """The ordinary tasks that have its seats and are not over."""
    return [row[0] for row in await connection.fetch(_SQL["seat_tasks"], task)]


async def listed(connection: Connection, task: UUID, since: int) -> list[Record]:
    """Its seats in the terms that are not over by then, for people."""
    rows: list[Record] = await connection.fetch(_SQL["seats"], task, since)
    return rows
