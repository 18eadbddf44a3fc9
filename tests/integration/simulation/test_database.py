"""The databases of simulated nodes: transactions, crashes, locks, notifications."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any
from uuid import UUID

import pytest
from asyncpg import UniqueViolationError

from lead.simulation.clock import pause
from lead.simulation.database import SimulatedDatabase
from lead.simulation.driver import Link
from lead.simulation.loop import run
from lead.simulation.server import NodeStore, lent
from node.model.errors import DatabaseUnavailable
from node.store import tasks
from node.store.database import Connection, Notice
from node.store.notices import notify
from node.store.tasks import Made
from tests.support.clocks import START, ManualClock

KEEP = "INSERT INTO policy_state (pool, set, state) VALUES ($1, 'x', $2)"
READ = "SELECT request_digest FROM idempotency WHERE key = $1"
PUT = """
INSERT INTO idempotency (key, request_digest, made, created_at)
VALUES ($1, $2, '00000000-0000-0000-0000-000000000001', '2026-01-01')
"""
CHANGE = "UPDATE idempotency SET request_digest = request_digest || $2 WHERE key = $1"


class Crash(BaseException):
    """The crash of a simulated node at this point."""


@pytest.fixture(scope="module")
def lent_store() -> Iterator[NodeStore]:
    """Return a database for the tests of this file."""
    with lent(1) as [store]:
        yield store


@pytest.fixture
def store(lent_store: NodeStore) -> NodeStore:
    """Return the database, empty."""
    lent_store.empty()
    return lent_store


def live(work: Coroutine[Any, Any, None]) -> None:
    """Run a test in virtual time."""

    async def to_the_end(_loop: object) -> None:
        await work

    run(to_the_end)


def digest(store: NodeStore, key: str) -> str | None:
    """Return what is committed under a key."""
    rows = store.read(READ, key)
    return str(rows[0][0]) if rows else None


async def put(database: SimulatedDatabase, key: str, value: str) -> None:
    """Write a row in a statement of its own."""
    async with database.connection() as connection:
        await connection.execute(PUT, key, value)


@pytest.mark.parametrize(("moment", "survives"), [(1, False), (2, False), (3, False), (4, True)])
@pytest.mark.mostly_nightly
def test_a_crash_at_any_point(store: NodeStore, moment: int, *, survives: bool) -> None:
    """A crash before the commit leaves no change, one after it leaves all."""
    passed = [0]

    def point() -> Awaitable[None] | None:
        passed[0] += 1
        if passed[0] == moment:
            raise Crash
        return None

    async def work() -> None:
        database = SimulatedDatabase(store, point)
        with pytest.raises(Crash):
            async with database.transaction() as connection:
                await connection.execute(PUT, "a", "x")

    live(work())
    assert (digest(store, "a") == "x") is survives


def test_a_killed_process_leaves_nothing_open(store: NodeStore) -> None:
    """A process that dies has its transactions rolled back; what it does later is in vain."""

    async def write(database: SimulatedDatabase, written: asyncio.Event) -> None:
        async with database.transaction() as connection:
            await connection.execute(PUT, "a", "lost")
            written.set()
            await pause(1000)

    async def work() -> None:
        database, written = SimulatedDatabase(store), asyncio.Event()
        dying = asyncio.create_task(write(database, written))
        await written.wait()
        next_start = database.survivor()
        await put(next_start, "a", "kept")
        with pytest.raises(DatabaseUnavailable):
            await dying
        with pytest.raises(DatabaseUnavailable):
            await put(database, "b", "never")

    live(work())
    assert digest(store, "a") == "kept"
    assert digest(store, "b") is None


def test_two_read_before_either_writes(store: NodeStore) -> None:
    """Transactions run beside each other; the second to write a row waits for the first."""
    order: list[str] = []

    async def check_then_write(database: SimulatedDatabase, name: str) -> None:
        async with database.transaction() as connection:
            assert await tasks.find_idempotency(connection, ["key"]) == {}
            await pause(1)
            await tasks.keep_idempotency(connection, {"key": Made(name, UUID(int=1))}, START)
            order.append(name)
            await pause(1000)

    async def work() -> None:
        database = SimulatedDatabase(store)
        together = (check_then_write(database, name) for name in ("one", "other"))
        ended = await asyncio.gather(*together, return_exceptions=True)
        assert ended[0] is None
        assert ended[1] is None or isinstance(ended[1], UniqueViolationError)

    live(work())
    assert order[0] == "one"
    assert digest(store, "key") == "one"


def test_a_statement_waits_for_the_lock_of_another_transaction(store: NodeStore) -> None:
    """It goes on once the other one has ended, at the same virtual instant, and sees its change."""
    ended: list[tuple[str, int]] = []

    async def change(database: SimulatedDatabase, name: str, first: int, then: int) -> None:
        loop = asyncio.get_running_loop()
        await pause(first)
        async with database.transaction() as connection:
            await connection.execute(CHANGE, "a", name)
            await pause(then)
        ended.append((name, round(loop.time() * 1_000_000)))

    async def work() -> None:
        database = SimulatedDatabase(store)
        await put(database, "a", "-")
        await asyncio.gather(
            change(database, "1", 0, 500),
            change(database, "2", 10, 70),
        )

    live(work())
    assert digest(store, "a") == "-12"
    assert ended == [("1", 500), ("2", 570)]


@pytest.fixture
def busy_host() -> Iterator[None]:
    """Give every processor more to do than it can, so that what wakes up runs some time later."""
    count = 2 * (os.cpu_count() or 1)
    loads = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    yield
    for load in loads:
        load.kill()
        load.wait()


WAYS = {
    "change a row": (CHANGE, PUT),
    "lock a row, then change it": ("SELECT FROM idempotency WHERE key = $1 FOR UPDATE", PUT),
    "make a row": (f"{PUT} ON CONFLICT (key) DO UPDATE SET request_digest = $2", "SELECT $1, $2"),
}
"""Statements with which all change one row, each with the one that is executed before."""


@pytest.mark.usefixtures("busy_host")
@pytest.mark.parametrize(
    "way",
    [pytest.param(it, marks=[] if it == "change a row" else pytest.mark.nightly) for it in WAYS],
)
@pytest.mark.nightly
def test_who_came_first_goes_on_first(store: NodeStore, way: str) -> None:
    """Each of many that wait for one row goes on in its turn, however busy the host is."""
    order: list[str] = []
    statement, before = WAYS[way]
    words = (lambda key, name: (key, name)) if "$2" in statement else (lambda key, _: (key,))

    async def change(database: SimulatedDatabase, key: str, name: str) -> None:
        await pause(int(name))
        async with database.transaction() as connection:
            await connection.execute(statement, *words(key, name))
            order.append(name)
            await connection.execute(CHANGE, key, name)
            await pause(100)

    async def work() -> None:
        database = SimulatedDatabase(store)
        for turn in range(30):
            async with database.connection() as connection:
                await connection.execute(before, key := f"row {turn}", "-")
            await asyncio.gather(*(change(database, key, name) for name in "12345"))

    live(work())
    assert order == list("12345") * 30


def test_a_stranger_who_has_a_lock_is_waited_for(
    store: NodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of another world, on what all share, is waited for in real time."""
    asked, waits = threading.Event(), store._waits

    def ask(link: Link) -> bool:
        answer = waits(link)
        asked.set()
        return answer

    monkeypatch.setattr(store, "_waits", ask)
    with lent(1) as [other]:
        stranger = other.take()
        stranger.run(stranger.connection.execute("BEGIN; LOCK TABLE pg_shdescription"))

        def release() -> None:
            asked.wait()
            stranger.run(stranger.connection.execute("ROLLBACK"))

        async def work() -> None:
            async with SimulatedDatabase(store).connection() as connection:
                await connection.fetch("SELECT FROM pg_shdescription")

        releasing = threading.Thread(target=release)
        releasing.start()
        live(work())
        releasing.join()
        other.give_back(stranger)


