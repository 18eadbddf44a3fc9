"""The Postgres of simulated worlds: one private server for a process and those it forks.

It is started when the first world needs it, and ended with the process. Nothing in it outlives
that, so it writes nothing through to the disk. Each simulated node has a database of its own, made
from a template that has the schema; when its world is over it is emptied for the next one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from lead.simulation.driver import Call, Link, LostConnection
from node.model.errors import ParleyError
from node.postgres.binaries import ServerBinaries, locate
from node.postgres.cluster import PORT, SUPERUSER, PrivateCluster
from node.store import migrating, schema
from node.store.database import CHANNEL, Record, prepare_connection
from node.store.queries import Queries

SQL = Queries("lead.simulation", "server")
_FIRST_ROWS = re.compile(r"^INSERT\s+INTO\s.*?;$", re.MULTILINE | re.DOTALL)
_TEMPLATE = "simulated"
_PREFIX = "parley-simulation-"
"""The name of a server's directory, before the number of its process."""
_CONNECTIONS_MAX = 1000
_UNREAD_MAX = 50
"""Commits with notifications after which idle connections are read; a socket has room for 200."""
_SERVER_SETTINGS = {
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "1d",
    "bgwriter_lru_maxpages": "0",
    "track_counts": "off",
    "track_activities": "off",
}
"""Settings that save work: nothing here is replicated, restored, or watched."""
_SETTINGS = {
    **schema.connection_settings(),
    "deadlock_timeout": "1h",
    "synchronize_seqscans": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
}
"""Settings of connections.

Plans are those of large tables from the beginning, and do not depend on arguments, so that they are
made once. Deadlocks are found by the world (:mod:`lead.simulation.database`): the server finds them
after some time, and which transaction then loses depends on the speed of the host.
"""


def _sql(name: str, **names: str) -> str:
    """Return a statement with the names of databases, tables, or columns, all our own, put in."""
    text = SQL[name]
    for word, stands_for in names.items():
        text = text.replace("{" + word + "}", stands_for)
    return text


