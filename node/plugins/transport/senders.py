"""Streams and datagrams to one address, kept open between batches.

Neither says that the other side has taken what was sent. A stream whose other side has closed it is
noticed before and after each batch, and a port where nobody listens at once on the same host; what
a network loses without a word is lost. Both raise OSError, and TimeoutError where it takes long.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Sequence
from typing import Any

from node.model import times
from node.model.errors import ArchiverFailed
from node.plugins.contracts import DeliveryOutcome, DeliveryStatus


class StreamSender:
    """A TCP connection."""

    def __init__(self, host: str, port: int, timeout: int) -> None:
        """``timeout`` (µs) is for connecting, and for each batch. Nothing is connected yet."""
        self._host = host
        self._port = port
        self._seconds = timeout / times.SECOND
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, pieces: Sequence[bytes]) -> None:
        """All of it in one go."""
        try:
            async with asyncio.timeout(self._seconds):
                reader, writer = await self._connected()
                writer.writelines(pieces)
                await writer.drain()
                await _still_open(reader)
        except BaseException:
            self.close()
            raise

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._open is not None and self._open[0].at_eof():
            self.close()
        if self._open is None:
            self._open = await asyncio.open_connection(self._host, self._port)
            self._open[1].transport.set_write_buffer_limits(high=0)  # drained: the kernel has it
        return self._open

    async def connect(self) -> None:
        """Only connect."""
        async with asyncio.timeout(self._seconds):
            await self._connected()

    def close(self) -> None:
        """Close the connection, if there is one."""
        found, self._open = self._open, None
        if found is not None:
            found[1].close()


async def _still_open(reader: asyncio.StreamReader) -> None:
    """What the other side says is not for us, but that it has gone is.

    :raises ConnectionError: it has.
    """
    try:
        async with asyncio.timeout(0):
            said = await reader.read(65_536)
    except TimeoutError:
        return
    if not said:
        msg = "the other side closed the connection"
        raise ConnectionError(msg)


class DatagramSender:
    """A connected datagram socket: UDP, or a path on this host."""

    def __init__(self, address: tuple[str, int] | str, timeout: int) -> None:
        """``timeout`` (µs) is for each batch. Nothing is opened yet."""
        self._address = address
        self._seconds = timeout / times.SECOND
        self._socket: socket.socket | None = None

    async def send(self, pieces: Sequence[bytes]) -> None:
        """Each piece as a datagram."""
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._connected()
                for piece in pieces:
                    await asyncio.get_running_loop().sock_sendall(found, piece)
                _raise_what_came_back(found)
        except BaseException:
            self.close()
            raise

    async def _connected(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        loop = asyncio.get_running_loop()
        address: Any = self._address
        if isinstance(self._address, str):
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        else:
            found = await loop.getaddrinfo(*self._address, type=socket.SOCK_DGRAM)
            made, address = socket.socket(found[0][0], socket.SOCK_DGRAM), found[0][4]
        made.setblocking(False)  # noqa: FBT003 - the socket's own
        self._socket = made
        await loop.sock_connect(made, address)
        return made

    async def connect(self) -> None:
        """Only look it up and open a socket, which says nothing about who listens."""
        async with asyncio.timeout(self._seconds):
            await self._connected()

    def close(self) -> None:
        """Close the socket, if there is one."""
        found, self._socket = self._socket, None
        if found is not None:
            found.close()


def _raise_what_came_back(found: socket.socket) -> None:
    """Raise what the other host answered to a datagram, if it has: nobody listens there."""
    if number := found.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, "nobody listens there" if number == _REFUSED else "not delivered")


_REFUSED = 111
_CALL = re.compile(r"(?:\[Errno (\d+)\] )?Connect call failed \([^)]*\)")

Sender = StreamSender | DatagramSender


class SocketDestination:
    """A destination behind a sender; who inherits says what is sent."""

    def __init__(self, sender: Sender, where: str) -> None:
        """``where`` it leads, in words. Nothing is connected yet."""
        self.sender = sender
        self._where = where

    async def test(self) -> str:
        """Connect, or look the name up.

        :raises ArchiverFailed: there is no such host or socket, or nobody listens there.
        """
        return await try_connection(self.sender, self._where)

    async def close(self) -> None:
        """Close the connection or socket."""
        self.sender.close()


async def send_bytes(sender: Sender, pieces: Sequence[bytes]) -> DeliveryOutcome:
    """Send it all; what came of it."""
    try:
        await sender.send(pieces)
    except (OSError, TimeoutError) as error:
        return DeliveryOutcome(DeliveryStatus.AGAIN, error_summary(error))
    return DeliveryOutcome(DeliveryStatus.ACCEPTED)


async def try_connection(sender: Sender, where: str) -> str:
    """Connect only.

    :raises ArchiverFailed: that is not possible.
    """
    try:
        await sender.connect()
    except (OSError, TimeoutError) as error:
        msg = f"{where}: {error_summary(error)}"
        raise ArchiverFailed(msg) from None
    if isinstance(sender, StreamSender):
        return f"connected to {where}; nothing was sent"
    return f"{where} is an address; whether somebody listens there, nobody says"


def error_summary(error: BaseException) -> str:
    """What went wrong, in a few words.

    asyncio says of each address which call failed, in place of why.
    """
    if isinstance(error, TimeoutError) and not str(error):
        return "took too long"
    number = error.errno if isinstance(error, OSError) else None
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)

    def why(call: re.Match[str]) -> str:
        known = call[1] or number
        return os.strerror(int(known)) if known else "no connection"

    return _CALL.sub(why, text.removeprefix("Multiple exceptions: ")) or type(error).__name__
