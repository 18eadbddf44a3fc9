"""A session of HTTP connects to no address that was not judged."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from node.execution.ways_out import JudgingResolver, rules_of_this_host
from node.model.ways_out import Asker, Role

NAME = "localhost"


@pytest.mark.parametrize(("asker", "asked"), [(Asker.OWNER, 1), (Asker.PUBLISHER, 0)])
async def test_a_name_is_judged_by_its_addresses(asker: Asker, asked: int) -> None:
    """A name that leads to loopback is asked for the owner, and for no publisher."""
    requests: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response(text="inner")

    app = web.Application()
    app.router.add_get("/t", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    resolver = JudgingResolver(asker, Role.DOCUMENT, rules_of_this_host())
    connector = aiohttp.TCPConnector(resolver=resolver)
    async with aiohttp.ClientSession(connector=connector) as session:
        if asked:
            async with session.get(f"http://{NAME}:{port}/t") as reply:
                assert await reply.text() == "inner"
        else:
            with pytest.raises(
                aiohttp.ClientConnectorError, match="localhost leads to a loopback address"
            ):
                await session.get(f"http://{NAME}:{port}/t")
    await runner.cleanup()
    assert len(requests) == asked
