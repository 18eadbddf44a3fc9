"""Queries of real nodes to their databases, recorded, and replayed on any other database."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from lead.simulation.memory import MemoryDatabase, rows
from lead.simulation.memory.journal import Table
from lead.simulation.memory.rows import TableRow, unpack
from lead.simulation.memory.tables import Tables
from lead.simulation.memory.twins import TWIN_OF
from node.store.database import (
    BrokenCheck,
    BrokenKey,
    BrokenOverlap,
    BrokenReference,
    Connection,
    Record,
)
from node.store.queries import PostgresConnection

Statement = tuple[str, tuple[Any, ...]]
BROKEN = (BrokenCheck, BrokenKey, BrokenOverlap, BrokenReference)
INTERNAL = {"number", "nodes", "limited", "follows", "ports"}
"""Fields of the twins' rows in addition to the columns."""


@dataclass
class Transaction:
    """Statements that belong together, and whether they were committed."""

    statements: list[Statement] = field(default_factory=list)
    committed: bool = True


class Recorder(MemoryDatabase):
    """A database in memory that records its queries."""

    def __init__(self) -> None:
        """Start with an empty record."""
        super().__init__()
        self.asked: list[Transaction] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Run each statement in a transaction of its own."""
        async with super().connection() as connection:
            yield _Recorded(connection, self._alone_asked)

    def _alone_asked(self, statement: Statement) -> None:
        self.asked.append(Transaction([statement]))

    def transaction(self) -> AbstractAsyncContextManager[Connection]:
        """Run statements in one transaction."""
        return self._transaction(super().transaction())

    @asynccontextmanager
    async def _transaction(
        self, real: AbstractAsyncContextManager[Connection]
    ) -> AsyncIterator[Connection]:
        asked = Transaction(committed=False)
        self.asked.append(asked)
        async with real as connection:
            yield _Recorded(connection, asked.statements.append)
            asked.committed = True


class _Recorded:
    def __init__(self, connection: Connection, asked: Callable[[Statement], None]) -> None:
        self._connection = connection
        self._asked = asked

    async def fetch(self, query: str, *args: Any) -> list[Record]:
        self._asked((query, args))
        return await self._connection.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> Record | None:
        self._asked((query, args))
        return await self._connection.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        self._asked((query, args))
        return await self._connection.fetchval(query, *args)

    async def fetchmany(self, query: str, args: Iterable[Sequence[Any]]) -> list[Record]:
        each = [tuple(one) for one in args]
        for one in each:
            self._asked((query, one))
        return await self._connection.fetchmany(query, each)

    async def execute(self, query: str, *args: Any) -> None:
        self._asked((query, args))
        await self._connection.execute(query, *args)


class _TakenBack(Exception):
    pass


async def play_to_both(
    real: PostgresConnection, memory: MemoryDatabase, transaction: Transaction
) -> None:
    """Check that both databases answer the same."""
    statements = transaction.statements
    expected = await _play(_opened(real, transaction), transaction)
    answered = await _play(memory.transaction(), transaction)
    for one, other, (query, args) in zip(expected, answered, statements, strict=False):
        if one != other:
            msg = f"{TWIN_OF[query].name}{args!r:.500}: {one!r:.500} but in memory {other!r:.500}"
            raise AssertionError(msg)
    assert len(expected) == len(answered), [TWIN_OF[query].name for query, _ in statements]


@asynccontextmanager
async def _opened(
    real: PostgresConnection, transaction: Transaction
) -> AsyncIterator[PostgresConnection]:
    locks = any("LOCK TABLE" in query for query, _ in transaction.statements)
    if len(transaction.statements) == 1 and transaction.committed and not locks:
        yield real
    else:
        async with real.transaction():
            yield real


async def _play(
    opened: AbstractAsyncContextManager[Connection], transaction: Transaction
) -> list[Any]:
    """Return a database's answers; the last one may be a violated constraint."""
    answers: list[Any] = []
    with contextlib.suppress(_TakenBack):
        try:
            async with opened as connection:
                for query, args in transaction.statements:
                    answers.append(answer(await connection.fetch(query, *args)))
                if not transaction.committed:
                    raise _TakenBack
        except BROKEN:
            answers.append("broken")  # a statement may break two constraints: which one, differs
    return answers


def answer(rows: Sequence[Record]) -> list[str]:
    """Return rows without a defined order in a comparable one."""
    return sorted(as_text(dict(row)) for row in rows)


def as_text(row: dict[str, Any]) -> str:
    """Return a row with its columns in one order."""
    return json.dumps(row, default=_as_json, sort_keys=True)


