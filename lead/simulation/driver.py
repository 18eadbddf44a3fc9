"""asyncpg over blocking sockets: a statement is executed in the call, and no event loop turns.

A world in virtual time cannot wait for input: its loop knows no sockets, and whatever happened
meanwhile would depend on the speed of the host. So the connections of simulated databases are those
of production (asyncpg with its codecs, prepared statements, records and errors), but below them is
a transport that writes and reads at once. asyncpg's coroutines suspend only to wait for an answer;
:class:`Call` runs one and reads from the socket each time it does so.

A backend may wait for a lock that another transaction of the same world holds. It is found by
asking the server who blocks it, once an answer takes long. While a world executes a statement all
other transactions stand still, so whether this one has to wait depends on them alone and not on
time: the same world waits at the same statements on each host. Where several wait for one row,
Postgres lets any of them go first once it is free: whichever the host runs first. So a backend that
waits is stopped (``SIGSTOP``), and the world lets one after the other go on.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeAlias, TypeVar, cast

import asyncpg

from lead.simulation.loop import VirtualLoop
from node.execution import proctable

SerializationError: TypeAlias = asyncpg.SerializationError
LostConnection: TypeAlias = asyncpg.ConnectionDoesNotExistError

T = TypeVar("T")

_CHUNK = 1 << 18
_BUFFER = 1 << 22
"""Size of a socket's buffers: a batch of statements is written before an answer is read."""
_PATIENCE_S = 0.003
"""Time for an answer after which it is asked whether the statement waits for a lock."""
_BEGIN = b"Q\0\0\0\x0aBEGIN\0"
_BEGUN = b"CZ"
"""The messages with which the server answers it: complete, and ready."""
_HEAD = 5
_STATEMENTS = 1000
"""More prepared statements than there are named queries."""

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class _Transport(asyncio.Transport):
    """A connected socket that blocks, as asyncpg's protocol uses it."""

    def __init__(self, protocol: Any, path: str) -> None:
        super().__init__()
        self.protocol = protocol
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        self.socket.connect(path)
        self.socket.settimeout(_PATIENCE_S)
        self._closing = False
        self._begins = False
        self._begun = 0
        self._cut_off = b""
        self._owner = os.getpid()
        protocol.connection_made(self)

    def write(self, data: Any) -> None:
        if os.getpid() != self._owner:
            return  # a copy in a forked process is collected as garbage, and would say goodbye
        if self._begins:
            self._begins, self._begun = False, len(_BEGUN)
            data = b"".join((_BEGIN, data))
        try:
            self.socket.sendall(data)
        except OSError as error:
            self._note_lost(error)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def receive(self) -> bool:
        """Pass on what the server has sent; return whether it sent anything in time."""
        try:
            data = self.socket.recv(_CHUNK)
        except TimeoutError:
            return False
        except OSError as error:
            self._note_lost(error)
            return True
        if not data:
            self._note_lost(None)
        elif rest := self._after_begin(data) if self._begun else data:
            self.protocol.data_received(rest)
        return True

    def take_unasked(self) -> None:
        """Pass on what the server has sent unasked: notifications of others."""
        waiting = select.poll()
        waiting.register(self.socket, select.POLLIN)
        while not self._closing and waiting.poll(0):
            self.receive()

    def begin_with_next(self) -> None:
        """Begin a transaction together with the next statement, without waiting in between."""
        self._begins = True

    def forget_begin(self) -> None:
        """Begin none, if no statement came."""
        self._begins = False

    def _after_begin(self, data: bytes) -> bytes:
        """Return what was received without the answer to ``BEGIN``, of which asyncpg knows nothing.

        Notifications may come before it.
        """
        data, passed = self._cut_off + data, bytearray()
        while self._begun and len(data) >= _HEAD:
            length = 1 + int.from_bytes(data[1:_HEAD], "big")
            if len(data) < length:
                break
            if data[0] in _BEGUN:
                self._begun -= 1
            else:
                passed += data[:length]
            data = data[length:]
        self._cut_off = data if self._begun else b""
        return bytes(passed) if self._begun else bytes(passed) + data

    def _note_lost(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self.socket.close()
            self.protocol.connection_lost(error)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self._note_lost(None)

    def close(self) -> None:
        self._note_lost(None)


class _Loop(VirtualLoop):
    """The loop that asyncpg's objects belong to; it turns while a connection is made."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: _Transport | None = None

    async def create_unix_connection(  # type: ignore[override] # all that asyncpg passes
        self, protocol_factory: Callable[[], Any], path: str
    ) -> tuple[_Transport, Any]:
        protocol = protocol_factory()
        self.opened = _Transport(protocol, path)
        return self.opened, protocol

    def _jump(self) -> None:
        """Read from the connection that is being made, instead of letting time pass."""
        assert self.opened is not None  # noqa: S101 - nothing else is waited for
        self.opened.receive()

    def finish(self) -> None:
        """Run the callbacks of what was just answered: notifications, mostly."""
        ready = self._ready
        while ready:
            step = ready.popleft()
            if not step.gone:
                step.callback(*step.args)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as a task, apart from the loop that is running."""
        outer = events._get_running_loop()  # noqa: SLF001 - documented for writers of event loops
        events._set_running_loop(None)  # noqa: SLF001 - the same
        try:
            result: T = Context().run(self.run_until_complete, work)
            return result
        finally:
            events._set_running_loop(outer)  # noqa: SLF001 - the same


class Call:
    """A statement that is being executed: it ends at once, or waits for a lock."""

    __slots__ = ("_awaited", "_outcome", "_work", "done")

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._outcome: tuple[Any, BaseException | None] = (None, None)
        self.done = False
        self._step()

    def _step(self) -> None:
        try:
            self._awaited = self._work.send(None)
        except StopIteration as end:
            self.done, self._outcome = True, (end.value, None)
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is taken
            self.done, self._outcome = True, (None, error)

    def proceed(self, transport: _Transport, blocked: Callable[[], bool]) -> None:
        """Read answers until it is done, or ``blocked`` says that it waits for a lock."""
        while not self.done:
            awaited = self._awaited
            while awaited is not None and not awaited.done():
                if not transport.receive() and blocked():
                    return
            self._step()

    def fail(self, error: BaseException) -> None:
        """Put an error in the place of the one that ended it."""
        self._outcome = (None, error)

    def answer(self) -> Any:
        """Return the answer, or raise the error; only when done."""
        value, error = self._outcome
        if error is not None:
            raise error
        return value


class Link:
    """A connection to a database of the simulation."""

    def __init__(self, path: str, database: str, user: str, settings: dict[str, str]) -> None:
        self._loop = cast("Callable[[], _Loop]", _Loop)()
        self.connection: Connection = self._loop.run(
            asyncpg.connect(
                host=path.rpartition("/")[0],
                port=int(path.rpartition(".")[2]),
                user=user,
                database=database,
                loop=cast("asyncio.AbstractEventLoop", self._loop),
                statement_cache_size=_STATEMENTS,
                max_cached_statement_lifetime=0,
                server_settings=settings,
            )
        )
        self.pid = self.connection.get_server_pid()
        self.transport = cast("_Transport", self._loop.opened)
        self.deadlocked = False
        """True if the world breaks off its statement, which would wait forever."""

    def begin(self, work: Coroutine[Any, Any, Any], blocked: Callable[[], bool]) -> Call:
        """Execute a method of the connection until it is done or waits for a lock."""
        call = Call(work)
        self.proceed(call, blocked)
        return call

    def proceed(self, call: Call, blocked: Callable[[], bool]) -> None:
        """Go on with a call that waited for a lock."""
        call.proceed(self.transport, blocked)
        self._loop.finish()
        if self.deadlocked and call.done:
            self.deadlocked = False
            call.fail(asyncpg.DeadlockDetectedError("deadlock detected"))

    def finish(self, call: Call) -> None:
        """Go on with a call that waits for nothing but its answer."""
        self.proceed(call, _is_never_blocked)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Execute a method of the connection, which waits for nothing but its answer."""
        answer: T = self.begin(work, _is_never_blocked).answer()
        return answer

    def run_task(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that uses the connection and also needs a loop."""
        return self._loop.run(work)

    def take_notices(self) -> None:
        """Read the notifications that have come while nobody used it.

        A backend whose client reads none of them waits some day for the room to send one, and all
        who wait for each backend (``DROP DATABASE``) wait for it.
        """
        self.transport.take_unasked()
        self._loop.finish()

    def stop(self) -> None:
        """Stop the backend, which waits for a lock, and return when it stands still.

        It holds nothing that others need to go on but its locks: whoever waits in the server has
        released everything else before.
        """
        os.kill(self.pid, signal.SIGSTOP)
        while not proctable.is_stopped(self.pid):
            os.sched_yield()

    def go_on(self) -> None:
        """Let the backend run again."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Close the connection without a word to the server."""
        self.transport.abort()
        self._loop.finish()


def _is_never_blocked() -> bool:
    return False
