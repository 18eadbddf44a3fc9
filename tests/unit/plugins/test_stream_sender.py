"""A sender over TCP whose connection is lost in between."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest

from node.model import times
from node.plugins.transport.senders import StreamSender

LINGER_NONE = struct.pack("ii", 1, 0)
"""Lets a close reset the connection instead of ending it."""


@pytest.mark.parametrize("resets", [True, False])
async def test_a_connection_that_was_lost_is_made_anew(*, resets: bool) -> None:
    """A peer that resets or ends its connection gets the next batch over another one."""
    heard: list[bytes] = []
    lost = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readexactly(3))
        if resets:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
        writer.close()
        lost.set()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sender = StreamSender("127.0.0.1", port, 5 * times.SECOND)
    await sender.send([b"one"])
    await lost.wait()
    assert sender._open is not None
    with contextlib.suppress(ConnectionResetError):
        await sender._open[0].read()
    lost.clear()
    await sender.send([b"two"])
    await lost.wait()
    assert heard == [b"one", b"two"]
    sender.close()
    server.close()
    await server.wait_closed()
