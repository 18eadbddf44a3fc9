"""The commands ``parley lab up`` and ``parley lab demo``, as real processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from node.execution import process, proctable
from node.execution.process import RunningProcess
from tests.acceptance.outsider import Outsider
from tests.integration.host_leftovers import descendants, nothing_left
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.timeout(120)

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


async def parley(*words: str) -> RunningProcess:
    """Start the command line."""
    environment = {"PYTHONPATH": str(ROOT), "TMPDIR": tempfile.gettempdir()}
    return await process.start([sys.executable, "-m", "node.cli.main", *words], env=environment)


def listening(url: str) -> bool:
    """Return whether a server accepts connections there."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.nightly
async def test_lab_up() -> None:
    """``lab up`` prints one line of JSON, its nodes measure, and its end leaves nothing behind."""
    lab = await parley("lab", "up", "--nodes", "3", "--json")
    async with asyncio.timeout(PATIENCE_S):
        await lab.wait_for_output(b"}]}\n")
    below = descendants(lab.pid)
    assert lab._stdout is not None
    (line,) = bytes(lab._stdout.kept).decode().splitlines()
    ready_nodes = json.loads(line)["nodes"]
    assert [sorted(node) for node in ready_nodes] == [
        ["address", "dsn", "name", "state", "token", "url"]
    ] * 3
    assert (
        len({node["dsn"] for node in ready_nodes})
        == len({node["url"] for node in ready_nodes})
        == 3
    )
    async with aiohttp.ClientSession() as session:
        nodes = [Outsider(**node, session=session) for node in ready_nodes]
        run = await nodes[0].run(await nodes[0].create("latency", *nodes[1:]))
        await nodes[0].until_state(run, "running", "merging", "finished")
    places = set(Path(tempfile.gettempdir()).glob(f"parley-lab-{lab.pid}-*"))
    assert places
    lab.send(signal.SIGTERM)
    finished = await asyncio.wait_for(lab.wait(), PATIENCE_S)
    assert finished.exit_code == 0, finished.stderr.decode()
    assert finished.stdout.decode() == line + "\n"
    async with asyncio.timeout(PATIENCE_S):
        await proctable.wait_for_exits(list(below))
    assert not any(place.exists() for place in places)
    assert not any(listening(node.url) for node in nodes)


@pytest.mark.needs("ping", "iperf3", "cubic")
@pytest.mark.nightly
async def test_lab_demo() -> None:
    """The check of the demo ends with its summary line, and leaves nothing behind."""
    demo = await parley("lab", "demo", "--check")
    # It starts three nodes, and then measures three times.
    finished = await asyncio.wait_for(demo.wait(), 2 * PATIENCE_S)
    output = finished.stdout.decode()
    assert finished.exit_code == 0, output + finished.stderr.decode()
    last = output.splitlines()[-1]
    assert re.fullmatch(r"demo: 3 nodes, 3 runs finished, 0 failed", last), output
    assert all(re.search(rf"^{test} ", output, re.MULTILINE) for test in ("rtt", "latency"))


async def test_namespaces_need_root() -> None:
    """Namespaces are refused with one sentence if the user is not root."""
    words = ["lab", "up", "--namespaces", "--delay-ms", "20"]
    run = [sys.executable, "-m", "node.cli.main", *words]
    # Another user, who may nevertheless read this working copy.
    reading = ["--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"]
    stranger = ["setpriv", "--reuid", "65534", "--clear-groups", *reading]
    argv = run if os.geteuid() else [*stranger, *run]
    refused = await process.start(argv, env={"PYTHONPATH": str(ROOT), "HOME": "/nonexistent"})
    finished = await asyncio.wait_for(refused.wait(), PATIENCE_S)
    text = " ".join(finished.stderr.decode().split())
    assert (finished.exit_code, text[2:]) == (
        3,
        "--namespaces needs root run it with sudo, or without --namespaces",
    )
