"""The outbox: messages are written with the change they report, and sent until acknowledged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from node.model.outside_leads import is_outside
from node.store.database import Connection
from node.store.statements import Purge, Query, Statements, spread

_SQL = Statements("node.store", "outbox")


class MessageKind(StrEnum):
    """The kind of a message; ``commit`` and ``release`` are delivered by the lead.

    A ``webhook`` is no node, but an address of the owner's.
    """

    COMMIT = "commit"
    RELEASE = "release"
    PART = "part"
    INTERVALS = "intervals"
    RUN_END = "run-end"
    TASK_END = "task-end"
    TASK_CHANGE = "task-change"
    WEBHOOK = "webhook"


@dataclass(frozen=True)
class Message:
    """A message that is due."""

    id: int
    node: str
    kind: MessageKind
    body: dict[str, Any]
    attempts: int
    created_at: int


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to be written, and its receiver."""

    node: str
    kind: MessageKind
    body: dict[str, Any]


async def post(
    connection: Connection,
    nodes: Sequence[str],
    kind: MessageKind,
    body: dict[str, Any],
    now: int,
    delay: int = 0,
) -> list[int]:
    """Write one message to each of these nodes; return the ids in the same order.

    Leads from outside take no messages and are left out.
    """
    return await post_all(
        connection, [OutgoingMessage(node, kind, body) for node in nodes], now, delay
    )


async def post_all(
    connection: Connection, posts: Sequence[OutgoingMessage], now: int, delay: int = 0
) -> list[int]:
    """Write several messages, due after ``delay``; return their ids in the same order.

    Leads from outside take no messages and are left out.
    """
    posts = [each for each in posts if not is_outside(each.node)]
    if not posts:
        return []
    rows = await connection.fetch(
        _SQL["post"],
        [each.node for each in posts],
        [each.kind for each in posts],
        [each.body for each in posts],
        now,
        delay,
    )
    return [row[0] for row in rows]


async def take_due(
    connection: Connection,
    now: int,
    again_at: int,
    kinds: Sequence[MessageKind],
    busy: Sequence[str],
) -> list[Message]:
    """Take the due messages to nodes not ``busy``; undelivered, they are due at ``again_at``."""
    rows = await connection.fetch(_SQL["due"], now, again_at, list(kinds), list(busy))
    return [
        Message(
            row["id"],
            row["node"],
            MessageKind(row["kind"]),
            row["message"],
            row["attempts"],
            row["created_at"],
        )
        for row in sorted(rows, key=lambda row: int(row["id"]))
    ]


waiting_by_node: Query[[], dict[str, int]] = _SQL.by_key("waiting_by_node")
"""The number of messages that wait to be sent to each node, by identity."""

pending_ends: Query[[str, Sequence[UUID]], set[UUID]] = _SQL.distinct("ends_under_way")
"""Return those of these tasks whose end this node is about to be told."""

recall: Query[[Mapping[int, int]], set[int]] = spread(_SQL.distinct("recall"))
"""Delete those of these messages, each due at its instant, that were not taken yet.

Return the deleted ones.
"""

delete_delivered: Query[[Sequence[int]], None] = _SQL.command("delivered")
"""Delete acknowledged messages."""

note_failure: Query[[Sequence[int], int, str, int], None] = _SQL.command("failed")
"""Record that sending messages to one node failed, to be retried at ``next_at``.

They are retried ``sooner`` if the node is not known to be unreachable.
Takes ``messages``, ``next_at``, ``error``, ``sooner``.
"""

purge: Purge = _SQL.value("purge_messages")
"""Delete messages that were written before and are still not acknowledged; return how many."""

purge_surplus: Purge = _SQL.value("purge_surplus_messages")
"""Delete messages with what was measured here, beyond the latest ``kept`` to each lead."""

hasten: Query[[Sequence[str], int], None] = _SQL.command("hasten")
"""Make the messages due that could not be delivered to these nodes."""

next_due_at: Query[[Sequence[MessageKind], Sequence[str]], int | None] = _SQL.value("next_due")
"""Return when the next message to a node not ``busy`` is due."""

count_waiting: Query[[], int] = _SQL.value("backlog")
"""Return how many messages wait to be sent or acknowledged."""
