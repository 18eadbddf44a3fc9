"""The demo against a stand-in; ``make demo`` runs the real one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from node.cli.lab.commands import WISHES, run_demo, usage_lines
from node.cli.lab.nodes import LabNode
from node.cli.progress import Progress
from node.client.users import UserClient
from node.runtime.clock import SystemClock

TASK = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
RUN = "11111111-1111-4111-8111-111111111111"


@dataclass(frozen=True)
class PlainLab:
    """A lab that is up."""

    nodes: list[LabNode]

    async def start(self) -> None:
        """Do nothing: it is up."""

    async def stop(self) -> None:
        """Do nothing."""

    async def restart_ended(self) -> None:
        """Do nothing: no node has ended."""


@pytest.fixture
def lab(node: Any) -> PlainLab:
    """Return three names for one stand-in whose only task has been measured."""
    node.created = node.add_task(TASK, state="finished")
    node.add_run(RUN, TASK)
    tools = [
        {"name": name, "tests": [test], "available": True, "tried": [], "reason": None}
        for name, test in (("ping", "rtt"), ("stamp", "latency"), ("iperf3", "throughput"))
    ]
    node.documents["/v1/tools"] = {"items": tools, "next": None}
    return PlainLab(
        [LabNode(name, node.url, "secret", "", "127.0.0.1", "") for name in ("a", "b", "c")]
    )


async def demonstrate(lab: PlainLab) -> int:
    """Run the check."""
    first = lab.nodes[0]
    async with UserClient(first.url, first.token, SystemClock()) as client:
        return await run_demo(lab, client, SystemClock(), Progress(), check=True)


async def test_a_round(lab: PlainLab, node: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The check creates repeating tasks between the nodes, and ends with a summary line."""
    assert await demonstrate(lab) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "demo: 3 nodes, 3 runs finished, 0 failed"
    assert "latency" in {document["test"]["type"] for document, _ in node.posted}
    assert all(document["schedule"]["repeat"] for document, _ in node.posted)
    between = [
        (document["test"]["spec"]["source"], document["test"]["spec"]["dest"])
        for document, _ in node.posted
    ]
    assert between == [("a", "b"), ("b", "c"), ("c", "a")]
    assert any("a → b" in line and "20.41 ms" in line for line in out)
    assert node.token not in "\n".join(out)  # the nodes end with the check


def test_how_to_use_a_node_that_stays(lab: PlainLab) -> None:
    """The link logs its page in, and the line of exports suits a shell."""
    first = lab.nodes[0]
    lines = usage_lines(first)
    assert f"The page of a: {first.url}/#token={first.token}" in lines
    assert f"  export PARLEY_SERVER={first.url} PARLEY_TOKEN={first.token}" in lines


async def test_a_missing_tool(lab: PlainLab, node: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A test whose tool is not installed is skipped, and the package to install is named."""
    missing = node.documents["/v1/tools"]["items"][2]
    missing.update(available=False, reason="iperf3 is not installed: apt install iperf3")
    assert await demonstrate(lab) == 0
    output = capsys.readouterr()
    assert "throughput is skipped: iperf3 is not installed: apt install iperf3" in output.err
    assert output.out.endswith("demo: 3 nodes, 2 runs finished, 0 failed\n")


async def test_a_failure(lab: PlainLab, node: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A failed run fails the check, and its reason is printed."""
    node.runs[0].update(state="failed", reason="ping: unknown host")
    assert await demonstrate(lab) == 1
    output = capsys.readouterr()
    assert "ping: unknown host" in output.err
    assert output.out.endswith(f"0 runs finished, {len(WISHES)} failed\n")
