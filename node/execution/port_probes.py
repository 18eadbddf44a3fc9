"""Probes of the ports that tools use: one node answers at a port, another one tries to reach it.

What is answered is what was sent, if that is the number that was agreed on, so nobody can have more
sent than they send themselves. One probe is open at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import cast

from node.model import times
from node.model.diagnosis import PROBE_TIME
from node.model.errors import HostError, TooManyRequests
from node.store import bookings
from node.store.core import Core

_LINGER_S = 1
"""Time for which it stays open once it was reached: an answer may be lost, and asked for again."""

_TRIES = 20
"""Maximum number of ports that are tried to find one that no other program has."""
_DATAGRAMS = 4
_PROTOCOLS = ("TCP", "UDP")
_NONCE_BYTES = 32


@dataclass(frozen=True)
class PortReach:
    """The result of a probe: why a port cannot be reached; None if it can."""

    port: int
    tcp: str | None
    udp: str | None


class _Probe:
    """A number to be answered, and the protocols over which it has come."""

    def __init__(self, nonce: bytes) -> None:
        self.nonce = nonce
        self.over_both = asyncio.Event()
        self._came: set[str] = set()

    def note_arrival(self, protocol: str) -> None:
        """Note that the number has come."""
        self._came.add(protocol)
        if len(self._came) == len(_PROTOCOLS):
            self.over_both.set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the number back over TCP."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(PROBE_TIME / times.SECOND):
                if await reader.readexactly(_NONCE_BYTES) == self.nonce:
                    self.note_arrival("TCP")
                    writer.write(self.nonce)
                    await writer.drain()
        writer.close()


class PortProbes:
    """Answers probes of other nodes at the ports of this host's tools."""

    def __init__(self, core: Core, rng: random.Random) -> None:
        """``rng`` chooses the ports."""
        self._database = core.database
        self._settings = core.settings
        self._clock = core.clock
        self._rng = rng
        self._open: asyncio.Task[None] | None = None

    async def open(self, nonce: str) -> int:
        """Answer this number for some seconds at a port; return the port.

        :raises TooManyRequests: another probe is open.
        :raises HostError: no port is free.
        """
        if self._open is not None and not self._open.done():
            msg = "ports of this host are being probed already"
            raise TooManyRequests(msg, _LINGER_S)
        bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._open = asyncio.create_task(self._serve(_Probe(nonce.encode()), bound), name="probe")
        return await bound

    async def close(self) -> None:
        """Close what is open."""
        if self._open is not None:
            self._open.cancel()
            await asyncio.gather(self._open, return_exceptions=True)

    async def _serve(self, probe: _Probe, bound: asyncio.Future[int]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            try:
                bound.set_result(await self._bind(probe, stack))
            except Exception as error:  # noqa: BLE001 - raised to who waits for the port
                bound.set_exception(error)
                return
            finally:
                bound.cancel()  # no effect if it is done
            lasting = asyncio.create_task(self._clock.sleep(PROBE_TIME / times.SECOND))
            reached = asyncio.create_task(probe.over_both.wait())
            try:
                await asyncio.wait({lasting, reached}, return_when=asyncio.FIRST_COMPLETED)
                if reached.done():
                    await self._clock.sleep(_LINGER_S)
            finally:
                lasting.cancel()
                reached.cancel()

    async def _bind(self, probe: _Probe, stack: contextlib.AsyncExitStack) -> int:
        """Listen at a port of the tools that no run has, and no other program.

        :raises HostError: there is none.
        """
        async with self._database.connection() as connection:
            used = await bookings.ports_in_use(connection)
        settings = self._settings
        # A tool of one port may use the next one, too.
        free = [port for port in settings.tool_ports if used.isdisjoint({port, port - 1})]
        why = "runs have all of them"
        for port in self._rng.sample(free, min(_TRIES, len(free))):
            try:
                await self._listen(port, probe, stack)
            except OSError as error:
                why = f"port {port}: {error.strerror or error}"
            else:
                return port
        msg = (
            f"no port of {settings.port_first}-{settings.port_last} is free for a probe "
            f"({why}; PARLEY_PORT_FIRST, PARLEY_PORT_LAST)"
        )
        raise HostError(msg)

    async def _listen(self, port: int, probe: _Probe, stack: contextlib.AsyncExitStack) -> None:
        loop, address = asyncio.get_running_loop(), self._settings.measurement_address
        family, *_, place = (await loop.getaddrinfo(address, port))[0]
        try:
            await self._listen_at(str(place[0]), port, probe, stack)
        except OSError:
            # Behind NAT the address is not one of this host.
            everywhere = "::" if family == socket.AF_INET6 else "0.0.0.0"  # noqa: S104
            await self._listen_at(everywhere, port, probe, stack)

    async def _listen_at(
        self, host: str, port: int, probe: _Probe, stack: contextlib.AsyncExitStack
    ) -> None:
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as failing:
            server = await asyncio.start_server(probe.answer, host, port)
            failing.callback(server.close)
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _UdpAnswerer(probe), local_addr=(host, port)
            )
            failing.callback(transport.close)
            stack.push_async_exit(failing.pop_all())


class _UdpAnswerer(asyncio.DatagramProtocol):
    """Sends the right number back to whoever sends it."""

    def __init__(self, probe: _Probe) -> None:
        self._probe = probe
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer."""
        if data == self._probe.nonce and self._transport is not None:
            self._probe.note_arrival("UDP")
            self._transport.sendto(data, addr)


class _UdpWaiter(asyncio.DatagramProtocol):
    """Waits for the right number."""

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, _addr: tuple[str, int]) -> None:
        """Finish if it is the answer."""
        if data == self._nonce and not self.answered.done():
            self.answered.set_result(None)

    def error_received(self, exc: Exception) -> None:
        """Finish with what the network tells, such as that the port is closed."""
        if not self.answered.done():
            self.answered.set_exception(exc)


async def reach(address: str, port: int, nonce: str, timeout_s: float) -> PortReach:
    """Try to reach a port that answers this number, over TCP and UDP at once."""
    tcp, udp = await asyncio.gather(
        _fault_of_attempt(_try_tcp(address, port, nonce.encode()), timeout_s),
        _fault_of_attempt(
            _try_udp(address, port, nonce.encode(), timeout_s / _DATAGRAMS), timeout_s
        ),
    )
    return PortReach(port, tcp, udp)


async def _fault_of_attempt(attempt: Awaitable[None], timeout_s: float) -> str | None:
    try:
        async with asyncio.timeout(timeout_s):
            await attempt
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (OSError, asyncio.IncompleteReadError) as error:
        return getattr(error, "strerror", None) or str(error)
    return None


async def _try_tcp(address: str, port: int, nonce: bytes) -> None:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(nonce)
        if await reader.readexactly(len(nonce)) != nonce:
            msg = "another program answers"
            raise OSError(msg)
    finally:
        writer.close()


async def _try_udp(address: str, port: int, nonce: bytes, pause_s: float) -> None:
    """Send datagrams until one is answered; one may be lost."""
    loop = asyncio.get_running_loop()
    transport, waiter = await loop.create_datagram_endpoint(
        lambda: _UdpWaiter(nonce), remote_addr=(address, port)
    )
    try:
        while not waiter.answered.done():
            transport.sendto(nonce)
            await asyncio.wait({waiter.answered}, timeout=pause_s)
        waiter.answered.result()
    finally:
        transport.close()
