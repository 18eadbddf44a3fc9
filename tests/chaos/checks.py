"""The invariants, checked in the tables of all nodes.

The tables of all nodes are copied side by side into one database, where each invariant is a query
of ``chaos.sql`` whose name begins with ``checks_`` and which returns the violations.
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
"""Time for a node to notice a lost run (30 s after its end) and for its lead to give up."""

CHECKS = tuple(name for name in SQL if name.startswith("checks_"))
Connection = Any  # asyncpg's stubs type records such that copy_records_to_table does not check


@dataclass(frozen=True, order=True)
class Violation:
    """A row that violates an invariant."""

    check: str
    node: str
    id: str
    what: str = field(compare=False)


@dataclass(frozen=True)
class Promises:
    """The answers that users got: ids of tasks or runs with the node that gave the answer."""

    posted: Mapping[str, str]
    ended_tasks: Mapping[str, str]
    ended_runs: Mapping[str, str]


@dataclass(frozen=True)
class Verdict:
    """The violations and some figures of a check."""

    violations: frozenset[Violation]
    figures: dict[str, int]


async def judge(
    nodes: Mapping[str, str], court: str, promises: Promises, hold_life_s: float
) -> Verdict:
    """Compare the nodes' tables (``nodes``: name to DSN) in ``court``, an empty database."""
    async with _connection(court) as connection:
        await connection.execute(SQL["verdict_tables"])
        now = datetime.now(UTC)
        life = timedelta(seconds=hold_life_s)
        await connection.copy_records_to_table("round", records=[(now, life, GRACE)])
        copies = await asyncio.gather(*(_read(name, dsn) for name, dsn in nodes.items()))
        for tables in copies:
            for table, rows in tables.items():
                await connection.copy_records_to_table(table, records=rows)
        for table, promised in (
            ("promised", promises.posted),
            ("ended_task", promises.ended_tasks),
            ("ended_run", promises.ended_runs),
        ):
            rows = [(UUID(key), name) for key, name in promised.items()]
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
    """Return the tables of one node as of one instant."""
    async with (
        _connection(dsn) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        return {
            table: [(name, *row) for row in await connection.fetch(SQL[f"{table}s_here"])]
            for table in ("task", "run", "hold")
        }


@contextlib.asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()
