"""Looks after the other nodes now and then: who answers, and with the key that is pinned.

What it finds is shown to people (the page, ``/v1/nodes``, ``/metrics``), and letters to a node that
answers do not wait out their pauses. What a node says of itself may be something else than before:
then it belongs to other pools. Nothing else is decided here: whether a node can take part is found
out by asking it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from node.client.peers import Peers
from node.clock import Clock
from node.model.errors import PeerError, RequestError
from node.model.wire.nodes import NodeCard
from node.peers import Directory
from node.store import nodes, outbox
from node.store.bookings import notify
from node.store.database import Database
from node.store.nodes import KnownNode


class Lookout:
    """Keeps up to date which of the known nodes answer."""

    def __init__(
        self, database: Database, clock: Clock, directory: Directory, peers: Peers
    ) -> None:
        """Looks when it is told to: :meth:`run_once`."""
        self._database = database
        self._clock = clock
        self._directory = directory
        self._peers = peers

    async def run_once(self) -> None:
        """Ask all at once, and write down who answered and who did not."""
        await self._directory.refresh()
        others = [known for known in self._directory.all if not known.is_self]
        looks = await asyncio.gather(*(self._look(known) for known in others))
        faults = [look if isinstance(look, str) else None for look in looks]
        now = self._clock.now()
        async with self._database.transaction() as connection:
            answered = [
                known.identity for known, fault in zip(others, faults, strict=True) if fault is None
            ]
            await nodes.reached(connection, answered, now)
            await outbox.hasten(connection, answered, now)
            for known, fault in zip(others, faults, strict=True):
                if fault is not None:
                    await nodes.not_reached(connection, known.identity, now, fault)
                if (fault is None) is (known.unreachable_since is not None):
                    await notify(connection, "node", known.name, "lost" if fault else "reached")
            for known, look in zip(others, looks, strict=True):
                if isinstance(look, NodeCard) and _said(look) != (known.attributes, known.lanes):
                    await nodes.learn(connection, known.identity, *_said(look))
                    await notify(connection, "node", known.name, "changed")

    async def _look(self, known: KnownNode) -> NodeCard | str:
        """Its card, or why there is none."""
        try:
            card = await self._peers.card(known.url)
        except (PeerError, RequestError) as error:
            return error.detail
        if card.identity != known.identity:
            return f"another key answers at {known.url}: {card.identity}"
        return card


def _said(card: NodeCard) -> tuple[dict[str, Any], int]:
    return card.attributes, card.lanes
