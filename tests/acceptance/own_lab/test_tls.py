"""Nodes that speak TLS to each other, with certificates that they made themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import aiohttp
import pytest

from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.cli.lab.wan import WanSettings
from node.trust.keys import NodeKey
from node.trust.tls import unchecked_options
from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider, booked
from tests.integration.host_leftovers import nothing_left
from tests.support.archiving import receiver
from tests.support.command_line import run_command
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.timeout(180), pytest.mark.nightly]


def _command(plan: NodePlan) -> list[str]:
    """Return the command of a node; c has no URL, and fetches its work."""
    argv = node_command(plan)
    if plan.name == "c":
        at = argv.index("--url")
        argv[at : at + 2] = ["--pull"]
    return argv


@asynccontextmanager
async def _outsiders(lab: Lab) -> AsyncIterator[list[Outsider]]:
    connector = aiohttp.TCPConnector(ssl=unchecked_options()["ssl"])
    waits = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(connector=connector, timeout=waits) as session:
        yield [Outsider(**asdict(node), session=session) for node in lab.nodes]


async def _measured(lead: Outsider, *participants: Outsider) -> Json:
    """Run a task of these nodes, and return its run, which is the same on all of them."""
    task = await lead.create("idle", *participants, spec={"duration": "PT1S"})
    run = await lead.finished(await lead.run(task))
    assert run["result"]["participants"] == len(participants)
    for node in participants:
        assert booked(await node.get(f"/v1/runs/{run['id']}")) == booked(run)
    return run


async def _finished(node: Outsider) -> str:
    """Return the run of which the node's event stream says that it has finished."""
    async for event in node.events():
        if event["event"] == "run" and event["data"]["state"] == "finished":
            return str(event["data"]["id"])
    raise AssertionError("the stream ended")


async def test_everything_goes_over_tls() -> None:
    """Nodes introduce, book, run, and archive over TLS; one of them fetches its work."""
    with nothing_left():
        async with (
            Lab(3, tls=True, command=_command) as lab,
            _outsiders(lab) as (a, b, c),
            receiver() as taker,
        ):
            for node in (a, b):
                urls = {
                    each["name"]: each["url"] for each in (await node.get("/v1/nodes"))["items"]
                }
                assert urls == {"a": a.url, "b": b.url, "c": None}
            assert a.url.startswith("https:")
            added = await parley(a, "archive", "add", "hook", "http", "--spec", f"url={taker.url}")
            assert added.code == 0, added.err
            streamed = asyncio.create_task(_finished(a))
            run = await _measured(a, a, b, c)
            async with asyncio.timeout(PATIENCE_S):
                assert await streamed == run["id"]
                await taker.arrived.wait()
            assert run["id"] in {document["run"] for document in taker.documents}
            await _measured(b, a, b)
            await _measured(c, c, b)


@pytest.mark.needs("root", "ip", "ping")
@pytest.mark.nightly
async def test_between_hosts(tmp_path: Path) -> None:
    """Another host is served over TLS only, and a command asks who a server is before it speaks."""
    with nothing_left():
        async with Lab(2, WanSettings(), tls=True) as lab, _outsiders(lab) as (a, b):
            await _measured(a, a, b)
            plain = a.url.replace("https:", "http:")
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{plain}/v1/nodes", headers={"Authorization": "Bearer x"}) as answer,
            ):
                document = await answer.json(content_type=None)
                assert (answer.status, document["title"]) == (403, "Not allowed")
                assert "revoke the token" in document["detail"]
            await _commands(a, b, plain, tmp_path)


async def _commands(a: Outsider, b: Outsider, plain: str, home: Path) -> None:
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PARLEY_TOKEN": a.token}
    listing = ("node", "list", "-o", "ids", "--server")

    refused = await run_command((*listing, plain), environment)
    assert (refused.code, "the token was not sent" in refused.err) == (3, True)
    refused = await run_command((*listing, a.url), environment)
    assert (refused.code, "cannot be trusted without a look" in refused.err) == (2, True)
    own, other = (NodeKey.load_or_create(Path(x.state) / "node.pem").identity for x in (a, b))
    refused = await run_command((*listing, a.url, "--server-identity", other), environment)
    assert (refused.code, "is not the node with the key" in refused.err) == (5, True)
    given = await run_command((*listing, a.url, "--server-identity", own), environment)
    assert (given.code, given.out.split()) == (0, ["a", "b"]), given.err
    kept = await run_command((*listing, a.url), environment)
    assert (kept.code, kept.out) == (0, given.out), kept.err
