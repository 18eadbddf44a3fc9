"""The invariants, checked in the tables of all nodes and in the results that they delivered.

All of it is copied side by side into one database, where each invariant is a query that returns
the violations: those of simulated worlds (:mod:`lead.simulation.evidence`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from lead.simulation import evidence
from node.runtime import housekeeping
from tests.chaos.plan import HORIZON_H
from tests.chaos.queries import SQL

GRACE = timedelta(seconds=45)
"""Time for a node to notice a lost run (30 s after its end) and for its lead to give up."""

CHECKS = tuple(dict.fromkeys(evidence.name_of(name) for name in evidence.INVARIANTS))
"""The names of the invariants; one may be of every instant, and of the end."""
_PRECISION = timedelta(seconds=5)
"""Difference of clocks that are right, at most."""
_LOOK = timedelta(seconds=6)
"""Time after which who prepares a run knows that it was cancelled."""
_DELIVERY = timedelta(minutes=4)
"""Time for a message to be delivered once all is quiet."""
Span = tuple[str, datetime, datetime]
WrongClock = tuple[str, datetime, datetime, datetime]
Trouble = tuple[str, str, datetime, datetime]
Connection = Any  # asyncpg's stubs type records such that copy_records_to_table does not check


REPAIR = timedelta(seconds=housekeeping.CONFIRM_S) + GRACE
"""Time for a participant to ask the lead of a task whether it goes on."""


@dataclass(frozen=True)
class Times:
    """The times of a round that checks depend on."""

    hold_life: timedelta
    told: timedelta
    """Time without trouble within which everyone hears of a cancellation."""
    asking: timedelta
    """Time after the last fault for which participants may have tasks that their leads do not."""
    healed_at: datetime
    """The end of the last fault."""
    restored: Sequence[Span] = ()
    """By node, the instants between which its database was dumped and restored."""
    stepped: Sequence[WrongClock] = ()
    """By node, between which instants, as its clock told them, it was wrong; and the true end."""
    troubles: Sequence[Trouble] = ()
    """By two nodes, the instants between which they could not be sure to hear each other."""


@dataclass(frozen=True, order=True)
class Violation:
    """A row that violates an invariant."""

    check: str
    node: str
    id: str
    what: str = field(compare=False)


@dataclass(frozen=True)
class Acknowledged:
    """An answer that a user got: the node that gave it, and when the user had it."""

    node: str
    at: datetime


@dataclass(frozen=True)
class Promises:
    """The answers that users got about tasks and runs, by their ids."""

    posted: Mapping[str, Acknowledged]
    ended_tasks: Mapping[str, Acknowledged]
    ended_runs: Mapping[str, Acknowledged]


@dataclass(frozen=True)
class Verdict:
    """The violations and some figures of a check."""

    violations: frozenset[Violation]
    figures: dict[str, int]
    failures: dict[str, int]
    """The runs that were due and have no result, by their end."""


@dataclass(frozen=True)
class Evidence:
    """The DSN of a node's database, and the file with the results it delivered."""

    dsn: str
    results: Path


async def judge(
    nodes: Mapping[str, Evidence], scratch: str, promises: Promises, times: Times
) -> Verdict:
    """Compare the databases of the nodes, by name, and return what contradicts.

    The rows are copied into the database ``scratch``, whose content is lost.
    """
    async with _connection(scratch) as connection:
        await connection.execute(evidence.SQL["tables"])
        await connection.copy_records_to_table("round", records=[_round(times)])
        copies = await asyncio.gather(*(_read(name, each) for name, each in nodes.items()))
        for tables in copies:
            for table, rows in tables.items():
                await connection.copy_records_to_table(table, records=rows)
        for table, answers in (
            ("promised", promises.posted),
            ("ended_task", promises.ended_tasks),
            ("ended_run", promises.ended_runs),
        ):
            rows = [(UUID(key), each.node, each.at) for key, each in answers.items()]
            await connection.copy_records_to_table(table, records=rows)
        for table, spans in (
            ("restored", times.restored),
            ("stepped", times.stepped),
            ("trouble", times.troubles),
        ):
            await connection.copy_records_to_table(table, records=spans)
        await connection.execute(evidence.READY)
        violations = [
            Violation(evidence.name_of(invariant), row[0], str(row[1]), row[2])
            for invariant in evidence.INVARIANTS
            for row in await connection.fetch(evidence.SQL[invariant])
        ]
        figures = {row[0]: row[1] for row in await connection.fetch(SQL["figures"])}
        failures = {row[0]: row[1] for row in await connection.fetch(SQL["failures"])}
    return Verdict(frozenset(violations), figures, failures)


def _round(times: Times) -> tuple[object, ...]:
    """Return the row of ``round``: what the invariants depend on beside the rows of nodes."""
    now = datetime.now(UTC)
    return (
        now,
        now,
        _PRECISION,
        times.hold_life,
        timedelta(),
        GRACE,
        times.told,
        _DELIVERY,
        REPAIR,
        times.healed_at,
        times.asking,
        timedelta(hours=HORIZON_H),
        _LOOK,
        datetime.min.replace(tzinfo=UTC),
    )


async def _read(name: str, node: Evidence) -> dict[str, Sequence[tuple[object, ...]]]:
    """Return the tables of one node as of one instant, and the results in its file after that."""
    async with (
        _connection(node.dsn) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        tables = {
            table: [tuple(row) for row in await connection.fetch(evidence.SQL[f"{table}s_here"])]
            for table in evidence.TABLES
        }
    return {**tables, "line": [(name, *row) for row in lines_of(node.results)]}


def lines_of(results: Path) -> Iterator[tuple[UUID, str, str | None]]:
    """Yield run, state, and result of every line of a file of results and those it was rotated to.

    A line that a crash cut off is skipped.
    """
    for path in sorted(results.parent.glob(f"{results.name}*")):
        with path.open("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    document = json.loads(line)
                    result = document["result"]
                    written = None if result is None else json.dumps(result)
                    yield UUID(document["run"]), document["state"], written


@contextlib.asynccontextmanager
async def _connection(dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()
