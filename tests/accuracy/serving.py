"""A server with short, immediate answers: ``python -m tests.accuracy.serving DIR``.

It speaks HTTP on port 80 and, with a certificate that :data:`TRUSTED` in ``DIR`` vouches for, HTTPS
on port 443; it tells this host's time over NTP. It prints ``ready`` when it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import cast

from tests.integration.plugins.targets import Authority
from tests.support import ntp_server

NAME = "www.example"
READY = b"ready\n"
TRUSTED = "the-authority.pem"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request; a connection without a request gets no answer."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_ANSWER)
        await writer.drain()
    writer.close()


class TimeServer(asyncio.DatagramProtocol):
    """Answers each packet with this host's time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer a packet."""
        self._transport.sendto(ntp_server.answer(data), addr)


async def main(folder: Path) -> None:
    """Serve until the process is ended."""
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(TimeServer, local_addr=("::", 123))  # takes IPv4, too
    await asyncio.start_server(answer, port=80)
    await asyncio.start_server(answer, port=443, ssl=Authority(folder).context(NAME))
    sys.stdout.write(READY.decode())
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