def abandoned_servers() -> list[Path]:
    """Return the directories of servers whose processes are gone (killed outright)."""
    return [it for it in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*") if _is_abandoned(it)]


def _is_abandoned(directory: Path) -> bool:
    """Return whether a directory is ours, and names a process that is gone."""
    owner = directory.name.removeprefix(_PREFIX).partition("-")[0]
    if not owner.isdecimal() or Path(f"/proc/{owner}").exists():
        return False
    try:
        status = directory.lstat()
    except FileNotFoundError:  # somebody else removes it just now
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


async def remove(directories: Sequence[Path], binaries: ServerBinaries) -> None:
    """End abandoned servers that still run, and delete their directories."""
    for directory in directories:
        with contextlib.suppress(ParleyError):  # somebody else removes it just now
            await PrivateCluster(directory, binaries).remove()


class SimulationServer:
    """A private Postgres with empty databases for simulated nodes."""

    def __init__(self) -> None:
        """Start the server.

        :raises DatabaseUnavailable: no Postgres is installed here, or it does not start.
        """
        self._owner = os.getpid()
        self._numbers = count(1)
        self._directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._started = threading.Event()
        self._fault: BaseException | None = None
        # Whoever starts the server must live as long as it: the kernel ends it with the thread.
        self._thread = threading.Thread(target=self._serve, name="Postgres", daemon=True)
        self._thread.start()
        self._started.wait()
        atexit.register(self.stop)
        if self._fault is not None:
            raise self._fault
        self._free: dict[int, list[NodeStore]] = {}
        self._courts: dict[int, NodeStore] = {}
        self._make_template()

    def _serve(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        try:
            binaries = locate()
            assert isinstance(binaries, ServerBinaries)  # noqa: S101 - no DSN was given
            await remove(abandoned_servers(), binaries)
            cluster = await PrivateCluster.create(
                self._directory,
                binaries,
                connections_max=_CONNECTIONS_MAX,
                durable=False,
                settings=_SERVER_SETTINGS,
            )
            await cluster.start()
        except BaseException as fault:  # noqa: BLE001 - raised again in the other thread
            self._fault = fault
            return
        finally:
            self._started.set()
        self.path = f"{cluster.socket}/.s.PGSQL.{PORT}"
        await self._ending.wait()
        await cluster.stop()

    def stop(self) -> None:
        """Stop the server and delete its files; only in the process that has started it."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _make_template(self) -> None:
        with self._link("postgres") as link:
            link.run(link.connection.execute(_sql("make_template")))
        with self._link(_TEMPLATE) as link:

            async def set_up() -> None:
                async with link.connection.transaction():
                    await migrating.set_up(link.connection, migrate=False)

            link.run_task(set_up())
            self.tables = [row["name"] for row in link.run(link.connection.fetch(SQL["tables"]))]
            link.run(link.connection.execute(_sql("vacuum", tables=", ".join(self.tables))))
            link.run(link.connection.execute(SQL["forget_sizes"]))

    @contextlib.contextmanager
    def _link(self, database: str) -> Iterator[Link]:
        link = self.connect(database)
        try:
            yield link
        finally:
            link.close()

    def connect(self, database: str) -> Link:
        """Connect to a database, with the types of the program's own connections."""
        link = Link(self.path, database, SUPERUSER, _SETTINGS)
        link.run(prepare_connection(link.connection))
        return link

    def lend(self) -> NodeStore:
        """Return an empty database."""
        free = self._free.setdefault(os.getpid(), [])
        if free:
            return free.pop()
        return self._make(f"n{os.getpid()}_{next(self._numbers)}")

    def _make(self, name: str) -> NodeStore:
        with self._link("postgres") as link:
            link.run(link.connection.execute(_sql("make_database", database=name)))
        return NodeStore(self, name)

    def court(self) -> NodeStore:
        """Return the database of this process in which the rows of all nodes are compared."""
        owner = os.getpid()
        if owner not in self._courts:
            self._courts[owner] = self._make(f"court{owner}")
        return self._courts[owner]

    def take_back(self, store: NodeStore) -> None:
        """Empty a database for the next world, or drop it if its schema was changed."""
        if store.spoiled:
            store.close()
            with self._link("postgres") as link:
                link.run(link.connection.execute(_sql("drop_database", database=store.name)))
        else:
            store.empty()
            self._free[os.getpid()].append(store)


class Listener(Protocol):
    """A process that hears of commits."""

    def deliver_notifications(self, payloads: Sequence[str]) -> None:
        """Take the notifications of a commit."""


class User(Protocol):
    """A process that uses the database."""

    def lose(self) -> None:
        """Lose all connections."""


def _nothing() -> None:
    """Ignore that it went away."""


@dataclass
class _Suspended:
    """A statement that waits for a lock; ``over`` is done once it has its answer."""

    call: Call
    over: asyncio.Future[None]


class NodeStore:
    """The database of one simulated node: what outlives its processes."""

    def __init__(self, server: SimulationServer, name: str) -> None:
        self._server = server
        self.name = name
        self.spoiled = False
        self._idle: list[Link] = []
        self._pids: set[int] = set()
        self._suspended: dict[Link, _Suspended] = {}
        self._told: list[str] = []
        self._unread = 0
        self.listening: dict[Listener, None] = {}
        self.users: dict[User, None] = {}
        self.away = False
        """True while processes cannot reach it."""
        self.fuse: int | None = None
        """The number of beginnings and ends of statements after which it goes away."""
        self.on_lost: Callable[[], None] = _nothing
        self._watcher = server.connect(name)

    def empty(self) -> None:
        """Delete all that a world has left."""
        for link in self._idle:
            assert not link.connection.is_in_transaction()  # noqa: S101 - rolled back before
        self._told.clear()
        self.listening.clear()
        self.users.clear()
        self.away, self.fuse, self.on_lost = False, None, _nothing
        watcher = self._watcher
        execute = watcher.connection.execute
        filled = [_sql("filled", table=table) for table in self._server.tables]
        names = [row["name"] for row in self.read(" UNION ALL ".join(filled))]
        watcher.run(execute(SQL["unguarded"]))
        watcher.run(execute("".join(_sql("delete", table=name) for name in names)))
        watcher.run(watcher.connection.fetch(SQL["first_numbers"]))
        watcher.run(execute(_sql("vacuum", tables=", ".join(names))))
        watcher.run(execute(SQL["forget_sizes"]))
        watcher.run(execute("; ".join(_FIRST_ROWS.findall(schema.schema_text()))))
        watcher.run(execute(SQL["guarded"]))

    def close(self) -> None:
        """Close all connections."""
        for link in (*self._idle, self._watcher):
            link.close()

    def spoil(self, statement: str) -> None:
        """Change the schema; no other world gets this database."""
        self.spoiled = True
        self.write(statement)

    def back_up(self) -> None:
        """Keep a copy of all rows in the place of an earlier one."""
        self.spoiled = True
        watcher = self._watcher
        copies = [_sql("copy", table=table) for table in self._server.tables]
        watcher.run(watcher.connection.execute("".join([SQL["begin_backup"], *copies])))

    def restore(self) -> None:
        """Put back the rows of the copy; the numbers of later rows go on."""
        self.write(SQL["unguarded"])
        for table in self._server.tables:
            columns = ", ".join(row["name"] for row in self.read(SQL["columns"], table))
            self.write(_sql("delete", table=table))
            self.write(_sql("copy_back", table=table, columns=columns))
        self.write(SQL["guarded"])

    def read(self, query: str, *args: Any) -> list[Record]:
        """Return rows as of now, for who looks at the world from outside."""
        return self._watcher.run(self._watcher.connection.fetch(query, *args))

    def write(self, query: str, *args: Any) -> None:
        """Change rows as no process of the node does."""
        self._watcher.run(self._watcher.connection.execute(query, *args))

    def take(self) -> Link:
        """Return a connection that nobody uses."""
        if self._idle:
            return self._idle.pop()
        link = self._server.connect(self.name)
        self._pids.add(link.pid)
        link.run(link.connection.add_listener(CHANNEL, self._take_notification))
        return link

    def give_back(self, link: Link) -> None:
        """Keep a connection for the next user."""
        link.transport.forget_begin()
        self._idle.append(link)

    def _take_notification(self, connection: Any, pid: int, _channel: str, payload: object) -> None:
        """Take a notification, once: from the connection that has sent it."""
        if pid == connection.get_server_pid():
            self._told.append(str(payload))

    async def run(self, link: Link, work: Coroutine[Any, Any, Any], *, ends: bool) -> Any:
        """Execute a method of a connection; wait while it waits for a lock."""
        call = link.begin(work, partial(self._waits, link))
        if not call.done:
            link.stop()
            suspended = _Suspended(call, asyncio.get_running_loop().create_future())
            self._suspended[link] = suspended
            try:
                await suspended.over
            finally:
                if self._suspended.get(link) is suspended:
                    self.break_off(link)
        if ends:
            self.let_others_go_on()
        return call.answer()

    def let_others_go_on(self) -> None:
        """Go on with statements that waited for a transaction which has ended; tell of commits.

        One after the other, in the order in which they came: while one goes on, all others that
        wait are stopped, also those to which the server has given their lock.
        """
        if self._told:
            self._tell()
        for link, suspended in list(self._suspended.items()):
            if link not in self._suspended or self._waits(link):
                continue
            link.go_on()
            link.proceed(suspended.call, partial(self._waits, link))
            if not suspended.call.done:
                link.stop()
                continue
            del self._suspended[link]
            if not suspended.over.done():
                suspended.over.set_result(None)

    def _tell(self) -> None:
        """Tell of a commit, and have idle connections read of commits before there are too many."""
        told, self._told = self._told, []
        for listener in list(self.listening):
            listener.deliver_notifications(told)
        self._unread += 1
        if self._unread == _UNREAD_MAX:
            self._unread = 0
            for link in self._idle:
                link.take_notices()

    def break_off(self, link: Link) -> None:
        """End a statement that waits for a lock, if this connection has one."""
        suspended = self._suspended.pop(link, None)
        if suspended is not None:
            self._end(link, suspended.call)

    def lose(self, link: Link) -> None:
        """Break a connection: a statement on it that waits for a lock fails."""
        suspended = self._suspended.pop(link, None)
        if suspended is not None:
            self._end(link, suspended.call)
            suspended.call.fail(LostConnection("connection was closed in the middle of operation"))
            if not suspended.over.done():
                suspended.over.set_result(None)

    def go_away(self) -> None:
        """Break all connections, and accept none before :meth:`come_back`."""
        self.away, self.fuse = True, None
        for user in list(self.users):
            user.lose()
        self.let_others_go_on()

    def come_back(self) -> None:
        """Accept connections again."""
        self.away = False

    def pass_statement(self) -> None:
        """Go away if this is the statement for it: before it is executed, or just after.

        :raises LostConnection: it went away.
        """
        if self.fuse is None:
            return
        self.fuse -= 1
        if self.fuse < 0:
            self.go_away()
            self.on_lost()
            raise LostConnection("connection was closed in the middle of operation")

    def _end(self, link: Link, call: Call) -> None:
        """Cancel a statement that waits for a lock: before it goes on, even if it has the lock."""
        self._cancel(link)
        link.go_on()
        link.finish(call)

    def _cancel(self, link: Link) -> None:
        self.read(SQL["cancel"], link.pid)

    def _waits(self, link: Link) -> bool:
        """Return whether a statement waits for a lock; break it off if that would be for ever.

        Only transactions of this database count. Those of other worlds, in other processes, lock
        what all databases share (when they commit notifications) for a moment of real time.
        """
        [row] = self.read(SQL["blockers"], link.pid)
        chain = self._pids.intersection(row["chain"])
        if link.pid in chain:
            link.deadlocked = True
            self._cancel(link)
            return False
        return bool(chain)


_SERVER: list[SimulationServer] = []


def server() -> SimulationServer:
    """Return the server of this process, or of the one that has forked it.

    :raises DatabaseUnavailable: no Postgres is installed here, or it does not start.
    """
    if not _SERVER:
        _SERVER.append(SimulationServer())
    return _SERVER[0]


def tell_nobody(_ready: int) -> None:
    """Ignore how far it is: nobody asked."""


@contextlib.contextmanager
def lent(count: int, preparing: Callable[[int], None] = tell_nobody) -> Iterator[list[NodeStore]]:
    """Lend empty databases to a world, and empty them after it.

    ``preparing`` is called with the number of those that are ready, before each.

    :raises DatabaseUnavailable: no Postgres is installed here, or it does not start.
    """
    preparing(0)
    ours = server()
    stores: list[NodeStore] = []
    for number in range(count):
        preparing(number)
        stores.append(ours.lend())
    try:
        yield stores
    finally:
        for store in stores:
            ours.take_back(store)
