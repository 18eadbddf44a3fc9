"""The causes of failed connections, in words of neither a library nor the system."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from node.client.causes import cause_of
from node.plugins.transport.senders import error_summary
from tests.support.loopback import free_port


@pytest.fixture
def closed_port() -> int:
    """Return a port on which no server listens."""
    return free_port()


async def test_nodes_that_are_not_there(closed_port: int) -> None:
    """The cause of a refused connection is the system's reason without the library's names."""
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientError) as refused:
            await http.get(f"http://127.0.0.1:{closed_port}/")
    assert cause_of(refused.value) == "connection refused"


async def test_tls_is_not_what_the_system_refuses(closed_port: int) -> None:
    """A TLS error is reported as such, although its number means another error to the system."""

    async def plain(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 no\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", closed_port)
    async with server, aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientSSLError) as failed:
            await http.get(f"https://127.0.0.1:{closed_port}/")
    assert cause_of(failed.value).startswith("TLS failed: ")


async def test_archives_that_are_not_there(closed_port: int) -> None:
    """The cause names why one or several addresses failed, and not the failing call."""
    with pytest.raises(OSError, match="Connect call failed") as refused:
        await asyncio.open_connection("127.0.0.1", closed_port)
    assert error_summary(refused.value) == "Connection refused"
    calls = "[Errno 111] Connect call failed ('::1', 9, 0, 0), [Errno 113] Connect call failed (0)"
    both = OSError(f"Multiple exceptions: {calls}")
    assert error_summary(both) == "Connection refused, No route to host"
    assert error_summary(OSError("Connect call failed ('::1', 9)")) == "no connection"
    assert error_summary(TimeoutError()) == "took too long"