def _as_json(value: Any) -> Any:
    """Convert to JSON; bytes are spans of sixteen bytes each, in any order."""
    if isinstance(value, bytes):
        return sorted(value[at : at + 16].hex() for at in range(0, len(value), 16))
    return str(value)


def contents(tables: Tables) -> dict[str, list[str]]:
    """Return all tables of a database in memory, by the names of the schema."""
    named: dict[str, Table[Any, Any]] = {
        "campaign": tables.campaigns,
        "charge": tables.charges,
        "charge_hour": tables.charge_hours,
        "decision": tables.decisions,
        "exchange": tables.exchanges,
        "gap": tables.gaps,
        "idempotency": tables.idempotencies,
        "lead_question": tables.lead_questions,
        "lead_share": tables.lead_shares,
        "negotiation": tables.negotiations,
        "node": tables.nodes,
        "outbox": tables.outbox,
        "part": tables.parts,
        "planning": tables.plannings,
        "reservation": tables.reservations,
        "reserved": tables.reserved,
        "policy_state": tables.policy_states,
        "pool": tables.pools,
        "pool_task": tables.pool_tasks,
        "run": tables.runs,
        "seat": tables.seats,
        "task": tables.tasks,
        "term": tables.terms,
    }
    return {
        name: _compared(name, [_columns(row) for row in table.rows.values()])
        for name, table in named.items()
    }


def _compared(table: str, contents: list[dict[str, Any]]) -> list[str]:
    """Return rows in one order; decisions are counted, because failed statements use up numbers.

    Charges of one statement have no order among them.
    """
    if table == "decision":
        for number, row in enumerate(sorted(contents, key=lambda row: int(row["id"]))):
            row["id"] = number
    if table == "charge":
        for row in contents:
            del row["id"]
    return sorted(as_text(row) for row in contents)


def column_names(kind: type[TableRow]) -> list[str]:
    """Return the column names of a table's rows."""
    return [column.name for column in fields(kind) if column.name not in INTERNAL]


def _columns(row: TableRow) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in column_names(type(row))}
    return {
        name: unpack(value) if isinstance(value, bytes) else value for name, value in values.items()
    }


async def stored(real: PostgresConnection) -> dict[str, list[str]]:
    """Return the contents of a real database in the same form."""
    found = {}
    for name in TABLES:
        there = await real.fetch(f"SELECT * FROM {name}")
        found[name] = _compared(name, [_as_in_memory(dict(row)) for row in there])
    return found


def _as_in_memory(row: dict[str, Any]) -> dict[str, Any]:
    for generated in ("during", "depth", "target_kind", "follows"):
        row.pop(generated, None)
    if row.get("lane") is not None:
        row["lane"] = "exclusive" if row["lane"].lower is None else "normal"
    return row


ROWS: dict[str, type[TableRow]] = {
    "campaign": rows.CampaignRow,
    "charge": rows.ChargeRow,
    "charge_hour": rows.ChargeHourRow,
    "decision": rows.DecisionRow,
    "exchange": rows.ExchangeRow,
    "gap": rows.GapRow,
    "idempotency": rows.IdempotencyRow,
    "lead_question": rows.LeadQuestionRow,
    "lead_share": rows.LeadShareRow,
    "negotiation": rows.NegotiationRow,
    "node": rows.NodeRow,
    "outbox": rows.OutboxRow,
    "part": rows.PartRow,
    "planning": rows.PlanningRow,
    "reservation": rows.ReservationRow,
    "reserved": rows.ReservedSpanRow,
    "policy_state": rows.PolicyStateRow,
    "pool": rows.PoolRow,
    "pool_task": rows.PoolTaskRow,
    "run": rows.RunRow,
    "seat": rows.SeatRow,
    "task": rows.TaskRow,
    "term": rows.TermRow,
}
NOT_SIMULATED = {
    "run_interval",
    "archive",
    "archiving",
    "destination",
    "parked_count",
    # All nodes of a simulated world have one owner, who sets no quotas.
    "limit_quota",
    "limit_use",
    "limit_return",
    "limit_rate",
    "limit_reached",
    "lead_process",
    "lead_absence",
    # No host there runs pScheduler, and no client of it posts anything.
    "pscheduler_booking",
    "pscheduler_membership",
    "pscheduler_task",
    "pscheduler_run",
    # Nobody asks what simulated meshes deliver.
    "mesh_day",
    "mesh_recount",
    # Nobody is told of what happens there.
    "webhook",
    "webhook_told",
    # Simulated nodes have no users.
    "access_token",
    "audit",
}
"""Tables without a counterpart in a simulation: its runs end at once and are stored nowhere, and
nobody asks whether its nodes are ready.
"""
TABLES = tuple(ROWS)
