"""Labs of fake nodes: real processes, databases, addresses and namespaces. Needs root."""

from __future__ import annotations

import asyncio
import itertools
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

from node.cli.lab import loopback, nodes
from node.cli.lab.loopback import claim
from node.cli.lab.supervisor import Lab
from node.cli.lab.wan import WanSettings
from node.execution import process, proctable
from node.execution.process import RunningProcess
from node.model.errors import HostError, NotFound
from tests.integration.host_leftovers import descendants, nothing_left
from tests.integration.lab_program import fake_command
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with nothing_left():
        yield


async def get(url: str) -> str:
    """Return the body of an answer."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.text()


@pytest.mark.nightly
async def test_nodes_know_each_other() -> None:
    """Every node knows every other one, and has its own address, database and token."""
    progress: list[str] = []
    async with Lab(3, command=fake_command, progress=progress.append) as lab:
        assert [node.name for node in lab.nodes] == ["a", "b", "c"]
        for node in lab.nodes:
            others = [other.url for other in lab.nodes if other is not node]
            assert json.loads(await get(f"{node.url}/v1/nodes")) == sorted(others)
            assert node.url.startswith(f"http://{node.address}:")
        for field in ("url", "token", "dsn", "address"):
            assert len({getattr(node, field) for node in lab.nodes}) == 3
    assert progress[-1] == "every node knows every other"


@pytest.mark.needs("root", "ip", "ping")
@pytest.mark.nightly
async def test_namespaces_are_joined_by_the_wan() -> None:
    """Nodes can be managed without delay, and reach each other with the delay of the WAN."""
    async with Lab(3, WanSettings(delay_ms=20), command=fake_command) as lab:
        for one, other in itertools.combinations(lab.nodes, 2):
            text = await get(f"{one.url}/ping?to={other.address}")
            times = sorted(float(match) for match in re.findall(r"time=([\d.]+) ms", text))
            # 20 ms in each direction; the emulator is a program, and slightly late on a busy host.
            assert 40.0 <= times[len(times) // 2] < 45.0, text
            assert one.address not in one.url
    assert lab.wan_report is not None
    assert len(lab.wan_report["directions"]) == 6


@pytest.mark.nightly
async def test_two_labs_at_once_do_not_meet() -> None:
    """Two labs of the same size on one host have different addresses."""
    async with Lab(2, command=fake_command) as one, Lab(2, command=fake_command) as other:
        urls = {node.url for node in (*one.nodes, *other.nodes)}
        assert len(urls) == 4


@pytest.mark.nightly
async def test_a_death_is_told_and_the_others_go_on() -> None:
    """The unexpected death of a node is reported by name, and the other nodes go on."""
    died: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    lab = Lab(2, command=fake_command, died=lambda *death: died.put_nowait(death))
    async with lab:
        os.kill(lab._running["b"].pid, signal.SIGKILL)
        name, sentence = await asyncio.wait_for(died.get(), PATIENCE_S)
        assert name == "b"
        assert sentence.startswith("b has ended unexpectedly. Its log ends:")
        assert await get(f"{lab.nodes[0].url}/readyz") == ""
        running = lab.pid("a")
        await lab.restart_ended()
        assert await get(f"{lab.nodes[1].url}/readyz") == ""
        assert lab.pid("a") == running
    assert died.empty()


@pytest.mark.nightly
async def test_a_killed_node_can_be_restarted() -> None:
    """A node that is killed on purpose is not reported; restarted, it has its address and token."""
    died: list[str] = []
    lab = Lab(2, command=fake_command, died=lambda name, _: died.append(name))
    async with lab:
        killed = lab.nodes[1]
        await lab.kill("b")
        with pytest.raises(aiohttp.ClientError):
            await get(f"{killed.url}/readyz")
        assert await lab.restart("b") == killed == lab.nodes[1]
        assert await lab.restart("a") == lab.nodes[0]  # a running node can be restarted, too
        assert await get(f"{killed.url}/readyz") == ""
        with pytest.raises(NotFound, match="has no node z; it has a, b"):
            await lab.kill("z")
    assert died == []


@pytest.mark.nightly
async def test_a_broken_node_shows_its_log() -> None:
    """A node that ends at its start fails the lab with the end of its log, and all is removed."""
    lab = Lab(2, command=lambda plan: fake_command(plan, "--broken"))
    with pytest.raises(HostError, match=r"exit code 1 .*ends:\nthe configuration is broken"):
        async with lab:
            pass


@pytest.mark.nightly
async def test_a_node_that_is_never_ready_is_given_up() -> None:
    """A node that is not ready in time fails the lab with its last answer, and all is removed."""
    lab = Lab(1, command=lambda plan: fake_command(plan, "--never-ready"), ready_s=10)
    with pytest.raises(HostError, match=r"not ready within 10 s; .*/readyz last returned 404"):
        async with lab:
            pass


@pytest.mark.nightly
async def test_stopping_twice_is_the_same_as_once() -> None:
    """Repeated and concurrent stops have the effect of one."""
    lab = Lab(1, command=fake_command)
    await lab.start()
    await asyncio.gather(lab.stop(), lab.stop())
    await lab.stop()


async def program(*options: str, directory: str | None = None) -> RunningProcess:
    """Start a lab as a program of its own, with its files below ``directory``."""
    argv = [sys.executable, "-m", "tests.integration.lab_program", *options]
    env = {"TMPDIR": directory or tempfile.gettempdir()}
    return await process.start(argv, cwd=Path.cwd(), env=env)


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.nightly
async def test_a_signal_ends_the_program_cleanly(number: signal.Signals) -> None:
    """TERM and HUP end a lab with exit code 0 and leave nothing, not even a namespace."""
    lab = await program("--namespaces")
    await lab.wait_for_output(b"}]\n")
    below = descendants(lab.pid)
    lab.send(number)
    finished = await lab.wait()
    assert (finished.exit_code, finished.stderr) == (0, b"")
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in below)


@pytest.mark.needs("root", "ip")
@pytest.mark.parametrize("far", [b"WAN", b"Postgres", b"node "])
@pytest.mark.nightly
async def test_a_signal_during_the_start_ends_it_cleanly(far: bytes) -> None:
    """INT at any point of the start removes what was started."""
    lab = await program("--namespaces")
    await lab.wait_for_output(far)
    lab.send(signal.SIGINT)
    lab.send(signal.SIGINT)
    finished = await lab.wait()
    assert (finished.exit_code, finished.stderr) == (0, b"")


@pytest.fixture
def apart() -> Iterator[str]:
    """Yield a directory in which :func:`nothing_left` does not look, in this or another worker."""
    with tempfile.TemporaryDirectory(prefix="parley-killed-") as directory:
        Path(directory).chmod(0o711)  # the account of the lab's Postgres passes through it
        yield directory


@pytest.mark.nightly
async def test_nothing_runs_on_when_the_program_is_killed(apart: str) -> None:
    """Killing a lab with SIGKILL ends its nodes and shuts down its database."""
    lab = await program(directory=apart)  # killed, it cannot remove its files
    await lab.wait_for_output(b"}]\n")
    below = descendants(lab.pid)
    assert len(below) >= 3
    lab.send(signal.SIGKILL)
    finished = await lab.wait()
    async with asyncio.timeout(PATIENCE_S):
        await proctable.wait_for_exits(list(below))
    dsn = json.loads(finished.stdout.splitlines()[-1])[0]["dsn"]
    match = re.search(r"host=(.*)/socket", dsn)
    assert match
    cluster = Path(match[1])
    assert "database system is shut down" in (cluster / "log").read_text()


def test_names_go_on_after_z() -> None:
    """Names are the letters of the alphabet, then numbers."""
    names = list(itertools.islice(nodes.names(), 28))
    assert (names[0], names[25], names[26], names[27]) == ("a", "z", "n27", "n28")


def test_a_port_in_use_on_all_addresses_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that the host uses on all addresses is skipped."""
    with socket.create_server(("", 0)) as used, socket.create_server(("", 0)) as free:
        ports = [used.getsockname()[1], free.getsockname()[1]]
        monkeypatch.setattr(loopback, "PORTS", ports)
        with pytest.raises(HostError, match="none of the ports"):
            claim(2)
        free.close()
        claimed = claim(2)
    assert claimed.port == ports[1]
    claimed.release()


def test_too_many_nodes_are_refused() -> None:
    """More nodes than addresses are refused with an error."""
    with pytest.raises(HostError, match="1 to 250 nodes, not 251"):
        claim(251)
