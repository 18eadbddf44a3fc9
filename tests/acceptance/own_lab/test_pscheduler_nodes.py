"""A node of Parley that leads, and one that is to it a host that runs pScheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict

import aiohttp
import orjson
import pytest
import pytest_asyncio

from node.bundles.verification import check_bundle, parse_bundle
from node.lab.nodes import NodePlan, node_command
from node.lab.supervisor import Lab
from tests.acceptance.outsider import Json, Outsider
from tests.support.bundles import keys_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

PORT = 8443


def _command(plan: NodePlan) -> list[str]:
    """Return the command of a node that answers as pScheduler, too."""
    settings = [
        f"PARLEY_PSCHEDULER_LISTEN={plan.address}:{PORT}",
        "PARLEY_PSCHEDULER_ALLOW=127.0.0.0/8",
        "PARLEY_TARGETS=127.0.0.0/8",
    ]
    return ["env", *settings, *node_command(plan)]


@pytest_asyncio.fixture(loop_scope="module")
async def pair() -> AsyncIterator[tuple[Outsider, Outsider]]:
    """Return nodes a and b; a knows b only as a host that runs pScheduler."""
    async with Lab(2, command=_command) as lab, aiohttp.ClientSession() as session:
        a, b = [Outsider(**asdict(node), session=session) for node in lab.nodes]
        assert (await a.ask("DELETE", "/v1/nodes/b")).status == 200
        url = f"https://{b.address}:{PORT}/pscheduler"
        added = await a.ask("POST", "/v1/nodes", {"url": url})
        assert (added.status, added.body["kind"]) == (201, "pscheduler"), added
        yield a, b


async def _measured(a: Outsider, test: str, names: list[str], spec: Json) -> Json:
    return await a.finished(await a.run(await a.create(test, participants=names, spec=spec)))


@pytest.mark.needs("iperf3", "cubic", "ping")
async def test_both_halves_measure_together(pair: tuple[Outsider, Outsider]) -> None:
    """Throughput and a text go from the one to the other, which also measures alone for it."""
    a, b = pair
    throughput, stream, rtt = await asyncio.gather(
        _measured(a, "throughput", ["a", "b"], {"duration": "PT3S", "rate_bps": 8_000_000}),
        _measured(a, "simplestream", ["a", "b"], {"text": "Hello."}),
        _measured(a, "rtt", ["b"], {"dest": a.address, "count": 3}),
    )
    assert 6_000_000 < throughput["result"]["received"]["rate_bps"] < 10_000_000
    assert stream["result"]["received"] == "Hello."
    assert (rtt["result"]["sent"], rtt["result"]["received"]) == (3, 3)
    bundle = parse_bundle(orjson.dumps(await a.get(f"/v1/runs/{throughput['id']}/bundle")))
    assert check_bundle(bundle, keys_of(bundle)).unproven == ["part of b: not signed"]
    there = {run["test"]: run for run in (await b.get("/v1/runs"))["items"]}
    assert {name: run["state"] for name, run in there.items()} == dict.fromkeys(
        ("throughput", "simplestream", "rtt"), "finished"
    )
