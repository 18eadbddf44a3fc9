"""The wires between the nodes: TCP proxies, one for each direction, that can be cut and slowed.

A node knows each other node by the address of the wire that leads there. The states of a wire:

* ``cut``: connections end at once and new ones are refused, as when a router is gone;
* ``black hole``: everything is dropped, as by a firewall; the sender runs into its timeout;
* ``loses answers``: requests arrive, and their connections end before the answers;
* ``slow``: every piece is delayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum


class WireState(StrEnum):
    """The treatment of what is sent over a wire."""

    UP = "up"
    CUT = "cut"
    BLACK_HOLE = "black hole"
    LOSES_ANSWERS = "loses answers"
    SLOW = "slow"


class _End(asyncio.Protocol):
    """An end of a connection; data that arrives here leaves at the other end."""

    def __init__(self, relay: Callable[[bytes], None], over: Callable[[], None]) -> None:
        self.transport: asyncio.Transport | None = None
        self._relay = relay
        self._over = over

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._relay(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._over()

    def send(self, data: bytes) -> None:
        """Send data on; data for a closed connection is dropped."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)


class _Refused(asyncio.Protocol):
    """The protocol for callers of a cut wire, which aborts at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class _Call:
    """A connection from one node to another."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._early: list[bytes] = []
        self.near = _End(self._there, self.end)
        self.far: _End | None = None
        self._dialling: asyncio.Task[None] | None = None

    def dial(self) -> None:
        self._dialling = asyncio.create_task(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, self.far = await loop.create_connection(
                lambda: _End(self._back, self.end), self._wire.host, self._wire.port
            )
        except OSError:
            self.end()
            return
        for data in self._early:
            self.far.send(data)

    def _there(self, data: bytes) -> None:
        self._wire.carry(lambda: self._forward(data))

    def _forward(self, data: bytes) -> None:
        if self.far is None:
            self._early.append(data)
        else:
            self.far.send(data)

    def _back(self, data: bytes) -> None:
        if self._wire.state is WireState.LOSES_ANSWERS:
            self._wire.lost_answers += 1
            self.end()
        else:
            self._wire.carry(lambda: self.near.send(data))

    def end(self) -> None:
        self._wire.calls.discard(self)
        if self._dialling is not None:
            self._dialling.cancel()
        for side in (self.near, self.far):
            if side is not None and side.transport is not None:
                side.transport.abort()


class Wire:
    """The connection from one node to another, with a listening port of its own."""

    def __init__(self, source: str, target: str, host: str, port: int) -> None:
        """Create a wire to a target that listens at ``host`` and ``port``."""
        self.source = source
        self.target = target
        self.host = host
        self.port = port
        self.state = WireState.UP
        self.delay_s = 0.0
        self.lost_answers = 0
        self.calls: set[_Call] = set()
        self.url = ""
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen on a free port of the loopback interface."""
        self._server = await asyncio.get_running_loop().create_server(self._answer, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"

    def _answer(self) -> asyncio.Protocol:
        if self.state is WireState.CUT:
            return _Refused()
        call = _Call(self)
        self.calls.add(call)
        call.dial()
        return call.near

    def carry(self, sending: Callable[[], None]) -> None:
        """Call ``sending`` at once, later, or not at all, depending on the state."""
        if self.state is WireState.SLOW:
            asyncio.get_running_loop().call_later(self.delay_s, sending)
        elif self.state is not WireState.BLACK_HOLE:
            sending()

    def set_state(self, state: WireState, delay_s: float = 0.0) -> None:
        """Change the state; open connections end if the wire is cut, or has dropped their data."""
        healing = self.state is WireState.BLACK_HOLE
        self.state, self.delay_s = state, delay_s
        if state is WireState.CUT or healing:
            for call in list(self.calls):
                call.end()

    async def close(self) -> None:
        """End all calls and stop listening."""
        if self._server is not None:
            self._server.close()
        for call in list(self.calls):
            call.end()
