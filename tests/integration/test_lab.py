"""Labs of fake nodes: real processes, databases, addresses and namespaces. Needs root."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import shutil
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
from node.lab import loopback, nodes
from node.lab.loopback import claim
from node.lab.supervisor import Lab
from node.lab.wan import WanSettings
from node.model.errors import HostError, NotFound
from tests.integration.host_leftovers import descendants, nothing_left
from tests.integration.lab_program import fake_command

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


async def get(url: str) -> str:
    """The body of an answer."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


async def test_nodes_know_each_other() -> None:
    """Every node is told of every other one, and has its own address, database and token."""
    told: list[str] = []
    async with Lab(3, command=fake_command, progress=told.append) as lab:
        assert [node.name for node in lab.nodes] == ["a", "b", "c"]
        for node in lab.nodes:
            others = [other.url for other in lab.nodes if other is not node]
            assert json.loads(await get(f"{node.url}/v1/nodes")) == sorted(others)
            assert node.url.startswith(f"http://{node.address}:")
        for field in ("url", "token", "dsn", "address"):
            assert len({getattr(node, field) for node in lab.nodes}) == 3
    assert told[-1] == "every node knows every other"


@pytest.mark.needs("root", "ip", "ping")
async def test_namespaces_are_joined_by_the_wan() -> None:
    """Nodes answer on the management side at once, and reach each other through the delay."""
    async with Lab(3, WanSettings(delay_ms=20), command=fake_command) as lab:
        for one, other in itertools.combinations(lab.nodes, 2):
            text = await get(f"{one.url}/ping?to={other.address}")
            times = sorted(float(found) for found in re.findall(r"time=([\d.]+) ms", text))
            # Both ways 20 ms; the emulator is a program, and late by a little on a busy host.
            assert 40.0 <= times[len(times) // 2] < 45.0, text
            assert one.address not in one.url
    assert lab.wan_report is not None
    assert len(lab.wan_report["directions"]) == 6


async def test_two_labs_at_once_do_not_meet() -> None:
    """Two labs of the same size on one host have different addresses."""
    async with Lab(2, command=fake_command) as one, Lab(2, command=fake_command) as other:
        urls = {node.url for node in (*one.nodes, *other.nodes)}
        assert len(urls) == 4


async def test_a_death_is_told_and_the_others_go_on() -> None:
    """A node killed by somebody else is reported by name; the lab is not disturbed."""
    died: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    lab = Lab(2, command=fake_command, died=lambda *told: died.put_nowait(told))
    async with lab:
        os.kill(lab._running["b"].pid, signal.SIGKILL)
        name, sentence = await asyncio.wait_for(died.get(), 10)
        assert name == "b"
        assert sentence.startswith("b has ended without having been asked to. Its log ends:")
        assert await get(f"{lab.nodes[0].url}/readyz") == ""
        running = lab.pid("a")
        await lab.restart_ended()
        assert await get(f"{lab.nodes[1].url}/readyz") == ""
        assert lab.pid("a") == running
    assert died.empty()


async def test_a_killed_node_can_be_restarted() -> None:
    """Killing on purpose is no news; the restarted node has its address and token again."""
    died: list[str] = []
    lab = Lab(2, command=fake_command, died=lambda name, _: died.append(name))
    async with lab:
        before = lab.nodes[1]
        await lab.kill("b")
        with pytest.raises(aiohttp.ClientError):
            await get(f"{before.url}/readyz")
        assert await lab.restart("b") == before == lab.nodes[1]
        assert await lab.restart("a") == lab.nodes[0]  # also one that runs
        assert await get(f"{before.url}/readyz") == ""
        with pytest.raises(NotFound, match="has no node z; it has a, b"):
            await lab.kill("z")
    assert died == []


async def test_a_broken_node_shows_its_log() -> None:
    """A node that ends at its start fails the lab with the end of its log, and all is undone."""
    lab = Lab(2, command=lambda plan: fake_command(plan, "--broken"))
    with pytest.raises(HostError, match=r"exit code 1 .*ends:\nthe configuration is broken"):
        async with lab:
            pass


async def test_a_node_that_is_never_ready_is_given_up() -> None:
    """After the deadline the error has the last answer, and all is undone."""
    lab = Lab(1, command=lambda plan: fake_command(plan, "--never-ready"), ready_s=2)
    with pytest.raises(HostError, match=r"not ready within 2 s; .*/readyz last gave 404"):
        async with lab:
            pass


async def test_stopping_twice_is_the_same_as_once() -> None:
    """Two stops at the same time, and one afterwards."""
    lab = Lab(1, command=fake_command)
    await lab.start()
    await asyncio.gather(lab.stop(), lab.stop())
    await lab.stop()


async def program(*options: str) -> RunningProcess:
    """A lab as a program of its own."""
    argv = [sys.executable, "-m", "tests.integration.lab_program", *options]
    return await process.start(argv, cwd=Path.cwd(), env={"TMPDIR": tempfile.gettempdir()})


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_the_program_cleanly(number: signal.Signals) -> None:
    """INT, TERM or HUP of a served lab: exit code 0, and nothing is left, not even a namespace."""
    lab = await program("--namespaces")
    await lab.printed(b"}]\n")
    below = descendants(lab.pid)
    lab.send(number)
    finished = await lab.wait()
    assert (finished.exit_code, finished.stderr) == (0, b"")
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in below)


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("far", [b"WAN", b"Postgres", b"node "])
async def test_a_signal_during_the_start_ends_it_cleanly(far: bytes) -> None:
    """However far the start has come, INT undoes it."""
    lab = await program("--namespaces")
    await lab.printed(far)
    lab.send(signal.SIGINT)
    lab.send(signal.SIGINT)
    finished = await lab.wait()
    assert (finished.exit_code, finished.stderr) == (0, b"")


async def test_nothing_runs_on_when_the_program_is_killed() -> None:
    """Kill -9 of a lab ends its nodes and shuts its database down."""
    lab = await program()
    await lab.printed(b"}]\n")
    below = descendants(lab.pid)
    assert len(below) >= 3
    lab.send(signal.SIGKILL)
    finished = await lab.wait()
    async with asyncio.timeout(20):
        await proctable.wait_for_exits(list(below))
    dsn = json.loads(finished.stdout.splitlines()[-1])[0]["dsn"]
    found = re.search(r"host=(.*)/socket", dsn)
    assert found
    cluster = Path(found[1])
    assert "database system is shut down" in (cluster / "log").read_text()
    shutil.rmtree(cluster.parent)  # which nobody was left to remove


def test_names_go_on_after_z() -> None:
    """The alphabet first, then numbers."""
    found = list(itertools.islice(nodes.names(), 28))
    assert (found[0], found[25], found[26], found[27]) == ("a", "z", "n27", "n28")


def test_a_port_in_use_on_all_addresses_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a service of the host has the port on every address, another port is taken."""
    with socket.create_server(("", 0)) as taken, socket.create_server(("", 0)) as free:
        ports = [taken.getsockname()[1], free.getsockname()[1]]
        monkeypatch.setattr(loopback, "PORTS", ports)
        with pytest.raises(HostError, match="none of the ports"):
            claim(2)
        free.close()
        claimed = claim(2)
    assert claimed.port == ports[1]
    claimed.release()


def test_too_many_nodes_are_refused() -> None:
    """More nodes than addresses are an error, not a crash."""
    with pytest.raises(HostError, match="1 to 250 nodes, not 251"):
        claim(251)
