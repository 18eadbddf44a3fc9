"""Twins of ``node/store/sql/outbox.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from lead.simulation.memory.rows import OutboxRow, pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "outbox")

_TAKEN_MAX = 100


@TWINS.of("id", "pg_notify")
def post(
    tables: Tables,
    nodes: Sequence[str],
    kinds: Sequence[str],
    messages: Sequence[Any],
    now: int,
    delay: int,
) -> Answer:
    """Messages, each to its node."""
    posted = []
    for node, kind, message in zip(nodes, kinds, messages, strict=True):
        number = next(tables.letters.ids)
        letter = OutboxRow(number, node, str(kind), pack(message), now, now + delay)
        tables.letters.insert(letter)
        tables.journal.tell(f"letter {kind}")
        posted.append((number, None))
    return posted


@TWINS.of("id", "node", "kind", "message", "attempts", "created_at")
def due(
    tables: Tables, now: int, again_at: int, kinds: Sequence[str], busy: Sequence[str]
) -> Answer:
    """Taken for a while: they come again later."""
    wanted = (
        row
        for row in tables.letters.due.before(now + 1)
        if row.kind in kinds and row.node not in busy
    )
    taken = list(islice(wanted, _TAKEN_MAX))
    for row in taken:
        tables.letters.change(row, next_at=again_at)
    return [
        (row.id, row.node, row.kind, unpack(row.message), row.attempts, row.created_at)
        for row in taken
    ]


@TWINS.of()
def delivered(tables: Tables, ids: Sequence[int]) -> Answer:
    """Acknowledged."""
    for number in ids:
        row = tables.letters.rows.get(number)
        if row is not None:
            tables.letters.delete(row)
    return ()


@TWINS.of()
def failed(tables: Tables, letter: int, next_at: int, error: str) -> Answer:
    """Not delivered."""
    row = tables.letters.rows.get(letter)
    if row is not None:
        tables.letters.change(row, attempts=row.attempts + 1, next_at=next_at, last_error=error)
    return ()


@TWINS.of()
def hasten(tables: Tables, nodes: Sequence[str], now: int) -> Answer:
    """These nodes answer: what they could not be told before need not wait out its pause."""
    late = [row for row in tables.letters.due.after(now) if row.node in nodes and row.attempts]
    for row in late:
        tables.letters.change(row, next_at=now)
    return ()


@TWINS.of("min")
def next_due(tables: Tables, kinds: Sequence[str], busy: Sequence[str]) -> Answer:
    """When the next message is due for a node that is not busy."""
    due_at = (at for at, row in tables.letters.due if row.kind in kinds and row.node not in busy)
    return [(next(due_at, None),)]


@TWINS.of("count")
def backlog(tables: Tables) -> Answer:
    """How many messages wait."""
    return [(len(tables.letters.rows),)]
