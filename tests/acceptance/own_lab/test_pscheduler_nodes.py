"""The day on which a fleet is moved: a node of Parley, and one that is to it a host of pScheduler.

What the pages on moving and on pScheduler have readers do is done here: their commands are typed,
with a stand-in for pScheduler's own command. What root types there, ``make booted`` does on booted
machines, where the package is installed.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import aiohttp
import orjson
import pytest
import pytest_asyncio
from aiohttp import web

from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.results.bundles.verification import check_bundle, parse_bundle
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from tests.acceptance.outsider import Outsider
from tests.architecture.sources import REPOSITORY
from tests.support.bundles import keys_of
from tests.support.command_line import CommandResult, run_command
from tests.support.documented_commands import blocks, command_lines
from tests.support.loopback import free_port
from tests.support.pscheduler.agent import Agent
from tests.support.pscheduler.command import CommandLine
from tests.support.pscheduler.template import template_of

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
]

MOVING = REPOSITORY / "docs" / "how-to" / "moving.md"
DICTIONARY = REPOSITORY / "docs" / "how-to" / "pscheduler.md"
PUBLISHED = "https://config.example/psconfig.json"
PORT = 8443
SETTINGS = dict(re.findall(r"^(PARLEY_\w+)=(.*)$", MOVING.read_text("utf-8"), re.MULTILINE))
HERE = {
    "PARLEY_PSCHEDULER_LISTEN": f"{{address}}:{PORT}",
    "PARLEY_PSCHEDULER_ALLOW": "127.0.0.0/8",
    "PARLEY_PSCHEDULER_READ": "198.51.100.0/24",
    "PARLEY_PSCHEDULER_ARCHIVES": "https://archive.example/logstash",
}
"""The settings of the page, as they are for a host whose addresses are all of loopback."""
SHORT = {"throughput": ["--duration", "3s", "--rate", "8M"], "rtt": ["--count", "3"]}
"""Options with which a command of the page takes a moment."""


def section(page: Path, title: str) -> str:
    """Return a section of a page."""
    text = page.read_text("utf-8").partition(f"\n## {title}\n")[2]
    assert text, title
    return text.partition("\n## ")[0]


def inline(text: str, program: str) -> list[list[str]]:
    """Return the commands of a program that sentences tell a reader to type, as words."""
    return [shlex.split(line) for line in re.findall(rf"`{program} ([^`]+)`", text)]


def _command(plan: NodePlan) -> list[str]:
    """Return the command of a node with the settings of the page."""
    assert SETTINGS.keys() == HERE.keys()
    settings = [f"{name}={value.format(address=plan.address)}" for name, value in HERE.items()]
    return ["env", *settings, "PARLEY_TARGETS=127.0.0.0/8", *node_command(plan)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="pair")
async def _pair() -> AsyncIterator[tuple[Outsider, Outsider]]:
    """Return nodes a and b; a has forgotten b, which is moved later."""
    async with Lab(2, command=_command) as lab, aiohttp.ClientSession() as session:
        a, b = [Outsider(**asdict(node), session=session) for node in lab.nodes]
        assert (await a.ask("DELETE", "/v1/nodes/b")).status == 200
        yield a, b


async def typed(node: Outsider, words: list[str], state: Path | None = None) -> CommandResult:
    """Return what ``parley`` prints at a node for these words; it must end well."""
    settings = {"PARLEY_SERVER": node.url, "PARLEY_TOKEN": node.token, "HOME": node.state}
    settings["PARLEY_STATE_DIR"] = str(state or node.state)
    ended = await run_command(tuple(words), settings)
    assert ended.code == 0, (words, ended)
    return ended


async def ask_as_before(node: Outsider, words: list[str]) -> str:
    """Do what ``pscheduler`` does for these words, with the node as the host that was moved."""
    command = CommandLine(f"{node.address}:{PORT}")
    verb, *rest = words
    match verb:
        case "ping":
            assert rest == ["a.example"]
            return await command.ping()
        case "troubleshoot":
            assert rest == ["--host", "a.example"]
            await command.troubleshoot()
            return ""
        case "task":
            test, *options = rest
            names = {"a.example": node.address, "b.example": "127.0.0.1"}
            told = [names.get(word, word) for word in options]
            return await command.task(test, *told, "--source-node", command.host)
        case _:
            pytest.fail(f"nobody here knows what pscheduler {verb} does")


@pytest.mark.needs("ping")
async def test_a_moved_host_answers_its_clients(pair: tuple[Outsider, Outsider]) -> None:
    """Command line and agent find in the node what they found in the host before."""
    a, _ = pair
    written = {name.removeprefix("PARLEY_").lower(): value for name, value in SETTINGS.items()}
    assert Settings.model_validate(written).pscheduler_writers
    lines = inline(section(MOVING, "A host in ten minutes"), "pscheduler")
    printed = await asyncio.gather(*(ask_as_before(a, words) for words in lines))
    assert any(text.endswith("pScheduler is alive") for text in printed)
    assert any("0% Packet Loss" in text for text in printed)
    agent = Agent(f"{a.address}:{PORT}")
    wanted = [agent.task("rtt", {"dest": a.address}, SystemClock().now())]
    posted = (await agent.run(wanted)).added
    assert (await agent.run(wanted)).kept == posted
    assert (await agent.run([])).deleted == posted


@pytest.mark.needs("jq")
@pytest.mark.nightly
async def test_a_moved_host_schedules_what_it_did(
    pair: tuple[Outsider, Outsider], tmp_path: Path
) -> None:
    """The node follows the template that its agent had, by the commands of the page."""
    a, _ = pair
    template = template_of(a.address, "192.0.2.9")

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(template)

    served = web.Application()
    served.router.add_get("/psconfig.json", answer)
    runner = web.AppRunner(served, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        [block] = [it for it in blocks(MOVING) if it.language == "sh" and PUBLISHED in it.text]
        known = {PUBLISHED: f"http://127.0.0.1:{port}/psconfig.json"}
        lines = [[known.get(word, word) for word in words] for words in command_lines(block)]
        *_, listed = [await typed(a, words, tmp_path) for words in lines]
    finally:
        await runner.cleanup()
    [mesh] = json.loads(listed.out)
    page = await a.get(f"/v1/meshes/{mesh['name']}/tasks")
    assert [task["spec"]["dest"] for task in page["items"]] == ["192.0.2.9"]
    await typed(a, ["mesh", "follow", "--stop", mesh["name"]], tmp_path)


@pytest.mark.needs("iperf3", "cubic", "ping")
@pytest.mark.nightly
async def test_a_host_that_is_not_moved_yet_measures(pair: tuple[Outsider, Outsider]) -> None:
    """Such a host is made known, and measures with others and alone, by the page's commands."""
    a, b = pair  # the latter is such a host here, in its words for pScheduler
    lines = inline(section(DICTIONARY, "A host that runs pScheduler in tasks of Parley"), "parley")
    known = {
        "https://HOST/pscheduler": f"https://{b.address}:{PORT}/pscheduler",
        "HOST": "b",
        "192.0.2.7": a.address,
    }
    add, show, *measuring = ([known.get(word, word) for word in words] for words in lines)
    await typed(a, add)
    [listed] = [it for it in json.loads((await typed(a, show)).out) if it["name"] == "b"]
    assert listed["kind"] == "pscheduler"
    assert [words[0] for words in measuring] == ["throughput", "rtt"]
    stream = await a.create("simplestream", participants=["a", "b"], spec={"text": "Hello."})
    await asyncio.gather(
        *(typed(a, [*words, *SHORT[words[0]]]) for words in measuring), a.run(stream)
    )
    mine = {run["test"]: run["id"] for run in (await a.get("/v1/runs?participant=b"))["items"]}
    throughput, rtt, text = [
        await a.finished({"id": mine[test]}) for test in ("throughput", "rtt", "simplestream")
    ]
    assert 6_000_000 < throughput["result"]["received"]["rate_bps"] < 10_000_000
    assert text["result"]["received"] == "Hello."
    assert (rtt["result"]["sent"], rtt["result"]["received"]) == (3, 3)
    bundle = parse_bundle(orjson.dumps(await a.get(f"/v1/runs/{throughput['id']}/bundle")))
    assert check_bundle(bundle, keys_of(bundle)).unproven == ["part of b: not signed"]
    there = {run["test"]: run for run in (await b.get("/v1/runs"))["items"]}
    assert {name: run["state"] for name, run in there.items()} == dict.fromkeys(
        ("throughput", "simplestream", "rtt"), "finished"
    )
