"""A server that receives results: prints its URL and serves until it is ended."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from tests.support.loopback import serving


async def _receive(request: web.Request) -> web.Response:
    json.loads(await request.read())
    return web.Response(status=204)


async def main() -> None:
    """Serve forever."""
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/in", _receive)
    async with serving(app) as url:
        print(f"{url}/in", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
