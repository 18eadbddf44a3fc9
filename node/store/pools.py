"""The pools that this node plans."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from node.model.errors import Conflict
from node.model.policysets import expanded
from node.store.database import BrokenReference, Connection
from node.store.statements import Query, Statements

_SQL = Statements("node.store", "pools")


@dataclass(frozen=True)
class StoredPool:
    """A stored pool; ``match`` is the document of its predicate."""

    name: str
    match: dict[str, Any]
    policy_set: str
    overrides: dict[str, Any]
    choice: str
    term: int
    patience: int
    description: str | None
    revision: int = 1
    created_at: int = 0
    changed_at: int = 0
    unseen: str | None = None
    """A sentence on what its policies could not see when they decided last."""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PoolMisses:
    """Runs of a campaign that are expected to start too late, or not at all, on a pool's nodes.

    ``first_at`` is the first of the latest starts that they miss.
    """

    pool: str
    campaign: str
    runs: int
    first_at: int


expected_misses: Query[[int], list[PoolMisses]] = _SQL.rows("expected_misses", PoolMisses)
"""The misses that the last forecasts expect, by pool and campaign."""

_find_rows: Query[[], list[StoredPool]] = _SQL.rows("pools", StoredPool)


async def find_all(connection: Connection) -> list[StoredPool]:
    """Return all pools, by name; earlier programs may have stored aliases of sets."""
    return [_with_set(pool) for pool in await _find_rows(connection)]


def _with_set(pool: StoredPool) -> StoredPool:
    recipe = expanded(pool.policy_set, pool.options)
    return replace(pool, policy_set=recipe.set, options=dict(recipe.options))


async def keep(connection: Connection, pool: StoredPool, now: int) -> bool:
    """Store a new pool; False if the name is taken."""
    return await connection.fetchval(_SQL["keep_pool"], *_column_values(pool), now) is not None


async def change(connection: Connection, pool: StoredPool, now: int, revision: int) -> bool:
    """Change a pool; False if it was changed since that revision was read."""
    kept = await connection.fetchval(_SQL["change_pool"], *_column_values(pool), now, revision)
    return kept is not None


def _column_values(pool: StoredPool) -> tuple[Any, ...]:
    return (
        *(pool.name, pool.match, pool.policy_set, pool.overrides),
        *(pool.choice, pool.term, pool.patience, pool.description, pool.options),
    )


async def tasks_asking(connection: Connection, name: str, most: int) -> tuple[list[UUID], int]:
    """Return the first open tasks that request nodes of a pool, and how many there are."""
    rows = await connection.fetch(_SQL["asking"], name, most)
    return [row[0] for row in rows], rows[0][1] if rows else 0


async def remove(connection: Connection, name: str) -> int | None:
    """Remove a pool, also from ended tasks, and return its last revision; None if there is none.

    :raises Conflict: a task has requested its nodes at the same moment.
    """
    try:
        revision: int | None = await connection.fetchval(_SQL["remove_pool"], name)
    except BrokenReference as error:
        msg = f"a task has just requested nodes of {name}; cancel that task first"
        raise Conflict(msg) from error
    return revision
