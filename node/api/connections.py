"""Limit the connections to a node: in all, and from one address.

aiohttp has no such limits, so its protocol is wrapped in one that counts. At a limit the connection
that has been idle for longest makes room for the new one: whoever opens hundreds and says nothing
loses their own. Then event streams make room, the oldest first: their readers resume where they
were. If every other connection has a request under way, the new one is refused.

The first byte of a connection tells whether it speaks TLS. It counts from the moment it is opened,
and has a time limit until it has said so and agreed on a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
from aiohttp import web

from node.model.errors import Overloaded
from node.model.loopback import network_of
from node.model.wire.problems import MEDIA_TYPE, problem_of

OPENING_S = 10.0
"""Maximum seconds for the first byte of a connection and, with TLS, its handshake."""

_HANDSHAKE = b"\x16"
"""The first byte of TLS, and of no HTTP request."""
_CLOSING_S = 2.0

# Every TLS connection reserves this much to read into. asyncio's 256 KiB would let a stranger who
# opens all connections that a node accepts take 300 MB of its memory; a record of TLS has 16 KiB.
SSLProtocol.max_size = 32_768


@dataclass
class _Caller:
    """The connections from one address: those that can make room, each kind by age."""

    local: bool
    open: int = 0
    idle: dict[CountedConnection, None] = field(default_factory=dict)
    streams: dict[CountedConnection, None] = field(default_factory=dict)


class ConnectionLimits:
    """Makes the protocols of a server, and counts those that are connected."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        connections_max: int,
        per_address_max: int,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Wrap the protocols that ``make`` returns.

        ``per_address_max`` is for other hosts; those of a proxy or a lab on this host are many.
        ``tls()`` returns the context for a connection that begins with a handshake; without it
        there is no TLS.
        """
        self._make = make
        self.tls = tls
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._callers: dict[str, _Caller] = {}
        self._open = 0

    def __call__(self) -> CountedConnection:
        """Return the protocol of a new connection."""
        return CountedConnection(self, self._make())

    def admit(self, connection: CountedConnection) -> bool:
        """Count a connection that was opened; False if there is no room for it."""
        address, local = network_of(connection.remote)
        caller = self._callers.get(address) or _Caller(local)
        if not local and caller.open >= self._per_address_max and not self._make_room(caller):
            return False
        if self._open >= self._connections_max:
            callers = self._callers.values()
            most = max(callers, key=lambda each: len(each.idle) + len(each.streams))
            if not self._make_room(most):
                return False
        self._callers[address] = caller
        connection.caller = caller
        caller.open += 1
        caller.idle[connection] = None
        self._open += 1
        return True

    def _make_room(self, caller: _Caller) -> bool:
        """End the connection of a caller that can be missed most; False if none can."""
        longest = next((each for each in caller.idle if not each.is_writing), None)
        longest = longest or next(iter(caller.streams), None)
        if longest is None:
            return False
        self.forget(longest)
        longest.abort()
        return True

    def forget(self, connection: CountedConnection) -> None:
        """Count a connection no more that was counted."""
        caller, connection.caller = connection.caller, None
        if caller is None:
            return
        caller.idle.pop(connection, None)
        caller.streams.pop(connection, None)
        caller.open -= 1
        self._open -= 1
        if not caller.open:
            del self._callers[network_of(connection.remote)[0]]


class CountedConnection(asyncio.Protocol):
    """A connection that counts, around aiohttp's protocol for it."""

    def __init__(self, limits: ConnectionLimits, inner: asyncio.Protocol) -> None:
        """Wrap ``inner``, which learns of the connection if there is room for it."""
        self._limits = limits
        self._inner = inner
        self._admitted = False
        self._served = False
        self._opening: asyncio.Task[None] | None = None
        self._early = bytearray()
        self._transport: asyncio.Transport | None = None
        self.remote = ""
        self.caller: _Caller | None = None

    @property
    def is_writing(self) -> bool:
        """Return whether an answer is still being sent."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the connection on, or answer that there is no room for it."""
        self._transport = cast(asyncio.Transport, transport)
        self.remote = str((transport.get_extra_info("peername") or [""])[0])
        self._admitted = self._limits.admit(self)
        if not self._admitted:
            self._transport.write(_refusal_bytes())
            self._transport.close()
        elif self._limits.tls is None:
            self._serve(self._transport)
        else:
            self._opening = asyncio.create_task(self._open(self._transport, self._limits.tls))

    async def _open(self, wire: asyncio.Transport, tls: Callable[[], ssl.SSLContext]) -> None:
        """Serve the connection, with TLS if it begins like that."""
        # The handshake needs its first byte, too. Not in connection_made: Python 3.11.2, which
        # Debian 12 has, begins to read after that, even if it was paused there.
        wire.pause_reading()
        loop = asyncio.get_running_loop()
        transport: asyncio.Transport | None = wire
        try:
            async with asyncio.timeout(OPENING_S):
                if await _first_byte(wire) == _HANDSHAKE:
                    transport = await loop.start_tls(
                        wire,
                        self,
                        tls(),
                        server_side=True,
                        ssl_handshake_timeout=OPENING_S,
                        ssl_shutdown_timeout=_CLOSING_S,
                    )
        except OSError:  # also what TLS objects to, and a time that is over
            transport = None
        if transport is None or transport.is_closing():
            wire.abort()
            self._limits.forget(self)
            return
        self._serve(transport)
        if transport is wire:
            wire.resume_reading()

    def _serve(self, transport: asyncio.Transport) -> None:
        self._transport, self._served = transport, True
        self._inner.connection_made(transport)
        if self._early:
            self._inner.data_received(bytes(self._early))
            self._early.clear()

    def begin(self) -> None:
        """Keep the connection while a request is under way."""
        if self.caller is not None:
            self.caller.idle.pop(self, None)

    def end(self) -> None:
        """Let the connection make room for others again."""
        if self.caller is not None:
            self.caller.idle[self] = None

    def give_way(self) -> None:
        """Let the connection make room for others although its request is under way."""
        if self.caller is not None:
            self.caller.streams[self] = None

    def keep(self) -> None:
        """Keep the connection again while its request is under way."""
        if self.caller is not None:
            self.caller.streams.pop(self, None)

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Pass data on."""
        if self._served:
            self._inner.data_received(data)
        elif self._admitted:
            self._early += data  # came with the end of the handshake

    def eof_received(self) -> bool | None:
        """Pass on that the other side has ended."""
        return self._inner.eof_received() if self._served else None

    def pause_writing(self) -> None:
        """Pass on that the other side does not read."""
        if self._served:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the other side reads again."""
        if self._served:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the connection has ended, and stop counting it."""
        self._limits.forget(self)
        if self._opening is not None:
            self._opening.cancel()
        if self._served:
            self._inner.connection_lost(exc)


@web.middleware
async def keep_connection(
    request: web.Request, handler: Callable[[web.Request], Awaitable[Any]]
) -> web.StreamResponse:
    """Mark the connection of a request as needed until the answer is ready."""
    connection = _connection_of(request)
    if connection is None:
        return cast(web.StreamResponse, await handler(request))
    connection.begin()
    try:
        return cast(web.StreamResponse, await handler(request))
    finally:
        connection.end()


@contextlib.contextmanager
def giving_way(request: web.Request) -> Iterator[None]:
    """Let the connection of a request be ended meanwhile where there is no room for another one."""
    connection = _connection_of(request)
    if connection is None:
        yield
        return
    connection.give_way()
    try:
        yield
    finally:
        connection.keep()


def _connection_of(request: web.Request) -> CountedConnection | None:
    connection = request.transport.get_protocol() if request.transport is not None else None
    return connection if isinstance(connection, CountedConnection) else None


async def _first_byte(transport: asyncio.Transport) -> bytes:
    """Return the first byte that comes, and leave it there; nothing if the other side has ended.

    :raises OSError: the connection is lost.
    """
    loop = asyncio.get_running_loop()
    # The loop does not let others wait for the descriptor of a transport.
    with transport.get_extra_info("socket").dup() as connection:
        while True:
            with contextlib.suppress(BlockingIOError):
                return cast(bytes, connection.recv(1, socket.MSG_PEEK))
            readable = asyncio.Event()
            loop.add_reader(connection.fileno(), readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(connection.fileno())


def _refusal_bytes() -> bytes:
    msg = "the node has as many connections as it accepts; try again later"
    body = orjson.dumps(problem_of(Overloaded(msg)).model_dump(mode="json"))
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
        f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
