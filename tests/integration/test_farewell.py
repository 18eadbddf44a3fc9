"""A node that stops tells others what it can in a moment, and waits for nobody."""

from __future__ import annotations

import asyncio

import pytest

from node import outbox as delivering
from node.outbox import Outbox
from node.store import outbox
from node.store.outbox import Message, MessageKind, OutgoingMessage
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP


async def test_a_silent_node_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who answers hears of it; what the silent one does not take stays to be told again."""
    a = await world.site("a")
    async with a.database.transaction() as connection:
        posts = [OutgoingMessage(node, MessageKind.RUN_END, {}) for node in ("silent", "there")]
        await outbox.post_all(connection, posts, a.clock.now())

    async def deliver(message: Message) -> None:
        if message.node == "silent":
            await asyncio.Event().wait()

    monkeypatch.setattr(delivering, "SHUTDOWN_DELIVERY_S", 0.2)
    await Outbox(a.database, a.clock, (MessageKind.RUN_END,), deliver).deliver_before_shutdown()
    assert [row[0] for row in await a.rows("SELECT node FROM outbox")] == ["silent"]
