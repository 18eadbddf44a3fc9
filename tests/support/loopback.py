"""Ports on loopback, and web applications of the tests that are served there."""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a port, of TCP and UDP, that is free at all addresses, and no connection takes.

    A server that starts slowly would lose a port of the ephemeral range to any client meanwhile.
    """
    while True:
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with (
            socket.socket() as stream,
            socket.socket(type=socket.SOCK_DGRAM) as datagrams,
            contextlib.suppress(OSError),
        ):
            for probe in (stream, datagrams):
                probe.bind(("", port))
            return port


@contextlib.asynccontextmanager
async def serving(
    app: web.Application,
    tls: ssl.SSLContext | None = None,
    port: int = 0,
    *,
    host: str = "127.0.0.1",
    **options: Any,
) -> AsyncIterator[str]:
    """Serve an application, and yield the URL, which ends without a slash.

    Without ``port`` it has one of its own. ``options`` are further ones of aiohttp's runner.
    Clients that are gone are not waited for.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
