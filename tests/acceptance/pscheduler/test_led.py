"""Runs that a node of pScheduler leads, measured by the real programs of a real node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from node.cli.lab.supervisor import Lab
from node.model import times
from node.runtime.clock import SystemClock
from tests.acceptance.conftest import facade_of
from tests.acceptance.outsider import Outsider
from tests.support.pscheduler.agent import Agent
from tests.support.pscheduler.command import CommandLine
from tests.support.pscheduler.lead import Lead, LedTask
from tests.support.worlds import ON_ONE_LOOP

pytestmark = [pytest.mark.nightly, ON_ONE_LOOP, pytest.mark.usefixtures("tidy")]

ADDRESS = "127.0.0.1"
CLOCK = SystemClock()


def lead_of(node: Outsider) -> Lead:
    """Return a lead on this host that knows one node."""
    return Lead(facade_of(node.url), ADDRESS)


def soon(seconds: int) -> int:
    """Return the whole second so long from now."""
    return CLOCK.now() // times.SECOND * times.SECOND + seconds * times.SECOND


async def idling(lead: Lead, node: Outsider, duration: str) -> LedTask:
    """Create a task of the lead and the node that idle."""
    hosts = [ADDRESS, node.address]
    spec = {"schema": 2, "duration": duration, "host": hosts}
    return await lead.create("idle", spec, "sleep", hosts)


def sleeping(argument: str) -> list[str]:
    """Return the processes of ``sleep`` with this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            argv = path.read_text().split("\0")
        except OSError:  # it has just ended
            continue
        if argv[:2] == ["sleep", argument]:
            found.append(str(path))
    return found


async def throughput(lead: Lead, node: Outsider) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure with a client here and the node as server; return both parts."""
    spec = {"source": ADDRESS, "dest": node.address, "duration": "PT2S"}
    task = await lead.create("throughput", spec, "iperf3", [ADDRESS, node.address])
    own = {"schema": 3, "iperf3-version": "3.12"}
    start = soon(6)
    run, data = await lead.arrange(task, start, start + 10 * times.MINUTE, own)
    assert data[1]["schema"] == 3
    begins = times.parse_instant((await lead.run(task, run))["start-time"])
    client = await lead.iperf3(begins, node.address, data[1]["server_port"], 2)
    part = await lead.result(task, run)
    assert part is not None
    assert (await lead.run(task, run))["state"] == "finished"
    return client, part


async def stream(lead: Lead, node: Outsider, text: str) -> dict[str, Any]:
    """Send a text to the node; return its part."""
    spec = {"source": ADDRESS, "dest": node.address, "timeout": "PT4S", "test-material": text}
    task = await lead.create("simplestream", spec, "simplestreamer", [ADDRESS, node.address])
    start = soon(6)
    run, data = await lead.arrange(task, start, start + times.MINUTE)
    await lead.stream(start, node.address, data[1]["listen-port"], text)
    part = await lead.result(task, run)
    assert part is not None
    return part


@pytest.mark.needs("iperf3")
async def test_real_programs_measure(a: Outsider) -> None:
    """A foreign client is served by iperf3, and a foreign sender by simplestreamer."""
    lead = lead_of(a)
    (client, part), told = await asyncio.gather(throughput(lead, a), stream(lead, a, "a text"))
    assert part["succeeded"], part
    received = part["summary"]["summary"]["throughput-bits"]
    sent = client["end"]["sum_received"]["bits_per_second"]
    assert received == pytest.approx(sent, rel=0.2)
    assert {"streams", "summary"} == set(part["intervals"][0])
    assert part["diags"].startswith("iperf3 -s -1 -J")
    assert told["succeeded"], told
    assert told["result"]["received"] == "a text"
    assert told["result"]["elapsed-time"].startswith("PT")


async def test_a_deleted_run_ends_its_program(a: Outsider) -> None:
    """A run that its lead deletes while it is measured is cancelled, and its program is ended."""
    lead = lead_of(a)
    task = await idling(lead, a, "PT47S")
    start = soon(6)
    run, _ = await lead.arrange(task, start, start + 5 * times.MINUTE)
    shown = {"id": str(run)}
    await a.until(f"/v1/runs/{run}", lambda found: found["started_at"] is not None)
    assert sleeping("47.000000")
    assert (await lead.give_up(task, run)).status == 200
    await a.until_state(shown, "cancelled")
    part = await lead.result(task, run)
    assert part is None or part["succeeded"] is False
    assert (await lead.run(task, run))["state"] == "canceled"
    await a.until(f"/v1/runs/{run}", lambda _: not sleeping("47.000000"))


@pytest.mark.nightly
async def test_a_node_that_is_killed_keeps_what_it_was_told(lab: Lab, c: Outsider) -> None:
    """A killed node and lead give documents back as they were, and go on with their runs."""
    lead, agent, command = lead_of(c), Agent(facade_of(c.url)), CommandLine(facade_of(c.url))
    often = {"repeat": "PT4S", "slip": "PT1.0S", "sliprand": False}
    archive = {"archiver": "bitbucket", "data": {"odd": [1.0, 2**70, 1e-7, "naïve ☃", None]}}
    wanted = [
        agent.task("idle", {"duration": "PT0H0M1S"}, CLOCK.now(), schedule=often),
        agent.task("rtt", {"dest": c.address, "count": 2}, CLOCK.now(), archives=[archive]),
    ]
    posted = (await agent.run(wanted)).added
    documents = [(await command.request("GET", url)).text for url in posted]
    task = await idling(lead, c, "PT2S")
    start = soon(20)
    run, _ = await lead.arrange(task, start, start + 5 * times.MINUTE)
    await lab.kill(c.name)
    await lab.restart(c.name)
    assert [(await command.request("GET", url)).text for url in posted] == documents
    assert (await agent.run(wanted)).kept == posted
    await c.until_state({"id": str(run)}, "finished")
    part = await lead.result(task, run)
    assert part is not None
    assert (part["succeeded"], part["result"]["time-slept"]) == (True, "PT2S"), part
    idle = posted[0].rpartition("/")[2]
    await c.until(
        f"/v1/tasks/{idle}/runs?state=finished",
        lambda page: any(times.parse_instant(it["starts_at"]) >= start for it in page["items"]),
    )
    await agent.run([])
