"""Web applications of the tests, served on loopback."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web


@contextlib.asynccontextmanager
async def serving(
    app: web.Application, tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[str]:
    """Serve an application on a port of its own, and yield the URL, which ends without a slash.

    ``options`` are further ones of aiohttp's runner. Clients that are gone are not waited for.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