@pytest.mark.nightly
def test_idle_connections_keep_nobody_waiting_for_room() -> None:
    """A database can be dropped, though much was notified in another one with idle connections."""

    async def work() -> None:
        database = SimulatedDatabase(busy)
        async with database.connection(), database.connection() as other:
            await other.execute("SELECT 1")
        for number in range(1500):
            async with database.transaction() as connection:
                await notify(connection, "task", UUID(int=number), "planned")

    with lent(2) as [busy, store]:
        live(work())
        store.spoil("SELECT 1")


def test_the_last_of_those_that_wait_for_each_other_fails(store: NodeStore) -> None:
    """A deadlock ends the transaction that closes the circle; ``settle`` tries it again."""
    tries: list[str] = []

    async def change(database: SimulatedDatabase, name: str, *keys: str) -> None:
        async def act(connection: Connection) -> None:
            tries.append(name)
            for key in keys:
                await connection.execute(CHANGE, key, name)
                await pause(10)

        await database.settle(act)

    async def work() -> None:
        database = SimulatedDatabase(store)
        await put(database, "a", "-")
        await put(database, "b", "-")
        await asyncio.gather(change(database, "1", "a", "b"), change(database, "2", "b", "a"))

    live(work())
    assert tries == ["1", "2", "2"]
    assert (digest(store, "a"), digest(store, "b")) == ("-12", "-12")


