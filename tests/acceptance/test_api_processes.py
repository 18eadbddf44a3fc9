"""Two more processes of a node's API: what is done at one, the other and the node hear."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from node.cli.lab.nodes import module_environment
from node.execution import process
from node.execution.process import RunningProcess
from node.runtime.clock import SystemClock
from tests.acceptance.outsider import Outsider
from tests.support.loopback import free_port

CLOCK = SystemClock()

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]


async def _start(node: Outsider, port: int) -> RunningProcess:
    """Start one more process of a node's API, and return it when it is ready."""
    script = "from node.cli.services import api_main; api_main()"
    environment = {
        **module_environment(),
        "PARLEY_NAME": node.name,
        "PARLEY_LISTEN": node.url.removeprefix("http://"),
        "PARLEY_STATE_DIR": node.state,
        "PARLEY_DSN": node.dsn,
    }
    place = f"127.0.0.1:{port}"
    argv = [sys.executable, "-c", script, "--listen", place]
    running = await process.start(argv, env=environment)
    while not await _answers(node, place):
        assert not running.ended, await running.wait()
        await CLOCK.sleep(0.1)
    return running


async def _answers(node: Outsider, place: str) -> bool:
    with contextlib.suppress(aiohttp.ClientConnectionError):
        async with node.session.get(f"http://{place}/readyz") as answer:
            return answer.status == 200
    return False


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def doors(a: Outsider) -> AsyncIterator[list[tuple[Outsider, RunningProcess]]]:
    """Return clients of two more processes of node a, each with its process."""
    ports = [free_port(), free_port()]
    services = await asyncio.gather(*(_start(a, port) for port in ports))
    clients = [replace(a, url=f"http://127.0.0.1:{port}") for port in ports]
    yield list(zip(clients, services, strict=True))
    for service in services:
        await service.end(10)


@pytest.mark.nightly
async def test_any_process_takes_and_tells_tasks_of_the_node(
    a: Outsider, b: Outsider, doors: list[tuple[Outsider, RunningProcess]]
) -> None:
    """A task created at one runs at the node, also when that one is killed; others tell of it."""
    (one, killed), (other, _) = doors
    spec = {"duration": "PT1S", "class": "background"}
    heard: set[str] = set()

    async def listen() -> None:
        async for event in other.events():
            heard.add(event["event"])

    listening = asyncio.create_task(listen())
    try:
        task = await one.create("idle", a, b, spec=spec)
        finished = await other.finished(await other.run(task))
        assert finished == await a.get(f"/v1/runs/{finished['id']}")
        assert {"task", "run"} <= heard

        long = {"duration": "PT10M", "class": "background"}
        task = await one.create("idle", a, b, spec=long)
        run = await other.run(task)
        await other.until_state(run, "running")
        killed.send(signal.SIGKILL)
        await other.cancel(task)
        assert (await a.over(run))["state"] == "cancelled"
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening


@pytest.mark.nightly
async def test_other_nodes_are_sent_to_the_service(
    a: Outsider, doors: list[tuple[Outsider, RunningProcess]]
) -> None:
    """A question that only nodes ask is answered with the place where it is served."""
    _, (other, _) = doors
    answer = await other.ask("POST", "/v1/participant/proposals", {})
    assert (answer.status, answer.body["type"].rpartition("/")[2]) == (403, "not-allowed")
    assert f"at {a.url}" in answer.body["detail"]
    there, here = [await door.get("/v1/nodes") for door in (other, a)]
    known = [node["identity"] for node in here["items"]]
    assert [node["identity"] for node in there["items"]] == known


@pytest.mark.nightly
async def test_a_process_without_a_place_of_its_own_does_not_start(a: Outsider) -> None:
    """The place of the node's service is refused, with what to type instead."""
    place = a.url.removeprefix("http://")
    script = "from node.cli.services import api_main; api_main()"
    environment = {**module_environment(), "PARLEY_STATE_DIR": a.state, "PARLEY_LISTEN": place}
    running = await process.start(
        [sys.executable, "-c", script, "--listen", place], env=environment, cwd=Path(a.state)
    )
    finished = await running.wait()
    assert finished.exit_code == 2
    assert f"--listen HOST:PORT, other than {place}" in " ".join(finished.stderr.decode().split())
