"""A node that stops sends its messages quickly and does not wait for silent nodes."""

from __future__ import annotations

import asyncio

import pytest

from node.journal import outbox as delivering
from node.journal.outbox import Outbox
from node.runtime.instruments import Instruments
from node.store import outbox
from node.store.outbox import Message, MessageKind, OutgoingMessage
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP


async def test_a_silent_node_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message to a silent node stays in the outbox when the node stops."""
    a = await world.site("a")
    async with a.database.transaction() as connection:
        posts = [OutgoingMessage(node, MessageKind.RUN_END, {}) for node in ("silent", "there")]
        await outbox.post_all(connection, posts, a.clock.now())

    async def deliver(message: Message) -> None:
        if message.node == "silent":
            await asyncio.Event().wait()

    monkeypatch.setattr(delivering, "SHUTDOWN_DELIVERY_S", 0.2)
    kinds = (MessageKind.RUN_END,)
    await Outbox(a.database, a.clock, kinds, deliver, Instruments()).deliver_before_shutdown()
    assert [row[0] for row in await a.rows("SELECT node FROM outbox")] == ["silent"]