async def put_and_change(database: SimulatedDatabase) -> None:
    """Write a row, then change another one, in one transaction of three seconds at most."""
    async with asyncio.timeout(3), database.transaction() as connection:
        await connection.execute(PUT, "b", "x")
        await connection.execute(CHANGE, "a", "2")


def test_who_waits_for_a_lock_can_be_cancelled(store: NodeStore) -> None:
    """A statement that is given up while it waits changes nothing, nor does its transaction."""

    async def work() -> None:
        database = SimulatedDatabase(store)
        await put(database, "a", "-")
        async with database.transaction() as connection:
            await connection.execute(CHANGE, "a", "1")
            with pytest.raises(TimeoutError):
                await put_and_change(database)
        async with database.connection() as connection:
            assert await connection.fetchval(READ, "a") == "-1"

    live(work())
    assert digest(store, "b") is None


async def put_twice(database: SimulatedDatabase) -> None:
    """Write one key twice in a transaction."""
    async with database.transaction() as connection:
        await connection.execute(PUT, "a", "x")
        await connection.execute(PUT, "a", "y")


def test_after_a_broken_constraint_nothing_is_committed(store: NodeStore) -> None:
    """A transaction in which a statement failed is rolled back."""

    async def work() -> None:
        database = SimulatedDatabase(store)
        with pytest.raises(UniqueViolationError):
            await put_twice(database)

    live(work())
    assert digest(store, "a") is None


def heard(
    store: NodeStore, act: Callable[[SimulatedDatabase], Awaitable[None]], **how: Any
) -> list[tuple[int, Notice]]:
    """Return what a listening process hears, and at which microsecond."""
    notices: list[tuple[int, Notice]] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        database = SimulatedDatabase(store)
        database.delivery = how.get("delivery", database.delivery)
        listening = asyncio.create_task(
            database.listen(
                lambda notice: notices.append((round(loop.time() * 1_000_000), notice)),
                ManualClock(),
            )
        )
        await pause(1)
        await act(database)
        await pause(1_000_000)
        listening.cancel()

    live(work())
    return notices[1:]


async def tell_and_crash(database: SimulatedDatabase) -> None:
    """Send a notification in a transaction that fails."""
    async with database.transaction() as connection:
        await notify(connection, "run", 1, "lost")
        raise Crash


async def tell(database: SimulatedDatabase) -> None:
    """Send the same notification twice in one transaction, and another in one that fails."""
    with pytest.raises(Crash):
        await tell_and_crash(database)
    async with database.transaction() as connection:
        await notify(connection, "run", 2, "booked")
        await notify(connection, "run", 2, "booked")
        await pause(100)


def test_notifications_come_with_the_commit(store: NodeStore) -> None:
    """Notifications are delivered once each with the commit, and not after a rollback."""
    assert heard(store, tell) == [(101, Notice("run", "2", ("booked",)))]


def test_notifications_come_late_or_never(store: NodeStore) -> None:
    """The world says when a process hears of a commit."""
    late = heard(store, tell, delivery=lambda: 7000)
    assert late == [(7101, Notice("run", "2", ("booked",)))]
    assert heard(store, tell, delivery=lambda: None) == []


def test_an_emptied_database_is_like_a_new_one(store: NodeStore) -> None:
    """Nothing of a world is left for the next one, and numbers begin anew."""
    store.write(PUT, "a", "x")
    store.write(
        "INSERT INTO outbox (node, kind, message, created_at, next_at) "
        "VALUES ('a', 'part', '{}', now(), now())"
    )
    store.write("UPDATE campaign SET weight = 7")
    store.empty()
    assert digest(store, "a") is None
    store.write(
        "INSERT INTO outbox (node, kind, message, created_at, next_at) "
        "VALUES ('a', 'part', '{}', now(), now())"
    )
    assert [row["id"] for row in store.read("SELECT id FROM outbox")] == [1]
    [default] = store.read("SELECT id, name, weight::float FROM campaign")
    assert tuple(default) == (1, "default", 1.0)
