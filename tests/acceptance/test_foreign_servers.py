"""Throughput to a real server of iperf3 on a host that is no node, in a namespace of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.acceptance.outsider import Json, Outsider
from tests.acceptance.wire import FAR, NAMESPACE
from tests.support.loopback import free_port

pytestmark = [
    pytest.mark.needs("root", "ip", "iperf3"),
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="session"),
]

SPEC = {
    "dest": FAR,
    "single_ended": True,
    "duration": "PT1S",
    "omit": "PT0S",
    "rate_bps": 4_000_000,
}


@asynccontextmanager
async def program(*argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program until the end of the block."""
    silent = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=silent, stdout=asyncio.subprocess.PIPE, stderr=silent
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


@asynccontextmanager
async def server() -> AsyncIterator[int]:
    """Serve iperf3 in the namespace, and yield the port once it listens."""
    port = free_port()
    argv = ("ip", "netns", "exec", NAMESPACE, "iperf3", "-s", "-B", FAR, "-p", str(port))
    async with program(*argv, "--forceflush") as process:
        assert process.stdout is not None
        while b"listening" not in await process.stdout.readline():
            assert process.returncode is None
        yield port


async def _measured(a: Outsider, port: int, **fields: Json) -> Json:
    task = await a.create("throughput", spec={**SPEC, "port": port, **fields})
    return await a.finished(await a.run(task))


async def test_both_directions_are_measured_alone(a: Outsider) -> None:
    """The node sends to the server, or has it send, over TCP and UDP; both ends are told."""
    async with server() as port:
        there = await _measured(a, port)
        back = await _measured(a, port, reverse=True)
        datagrams = await _measured(a, port, protocol="udp", congestion="host")
    assert there["headline"] == f"throughput  a → {FAR}:{port}"
    for run in (there, back, datagrams):
        assert run["participants"] == ["a"]
        assert 3e6 < run["result"]["rate_bps"] < 5e6
        assert run["result"]["sent"]["bytes"] > 0
    assert [run["result"]["reverse"] for run in (there, back)] == [False, True]
    assert datagrams["result"]["datagrams"]["loss"] == 0


@pytest.mark.nightly
async def test_a_busy_server_is_tried_again_within_the_slip(a: Outsider) -> None:
    """While another client measures an attempt comes to nothing; later the slot is measured."""
    schedule = {"start": "PT5S", "slip": "PT5M", "retry": {"times": 20, "after": "PT1S"}}
    async with server() as port:
        busy = ("iperf3", "-c", FAR, "-p", str(port), "-t", "300", "-b", "1M")
        async with program(*busy, "--forceflush") as other:
            assert other.stdout is not None
            while b"connected to" not in await other.stdout.readline():
                assert other.returncode is None
            task = await a.create("throughput", spec={**SPEC, "port": port}, schedule=schedule)
            first = await a.over(await a.run(task))
            assert first["state"] == "failed"
            assert first["reason"] == (
                f"a: the server at {FAR} port {port} is busy with another client"
            )
        path = f"/v1/tasks/{task['id']}/runs"
        done = await a.until(path, lambda found: found["items"][0]["state"] == "finished")
    [slot] = done["items"]
    assert slot["attempt"] > 1
    assert slot["attempts"][0]["run"] == first["id"]
    assert {each["state"] for each in slot["attempts"]} == {"failed"}
    assert 3e6 < slot["result"]["rate_bps"] < 5e6


async def test_what_is_no_server_of_iperf3_is_told(a: Outsider) -> None:
    """A refused connection ends the run with what may be wrong."""
    task = await a.create("throughput", spec={**SPEC, "port": free_port()})
    refused = await a.over(await a.run(task))
    assert refused["state"] == "failed"
    assert "may be no server of iperf3" in refused["reason"]
