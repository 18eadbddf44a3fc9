"""Twins of ``node/store/sql/outbox.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from lead.simulation.memory.rows import OutboxRow, pack, unpack
from lead.simulation.memory.statements import Answer, Twins
from lead.simulation.memory.tables import Tables

TWINS = Twins("node.store", "outbox")

_TAKEN_MAX = 100
_IN_ORDER = ("task-change", "task-end")


@TWINS.of("id", "pg_notify")
def post(
    tables: Tables,
    nodes: Sequence[str],
    kinds: Sequence[str],
    messages: Sequence[Any],
    now: int,
    delay: int,
) -> Answer:
    """Insert messages, each for its node."""
    posted = []
    for node, kind, message in zip(nodes, kinds, messages, strict=True):
        number = next(tables.outbox.ids)
        tables.outbox.insert(OutboxRow(number, node, str(kind), pack(message), now, now + delay))
        tables.journal.tell(f"message {kind}")
        posted.append((number, None))
    return posted


@TWINS.of("id", "node", "kind", "message", "attempts", "created_at")
def due(
    tables: Tables, now: int, again_at: int, kinds: Sequence[str], busy: Sequence[str]
) -> Answer:
    """Return due messages and postpone them, so that they are retried if not acknowledged."""
    wanted = (
        row
        for row in tables.outbox.due.before(now + 1)
        if row.kind in kinds and row.node not in busy and not _overtakes(tables, row, now)
    )
    taken = list(islice(wanted, _TAKEN_MAX))
    for row in taken:
        tables.outbox.change(row, next_at=again_at)
    return [
        (row.id, row.node, row.kind, unpack(row.message), row.attempts, row.created_at)
        for row in taken
    ]


def _overtakes(tables: Tables, row: OutboxRow, now: int) -> bool:
    """Return whether an earlier message about the same task is not due yet."""
    if row.kind not in _IN_ORDER:
        return False
    task = unpack(row.message)["task"]
    return any(
        earlier.id < row.id
        and earlier.node == row.node
        and earlier.kind in _IN_ORDER
        and unpack(earlier.message)["task"] == task
        for earlier in tables.outbox.due.after(now)
    )


@TWINS.of("task")
def ends_under_way(tables: Tables, node: str, tasks: Sequence[UUID]) -> Answer:
    """Return those of these tasks whose end a node is about to be told."""
    messages = tables.outbox.rows.values()
    ends = (unpack(it.message) for it in messages if it.node == node and it.kind == "task-end")
    return [(task,) for end in ends if (task := UUID(end["task"])) in tasks]


@TWINS.of("id")
def recall(tables: Tables, ids: Sequence[int], due_at: Sequence[int]) -> Answer:
    """Delete messages that nobody has taken since they were written."""
    recalled = {}
    for number, at in zip(ids, due_at, strict=True):
        row = tables.outbox.rows.get(number)
        if row is not None and row.next_at == at:
            recalled[row.id] = row
    for row in recalled.values():
        tables.outbox.delete(row)
    return [(number,) for number in recalled]


@TWINS.of()
def delivered(tables: Tables, ids: Sequence[int]) -> Answer:
    """Delete acknowledged messages."""
    for number in ids:
        row = tables.outbox.rows.get(number)
        if row is not None:
            tables.outbox.delete(row)
    return ()


@TWINS.of()
def failed(tables: Tables, ids: Sequence[int], next_at: int, error: str, sooner: int) -> Answer:
    """Record a failed delivery, to be retried sooner if the node is not known to be unreachable."""
    away = {row.identity for row in tables.nodes.rows.values() if row.unreachable_since is not None}
    for number in dict.fromkeys(ids):
        row = tables.outbox.rows.get(number)
        if row is not None:
            again_at = next_at if row.node in away else min(next_at, sooner)
            tables.outbox.change(row, attempts=row.attempts + 1, next_at=again_at, last_error=error)
    return ()


@TWINS.of("count")
def purge_messages(tables: Tables, before: int, at_most: int) -> Answer:
    """Delete messages that nobody has acknowledged for long."""
    old = [row for row in tables.outbox.rows.values() if row.created_at < before]
    gone = sorted(old, key=lambda row: row.id)[:at_most]
    for row in gone:
        tables.outbox.delete(row)
    return [(len(gone),)]


@TWINS.of()
def hasten(tables: Tables, nodes: Sequence[str], now: int) -> Answer:
    """Make the failed messages of nodes that answer again due now."""
    late = [row for row in tables.outbox.due.after(now) if row.node in nodes and row.attempts]
    for row in late:
        tables.outbox.change(row, next_at=now)
    return ()


@TWINS.of("min")
def next_due(tables: Tables, kinds: Sequence[str], busy: Sequence[str]) -> Answer:
    """Return when the next message for a node that is not busy is due."""
    due_at = (
        at
        for at, row in tables.outbox.due
        if row.kind in kinds and row.node not in busy and not _overtakes(tables, row, at)
    )
    return [(next(due_at, None),)]


@TWINS.of("count")
def backlog(tables: Tables) -> Answer:
    """Return the number of messages."""
    return [(len(tables.outbox.rows),)]
