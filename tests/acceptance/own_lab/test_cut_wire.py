"""A host whose measurement interface is down: every place tells it, and names it as the cause."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import permutations
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from node.cli.lab.supervisor import Lab
from node.cli.lab.wan import WanSettings
from tests.acceptance.outsider import Json, Outsider
from tests.integration.host_leftovers import nothing_left

pytestmark = [
    pytest.mark.needs("root", "ip", "ping"),
    pytest.mark.nightly,
    pytest.mark.timeout(240),
]

EVERY_S = 10


async def _output(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0, words
    return printed.decode()


@asynccontextmanager
async def _receiver(beside: str) -> AsyncIterator[tuple[str, asyncio.Queue[Json]]]:
    """Yield a URL that a node in a namespace reaches, and what is posted to it.

    ``beside`` is the URL of the node; the host is the first address of its network.
    """
    got: asyncio.Queue[Json] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        got.put_nowait(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/in", take)
    runner = web.AppRunner(app)
    await runner.setup()
    host = f"{(urlsplit(beside).hostname or '').rpartition('.')[0]}.1"
    site = web.TCPSite(runner, host, 0)
    await site.start()
    try:
        yield f"http://{host}:{runner.addresses[0][1]}/in", got
    finally:
        await runner.cleanup()


async def test_a_host_that_is_cut_off_is_named_everywhere() -> None:
    """Status, runs, mesh, and one webhook message tell that d is cut off, and its node is not."""
    with nothing_left():
        async with (
            Lab(4, WanSettings(delay_ms=1.0)) as lab,
            aiohttp.ClientSession() as session,
        ):
            nodes = [Outsider(**asdict(node), session=session) for node in lab.nodes]
            a = nodes[0]
            for source, dest in permutations(nodes, 2):
                key = f"rtt/{source.name}/{dest.name}"
                await a.create(
                    "rtt",
                    spec={"source": source.name, "dest": dest.name, "count": 3},
                    schedule={"repeat": f"PT{EVERY_S}S"},
                    reference={"mesh": "lab", "key": key},
                )
            await a.until("/v1/status", lambda now: now["outcomes"]["judgements"] == {"good": 12})
            async with _receiver(a.url) as (url, got):
                hook = {"name": "pager", "url": url, "events": ["task-failing"], "failures": 1}
                assert (await a.ask("POST", "/v1/webhooks", hook)).status == 201
                names = (await _output("ip", "netns", "list")).split()
                [cut] = [
                    name
                    for name in names
                    if name.startswith(f"parley-{os.getpid()}-") and name.endswith("-d")
                ]
                await _output("ip", "-n", cut, "link", "set", "wan0", "down")
                status = await a.until(
                    "/v1/status",
                    lambda now: any(
                        (each["failing"], each["crossing"]) == (6, 6)
                        for each in now["outcomes"]["causes"]
                    ),
                )
                message = await asyncio.wait_for(got.get(), 60)
            _check_status(status)
            assert message["subject"] == "host d"
            await _check_runs_and_mesh(a)


def _check_status(status: Json) -> None:
    [cause] = status["outcomes"]["causes"]
    assert (cause["kind"], cause["names"]) == ("host", ["d"])
    assert "its node answers" in cause["sentence"]
    assert cause["sentence"] in {each["what"] for each in status["attention"]}


async def _check_runs_and_mesh(a: Outsider) -> None:
    """Check that runs and pairs with d, and no others, went wrong."""
    wrong = await a.get("/v1/runs", outcome="no-answer,failed", limit=100)
    assert wrong["items"]
    for run in wrong["items"]:
        assert "d" in run["headline"].split()
    pairs = (await a.get("/v1/meshes/lab/pairs", limit=100))["items"]
    judged = {(each["source"], each["dest"]): each["outcome"]["judgement"] for each in pairs}
    for ends, judgement in judged.items():
        assert (judgement == "good") == ("d" not in ends), judged
