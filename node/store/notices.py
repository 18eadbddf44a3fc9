"""Notices: what the processes of this node are told when a transaction commits."""

from __future__ import annotations

from collections.abc import Sequence

from node.store.database import Connection
from node.store.queries import Queries

_SQL = Queries("node.store", "notices")


async def notify(connection: Connection, *words: object) -> None:
    """Notify every process of this node when the transaction commits."""
    await notify_all(connection, [words])


async def notify_all(connection: Connection, notices: Sequence[Sequence[object]]) -> None:
    """Send several notices at once, each given as its words."""
    payloads = [" ".join(map(str, words)) for words in notices]
    await connection.execute(_SQL["notify"], payloads)
