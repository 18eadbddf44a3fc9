"""A node in pull mode takes part like any other: three nodes, the last of them in pull mode."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import aiohttp
import pytest

from node.lab.nodes import NodePlan, node_command
from node.lab.supervisor import Lab
from tests.acceptance.commands import parley
from tests.acceptance.outsider import Outsider, booked
from tests.integration.host_leftovers import nothing_left
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.timeout(120)


def _command(plan: NodePlan) -> list[str]:
    """Return the command of a node; the last node has no URL."""
    argv = node_command(plan)
    if plan.name == "c":
        at = argv.index("--url")
        argv[at : at + 2] = ["--pull"]
    return argv


async def _parley(node: Outsider, *words: str) -> str:
    """Run a command that must succeed, and return its output."""
    result = await parley(node, *words)
    assert result.code == 0, result.err
    return result.out


async def _booked(lead: Outsider, *participants: Outsider) -> None:
    """Run a task of these nodes, and check that its run is the same on all of them."""
    spec = {"duration": "PT1S"}
    run = await lead.finished(await lead.run(await lead.create("idle", *participants, spec=spec)))
    assert run["result"]["participants"] == len(run["parts"]) == len(participants)
    for node in participants:
        assert booked(await node.get(f"/v1/runs/{run['id']}")) == booked(run)


async def test_a_node_behind_a_firewall_takes_part() -> None:
    """A node in pull mode takes part, leads, is added by its key, and finds a restarted lead."""
    with nothing_left():
        waits = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with (
            Lab(3, command=_command) as lab,
            aiohttp.ClientSession(timeout=waits) as session,
        ):
            a, b, c = (Outsider(**asdict(node), session=session) for node in lab.nodes)
            for other in (a, b):
                page = await other.get("/v1/nodes")
                assert {each["name"]: each["url"] is None for each in page["items"]}["c"]
            spec = {"count": 20, "interval": "PT0.1S", "timeout": "PT6S"}
            run = await a.finished(await a.run(await a.create("latency", a, c, spec=spec)))
            assert 0 < run["result"]["received_back"] <= run["result"]["sent"] == 20
            await asyncio.gather(_booked(c, c, b), _booked(b, c, a), _booked(a, a, b, c))

            (line,) = [
                line
                for line in (await _parley(a, "node", "list", "-o", "table")).splitlines()
                if line.startswith("c ")
            ]
            assert " pull " in line
            assert "unreachable" not in line
            await _parley(a, "node", "remove", "c")
            identity = (await c.get("/v1/nodes/self"))["identity"]
            await _parley(a, "node", "add", identity)
            await a.until("/v1/nodes", lambda page: "c" in {n["name"] for n in page["items"]})
            await _booked(a, c, a)

            again = await lab.restart("a")
            await _booked(Outsider(**asdict(again), session=session), a, c)
