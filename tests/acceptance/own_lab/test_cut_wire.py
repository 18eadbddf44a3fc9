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
from node.model import times
from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider
from tests.integration.host_leftovers import nothing_left

pytestmark = [
    pytest.mark.needs("root", "ip", "ping", "tracepath", "traceroute"),
    pytest.mark.nightly,
    pytest.mark.timeout(240),
]

EVERY_S = 10
BURST = 1000
"""The longest packet in bytes that the bucket of d lets out."""
WITHIN_S = 30


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
            d = await _namespace("d")
            await _check_follow_ups(a, d)
            async with _receiver(a.url) as (url, got):
                hook = {"name": "pager", "url": url, "events": ["task-failing"], "failures": 1}
                assert (await a.ask("POST", "/v1/webhooks", hook)).status == 201
                await _output("ip", "-n", d, "link", "set", "wan0", "down")
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


async def _namespace(node: str) -> str:
    """Return the network namespace of a node of this lab."""
    names = (await _output("ip", "netns", "list")).split()
    [found] = [
        name
        for name in names
        if name.startswith(f"parley-{os.getpid()}-") and name.endswith(f"-{node}")
    ]
    return found


async def _check_follow_ups(a: Outsider, d: str) -> None:
    """Lose the long packets of d; check that the path is looked at meanwhile, and then no more."""
    spec = {"source": "a", "dest": "d", "count": 3, "length": 1400}
    often = {"repeat": f"PT{EVERY_S}S"}
    task = await a.create("rtt", spec=spec, schedule=often)
    after = {"task": task["id"], "when": "loss > 10 % or no-answer", "per_hour": 2}
    why = [
        await a.create(test, spec={"source": "a", "dest": "d"}, after=after)
        for test in ("trace", "mtu")
    ]
    runs = f"/v1/tasks/{task['id']}/runs?state=finished,failed"
    await a.until(runs, lambda page: page["items"])
    bucket = ("tbf", "rate", "1mbit", "burst", f"{BURST}", "limit", "10000")
    await _output("tc", "-n", d, "qdisc", "add", "dev", "wan0", "root", *bucket)
    looked = [
        await a.until(f"/v1/tasks/{each['id']}/runs?state=finished", lambda page: page["items"])
        for each in why
    ]
    trace, mtu = [await a.get(f"/v1/runs/{page['items'][0]['id']}") for page in looked]
    assert trace["result"]["reached"]
    assert BURST // 2 <= mtu["result"]["mtu_bytes"] <= BURST
    assert mtu["result"]["black_hole"]
    bad = await a.get(f"/v1/runs/{mtu['asked_by']}")
    assert bad["outcome"]["judgement"] == "no-answer"
    shown = {each["run"]: each["summary"] for each in bad["followed_by"]}
    assert shown[mtu["id"]] == mtu["summary"]
    assert mtu["starts_at"] <= times.format_instant(
        times.parse_instant(bad["ends_at"]) + WITHIN_S * times.SECOND
    )
    explained = await a.get(f"/v1/runs/{bad['id']}/explain")
    assert f"followed by mtu  a → d: {mtu['summary']}" in explained["sentence"]
    told = await parley(a, "pair", "a", "d", "-o", "table", PARLEY_PLAIN_HTTP="1")
    assert mtu["summary"] in told.out, told
    tcp = {"source": "a", "dest": "d", "duration": "PT3S", "reverse": True}
    stalled = await a.create("throughput", spec=tcp)
    [run] = (
        await a.until(f"/v1/tasks/{stalled['id']}/runs?state=failed", lambda page: page["items"])
    )["items"]
    assert (
        f"the path to d carries {mtu['result']['mtu_bytes']} bytes; the interface"
        in (run["reason"])
    )
    await _output("tc", "-n", d, "qdisc", "del", "dev", "wan0", "root")
    for each in why:
        page = await a.get(f"/v1/tasks/{each['id']}/runs")
        assert 1 <= len({run["slot"] for run in page["items"]}) <= after["per_hour"]
    await a.cancel(task)


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
