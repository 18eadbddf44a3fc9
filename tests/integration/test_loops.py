"""Background loops continue after any fault."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import asyncpg
import pytest

from node.model.errors import DatabaseUnavailable, PeerUnreachable
from node.store import nodes, outbox
from node.store.database import Database, Notice, PostgresDatabase
from node.store.nodes import KnownNode
from node.store.outbox import Message, MessageKind
from tests.support.patience import PATIENCE_S
from tests.support.worlds import ON_ONE_LOOP, Site, World


class Loop(Protocol):
    """A background loop of a node."""

    def on_notice(self, notice: Notice) -> None:
        """Receive a notification."""
        ...

    async def run(self) -> None:
        """Run until cancelled."""
        ...


WAITING = """SELECT FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'"""

LOOPS: dict[str, tuple[Callable[[Site], Loop], str]] = {
    "workers": (lambda site: site.workers, "run_once"),
    "outbox": (lambda site: site.node.outbox, "start_due"),
    "launcher": (lambda site: site.node.launcher, "run_once"),
}


@ON_ONE_LOOP
@pytest.mark.parametrize("name", list(LOOPS))
async def test_a_loop_outlives_a_fault(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A loop whose turn raises an unexpected error continues with the next turn."""
    loop_of, its_turn = LOOPS[name]
    loop = loop_of(await world.site("a"))
    turns = 0
    again = asyncio.Event()

    async def turn() -> float:
        nonlocal turns
        turns += 1
        if turns == 1:
            loop.on_notice(Notice("wake", "", ()))
            raise RuntimeError("unforeseen")
        again.set()
        return 5.0

    monkeypatch.setattr(loop, its_turn, turn)
    running = asyncio.create_task(loop.run())
    await asyncio.wait_for(again.wait(), PATIENCE_S)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.CannotConnectNowError,
        asyncpg.AdminShutdownError,
        asyncpg.TooManyConnectionsError,
        asyncpg.DiskFullError,
        asyncpg.ReadOnlySQLTransactionError,
    ],
)
async def test_a_server_that_restarts_or_is_full_is_away(
    database: Database, error: type[asyncpg.PostgresError]
) -> None:
    """Postgres's errors while it starts, stops or is full mean that it is unavailable."""
    with pytest.raises(DatabaseUnavailable):
        async with database.connection():
            raise error("not now")


async def test_a_connection_that_breaks_as_it_is_given_back_is_no_fault(
    database: PostgresDatabase,
) -> None:
    """A connection that breaks when it is returned loses no work and is replaced."""
    loop = asyncio.get_running_loop()
    for _ in range(20):  # twice as many as there are in the pool
        async with database.connection() as connection:
            assert await connection.fetchval("SELECT 1") == 1
            loop.call_soon(connection.terminate)  # runs first in the loop's next turn
    async with database.transaction() as connection:
        assert await connection.fetchval("SELECT 2") == 2


@ON_ONE_LOOP
async def test_a_message_that_cannot_be_made_holds_up_no_other(world: World) -> None:
    """A message that raises an error stays in the outbox, and later ones are delivered."""
    a, b = await world.site("a"), await world.site("b")
    delivered = []

    async def deliver(message: Message) -> None:
        if "stumble" in message.body:
            raise ValueError("stumbled")
        delivered.append(message.body)

    a.node.outbox._deliver = deliver
    async with a.database.connection() as connection:
        for body in ({"stumble": 1}, {"fine": 1}):
            await outbox.post(connection, [b.identity], MessageKind.PART, body, a.clock.now())
    await a.node.outbox.run_once()
    assert delivered == [{"fine": 1}]
    assert [body for _, _, body in await a.outbox_messages()] == [{"stumble": 1}]


@ON_ONE_LOOP
async def test_a_slow_node_holds_up_no_other(world: World) -> None:
    """Messages to other nodes are delivered while one node is slow to answer."""
    a, b, c = await world.three()
    delivered, arrived = list[str](), asyncio.Event()

    async def deliver(message: Message) -> None:
        if message.node == b.identity:
            await asyncio.Event().wait()
        delivered.append(message.node)
        arrived.set()

    a.node.outbox._deliver = deliver
    running = asyncio.create_task(a.node.outbox.run())
    for node in (b, c, c):
        arrived.clear()
        async with a.database.connection() as connection:
            await outbox.post(connection, [node.identity], MessageKind.PART, {}, a.clock.now())
        a.node.outbox.on_notice(Notice("wake", "", ()))
        if node is c:
            await asyncio.wait_for(arrived.wait(), PATIENCE_S)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert delivered == [c.identity, c.identity]
    assert len(await a.outbox_messages()) >= 1


@ON_ONE_LOOP
async def test_letters_to_a_node_that_is_back_do_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages to a node that answers again are delivered at once, whatever their pause."""
    a, b, c = await world.three()
    answering, delivered = set[str](), list[str]()

    async def deliver(message: Message) -> None:
        if message.node not in answering:
            raise PeerUnreachable("nobody answers")
        delivered.append(message.node)

    async def look(known: KnownNode) -> tuple[str | None, None]:
        return None if known.identity in answering else "nobody answers", None

    a.node.outbox._deliver = deliver
    monkeypatch.setattr(a.node.peer_monitor, "_look", look)
    async with a.database.connection() as connection:
        both = [b.identity, c.identity]
        await outbox.post(connection, both, MessageKind.PART, {}, a.clock.now())
    await a.execute("UPDATE outbox SET attempts = 9")
    await a.node.outbox.run_once()
    answering.add(b.identity)
    await a.node.outbox.run_once()
    assert delivered == []
    await a.node.peer_monitor.run_once()
    await a.node.outbox.run_once()
    assert delivered == [b.identity]
    assert [node for node, _, _ in await a.outbox_messages()] == [c.identity]


@ON_ONE_LOOP
async def test_looks_are_kept_beside_others_who_write_of_nodes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the nodes is kept though another transaction has them in the other order."""
    a, b, c = await world.three()

    async def look(_: KnownNode) -> tuple[str, None]:
        return "nobody answers", None

    monkeypatch.setattr(a.node.peer_monitor, "_look", look)
    await a.node.directory.refresh()
    order = [each.identity for each in a.node.directory.all if not each.is_self]
    assert set(order) == {b.identity, c.identity}
    # Postgres ends whichever of the two looked first for a deadlock that was there.
    with contextlib.suppress(asyncpg.DeadlockDetectedError):
        async with a.database.transaction() as connection:
            await nodes.lock(connection, order[-1])
            looking = asyncio.create_task(a.node.peer_monitor.run_once())
            while not await a.rows(WAITING):
                await world.clock.sleep(0)
            await nodes.lock(connection, order[0])  # each has what the other one waits for
    await asyncio.wait_for(looking, PATIENCE_S)
    await a.node.directory.refresh()
    assert all(each.unreachable_since for each in a.node.directory.all if not each.is_self)
