"""Web applications of the tests, served on loopback."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web


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
