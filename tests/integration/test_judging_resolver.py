"""A session of HTTP connects to no address that was not judged."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from node.execution.ways_out import JudgingResolver, judging_session, rules_of_this_host
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


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::ffff:127.0.0.1]", "\u2460\u2461\u2466.0.0.1", "127\u30020\uff0e0\uff611",
     "\U0001d7cf\U0001d7d0\U0001d7d5.1", "0x7f.1", "127.0.0.1.", "\u24dbocalhost", "127.1"],
)  # fmt: skip
async def test_an_address_that_nobody_looks_up_is_judged_too(host: str) -> None:
    """An address is judged where it is connected to, in digits of whatever script."""
    connected: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://{host}:{server.sockets[0].getsockname()[1]}/"
    rules = rules_of_this_host()
    async with server, judging_session(Asker.PUBLISHER, Role.DOCUMENT, rules) as session:
        with pytest.raises(aiohttp.ClientError, match=r"loopback|is not a canonical"):
            await session.get(url)
    assert connected == []
