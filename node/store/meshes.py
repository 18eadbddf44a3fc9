"""The tasks of meshes led here, and what came of their runs; all of it only read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection, Queries

_SQL = Queries("node.store", "meshes")


@dataclass(frozen=True)
class MeshTaskCounts:
    """A mesh and how many tasks it has."""

    mesh: str
    tasks: dict[str, int]
    campaigns: list[str]
    created_at: int
    changed_at: int


@dataclass(frozen=True)
class MeshKey:
    """One key of a mesh, and its newest task."""

    key: str
    source: str
    dest: str
    test: str
    state: str


@dataclass(frozen=True)
class SlotOutcome:
    """So many slots came to this; the cause only of missing ones."""

    outcome: str
    state: str | None
    cause: str | None
    slots: int
    example: str | None


async def listed(connection: Connection, name: str | None = None) -> list[MeshTaskCounts]:
    """All of them, or the one of this name."""
    return [MeshTaskCounts(*row) for row in await connection.fetch(_SQL["meshes"], name)]


async def exists(connection: Connection, name: str) -> bool:
    """Whether a mesh of this name has a task."""
    found: bool = await connection.fetchval(_SQL["has_mesh"], name)
    return found


async def tasks(
    connection: Connection, mesh: str, after: tuple[str, int, UUID] | None, limit: int
) -> list[dict[str, Any]]:
    """A page of what there is, behind the task of this key, made then."""
    behind = after or (None, None, None)
    rows = await connection.fetch(_SQL["mesh_tasks"], mesh, *behind, limit)
    return [dict(row) for row in rows]


async def keys(connection: Connection, mesh: str, after: str | None, limit: int) -> list[MeshKey]:
    """A page of its keys."""
    return [MeshKey(*row) for row in await connection.fetch(_SQL["mesh_keys"], mesh, after, limit)]


async def outcomes(connection: Connection, mesh: str, since: int, until: int) -> list[SlotOutcome]:
    """What came of all its slots in ``[since, until)``."""
    rows = await connection.fetch(_SQL["mesh_outcomes"], mesh, since, until)
    return [SlotOutcome(*row) for row in rows]


async def outcomes_of(
    connection: Connection, mesh: str, since: int, until: int, first: str, last: str
) -> dict[str, list[SlotOutcome]]:
    """The same of the keys from ``first`` to ``last``; a key without any is not there."""
    rows = await connection.fetch(_SQL["mesh_outcomes_of"], mesh, since, until, first, last)
    found: dict[str, list[SlotOutcome]] = {}
    for key, *row in rows:
        found.setdefault(key, []).append(SlotOutcome(*row))
    return found
