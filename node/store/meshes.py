"""The tasks of meshes led here, the outcomes of their slots, and the sums of these.

With a ``requester``, only the tasks that this user created count. Outcomes are read from sums by
task, day and cause, and slot by slot where these are not up to date or a span ends within an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.store.database import Connection
from node.store.queries import Queries

_SQL = Queries("node.store", "meshes")


@dataclass(frozen=True)
class MeshTaskCounts:
    """A mesh, and its number of tasks by state."""

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
    thresholds: Any = None
    """Thresholds of its reference, unchecked: anybody may post a task with any reference."""


@dataclass(frozen=True)
class LatestResult:
    """The latest result of a key."""

    test: str
    run: UUID
    ends_at: int
    summary: str | None
    verdict: str | None
    result: dict[str, Any]


@dataclass(frozen=True)
class SlotOutcome:
    """The number of slots with one outcome; only missing slots have a cause."""

    outcome: str
    state: str | None
    cause: str | None
    slots: int
    example: str | None


async def find_all(
    connection: Connection, name: str | None = None, *, requester: str | None = None
) -> list[MeshTaskCounts]:
    """Return all meshes, or the one of this name."""
    rows = await connection.fetch(_SQL["meshes"], name, requester)
    return [MeshTaskCounts(*row) for row in rows]


async def exists(connection: Connection, name: str, requester: str | None = None) -> bool:
    """Return whether a mesh of this name has a task."""
    exists: bool = await connection.fetchval(_SQL["has_mesh"], name, requester)
    return exists


async def tasks(
    connection: Connection,
    mesh: str,
    after: tuple[str, int, UUID] | None,
    limit: int,
    requester: str | None = None,
) -> list[dict[str, Any]]:
    """Return a page of a mesh's tasks, those after this key, creation time, and task."""
    behind = after or (None, None, None)
    rows = await connection.fetch(_SQL["mesh_tasks"], mesh, *behind, limit, requester)
    return [dict(row) for row in rows]


async def keys(
    connection: Connection, mesh: str, after: str | None, limit: int, requester: str | None = None
) -> list[MeshKey]:
    """Return a page of the keys of a mesh."""
    rows = await connection.fetch(_SQL["mesh_keys"], mesh, after, limit, requester)
    return [MeshKey(*row) for row in rows]


async def worst_keys(
    connection: Connection,
    mesh: str,
    span: tuple[int, int],
    limit: int,
    requester: str | None = None,
) -> list[str]:
    """Return the keys with the smallest share of delivered slots in a span ``[since, until)``.

    Keys without missing slots are not among them.
    """
    rows = await connection.fetch(_SQL["worst_keys"], mesh, *span, limit, requester)
    return [str(row[0]) for row in rows]


async def newest_tasks(
    connection: Connection, mesh: str, keys: Sequence[str], requester: str | None = None
) -> dict[str, MeshKey]:
    """Return these keys of a mesh, each with its newest task."""
    rows = await connection.fetch(_SQL["newest_of_keys"], mesh, keys, requester)
    return {row[0]: MeshKey(*row) for row in rows}


async def latest_results(
    connection: Connection,
    mesh: str,
    keys: Sequence[str],
    before: int,
    requester: str | None = None,
) -> dict[str, LatestResult]:
    """Return by key the latest result of these keys of a mesh before an instant, if any."""
    rows = await connection.fetch(_SQL["latest_of_keys"], mesh, list(keys), before, requester)
    return {row[0]: LatestResult(*row[1:]) for row in map(tuple, rows)}


async def sum_up(connection: Connection, at_most: int) -> int:
    """Sum up hours that have changed, in a transaction; return how many changes that were.

    While another process does so, this one does nothing.
    """
    if not await connection.fetchval(_SQL["lock_sums"]):
        return 0
    taken: int = await connection.fetchval(_SQL["sum_up_hours"], at_most)
    return taken


async def outcomes(
    connection: Connection, mesh: str, since: int, until: int, requester: str | None = None
) -> list[SlotOutcome]:
    """Return the outcomes of all slots of a mesh in ``[since, until)``."""
    rows = await connection.fetch(_SQL["mesh_outcomes"], mesh, since, until, requester)
    return [SlotOutcome(*row) for row in rows]


async def outcomes_by_key(
    connection: Connection,
    mesh: str,
    span: tuple[int, int],
    keys: tuple[str, str],
    requester: str | None = None,
) -> dict[str, list[SlotOutcome]]:
    """Return the outcomes in a span ``[since, until)`` of the keys from one to another.

    Keys without slots are missing.
    """
    rows = await connection.fetch(_SQL["mesh_outcomes_of"], mesh, *span, *keys, requester)
    found: dict[str, list[SlotOutcome]] = {}
    for key, *row in rows:
        found.setdefault(key, []).append(SlotOutcome(*row))
    return found
