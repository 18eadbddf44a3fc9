"""The invariants, asked of the tables of all nodes.

What every node has is copied side by side into a database of our own, where each invariant is one
query of ``chaos.sql`` whose name begins with ``checks_``: it finds those that break it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from tests.chaos.queries import SQL

GRACE = timedelta(seconds=45)
"""A node that lost track of a run notices 30 s after its end; its lead gives up after that."""

CHECKS = tuple(name for name in SQL if name.startswith("checks_"))
Connection = Any  # asyncpg's own type has no copy of records with its stubs' generics


@dataclass(frozen=True, order=True)
class Violation:
    """One row that breaks an invariant."""

    check: str
    node: str
    id: str
    what: str = field(compare=False)


@dataclass(frozen=True)
class Promises:
    """What the nodes have said to users: ids of tasks or runs, each with the node that said it."""

    posted: Mapping[str, str]
    ended_tasks: Mapping[str, str]
    ended_runs: Mapping[str, str]


@dataclass(frozen=True)
class Verdict:
    """What was found."""

    violations: frozenset[Violation]
    figures: dict[str, int]


async def judge(
    nodes: Mapping[str, str], court: str, promises: Promises, hold_life_s: float
) -> Verdict:
    """Compare what the nodes (name to DSN) have; ``court`` is an empty database to do it in."""
    async with _connected(court) as connection:
        await connection.execute(SQL["verdict_tables"])
        now = datetime.now(UTC)
        life = timedelta(seconds=hold_life_s)
        await connection.copy_records_to_table("round", records=[(now, life, GRACE)])
        copied = await asyncio.gather(*(_read(name, dsn) for name, dsn in nodes.items()))
        for tables in copied:
            for table, rows in tables.items():
                await connection.copy_records_to_table(table, records=rows)
        for table, said in (
            ("promised", promises.posted),
            ("ended_task", promises.ended_tasks),
            ("ended_run", promises.ended_runs),
        ):
            rows = [(UUID(key), name) for key, name in said.items()]
            await connection.copy_records_to_table(table, records=rows)
        await connection.execute(SQL["verdict_ready"])
        violations = [
            Violation(check.removeprefix("checks_"), row[0], str(row[1]), row[2])
            for check in CHECKS
            for row in await connection.fetch(SQL[check])
        ]
        figures = {row[0]: row[1] for row in await connection.fetch(SQL["figures"])}
    return Verdict(frozenset(violations), figures)


async def _read(name: str, dsn: str) -> dict[str, Sequence[tuple[object, ...]]]:
    """What one node has, at one instant."""
    async with (
        _connected(dsn) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        return {
            table: [(name, *row) for row in await connection.fetch(SQL[f"{table}s_here"])]
            for table in ("task", "run", "hold")
        }


@contextlib.asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()
