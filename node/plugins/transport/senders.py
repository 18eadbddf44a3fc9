"""Streams and datagrams to one address, kept open between batches.

Neither confirms that the other side has taken what was sent. A stream that the other side closed is
detected before and after each batch, and a port without a listener immediately if it is on the same
host; silent loss in the network remains undetected. Both raise OSError, and TimeoutError if sending
takes too long.
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
from node.plugins.contracts import DeliveryOutcome
from node.plugins.transport.batches import ACCEPTED, again

_FAMILIES = {None: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}


class StreamSender:
    """A TCP connection."""

    def __init__(
        self,
        host: str,
        port: int,
        timeout: int,
        *,
        ip_version: int | None = None,
        bind: str | None = None,
    ) -> None:
        """Store the arguments; ``timeout`` (µs) is for connecting, and for each batch.

        ``bind`` is the address of this host to connect from.
        """
        self._family = _FAMILIES[ip_version]
        self._local = None if bind is None else (bind, 0)
        self._host = host
        self._port = port
        self._seconds = timeout / times.SECOND
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, pieces: Sequence[bytes]) -> None:
        """Send all pieces at once."""
        try:
            async with asyncio.timeout(self._seconds):
                reader, writer = await self._find_or_connect()
                writer.writelines(pieces)
                await writer.drain()
                await _check_open(reader)
        except BaseException:
            self.close()
            raise

    async def _find_or_connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # A reset leaves no end of file, and nothing more can be written.
        if self._open is not None and (self._open[0].at_eof() or self._open[1].is_closing()):
            self.close()
        if self._open is None:
            self._open = await asyncio.open_connection(
                self._host, self._port, family=self._family, local_addr=self._local
            )
            self._open[1].transport.set_write_buffer_limits(
                high=0
            )  # drained: the kernel has it all
        return self._open

    async def connect(self) -> None:
        """Connect without sending anything."""
        async with asyncio.timeout(self._seconds):
            await self._find_or_connect()

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._open = self._open, None
        if connection is not None:
            connection[1].close()


async def _check_open(reader: asyncio.StreamReader) -> None:
    """Check whether the other side has closed the connection; what it sends is ignored.

    :raises ConnectionError: it has.
    """
    try:
        async with asyncio.timeout(0):
            octets = await reader.read(65_536)
    except TimeoutError:
        return
    if not octets:
        msg = "the other side closed the connection"
        raise ConnectionError(msg)


class DatagramSender:
    """A connected datagram socket: UDP, or a path on this host."""

    def __init__(
        self,
        address: tuple[str, int] | str,
        timeout: int,
        *,
        ip_version: int | None = None,
        bind: str | None = None,
    ) -> None:
        """Store the arguments; ``timeout`` (µs) is for each batch. Nothing is opened yet.

        ``bind`` is the address of this host to send from.
        """
        self._family = _FAMILIES[ip_version]
        self._bind = bind
        self._address = address
        self._seconds = timeout / times.SECOND
        self._socket: socket.socket | None = None

    async def send(self, pieces: Sequence[bytes]) -> None:
        """Send each piece as a datagram."""
        try:
            async with asyncio.timeout(self._seconds):
                endpoint = await self._find_or_connect()
                for piece in pieces:
                    await asyncio.get_running_loop().sock_sendall(endpoint, piece)
                _raise_pending_error(endpoint)
        except BaseException:
            self.close()
            raise

    async def _find_or_connect(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        loop = asyncio.get_running_loop()
        address: Any = self._address
        if isinstance(self._address, str):
            endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        else:
            entries = await loop.getaddrinfo(
                *self._address, family=self._family, type=socket.SOCK_DGRAM
            )
            endpoint, address = socket.socket(entries[0][0], socket.SOCK_DGRAM), entries[0][4]
        endpoint.setblocking(False)  # noqa: FBT003 - the socket's own
        self._socket = endpoint
        if self._bind is not None:
            [local, *_] = await loop.getaddrinfo(self._bind, 0, family=endpoint.family)
            endpoint.bind(local[4])
        await loop.sock_connect(endpoint, address)
        return endpoint

    async def connect(self) -> None:
        """Only resolve the name and open a socket, which does not show whether anyone listens."""
        async with asyncio.timeout(self._seconds):
            await self._find_or_connect()

    def close(self) -> None:
        """Close the socket, if there is one."""
        endpoint, self._socket = self._socket, None
        if endpoint is not None:
            endpoint.close()


def _raise_pending_error(endpoint: socket.socket) -> None:
    """Raise the error with which the other host answered a datagram, if any: nothing listens."""
    if number := endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, "nothing listens there" if number == _REFUSED else "not delivered")


_REFUSED = 111
_CALL = re.compile(r"(?:\[Errno (\d+)\] )?Connect call failed \([^)]*\)")

Sender = StreamSender | DatagramSender


class SocketDestination:
    """A destination behind a sender; subclasses define what is sent."""

    def __init__(self, sender: Sender, where: str) -> None:
        """Store the arguments; ``where`` describes the address. Nothing is connected yet."""
        self.sender = sender
        self._where = where

    async def send(self, pieces: Sequence[bytes]) -> list[DeliveryOutcome]:
        """Send all pieces, and return the outcome of each."""
        outcome = ACCEPTED
        try:
            await self.sender.send(pieces)
        except (OSError, TimeoutError) as error:
            outcome = again(error_summary(error))
        return [outcome] * len(pieces)

    async def test(self) -> str:
        """Connect, or resolve the name.

        :raises ArchiverFailed: there is no such host or socket, or nothing listens there.
        """
        try:
            await self.sender.connect()
        except (OSError, TimeoutError) as error:
            raise ArchiverFailed(f"{self._where}: {error_summary(error)}") from None
        if isinstance(self.sender, StreamSender):
            return f"connected to {self._where}; nothing was sent"
        what = "datagrams cannot show whether anything listens there"
        return f"{self._where} is a valid address; {what}"

    async def close(self) -> None:
        """Close the connection or socket."""
        self.sender.close()


def error_summary(error: BaseException) -> str:
    """Return what went wrong, in a few words.

    For several addresses, asyncio names the failed calls instead of the reasons; they are replaced.
    """
    if isinstance(error, TimeoutError) and not str(error):
        return "took too long"
    number = error.errno if isinstance(error, OSError) else None
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)

    def why(call: re.Match[str]) -> str:
        code = call[1] or number
        return os.strerror(int(code)) if code else "no connection"

    return _CALL.sub(why, text.removeprefix("Multiple exceptions: ")) or type(error).__name__
