"""The boards and alerts of deploy/, asked of a real Prometheus that scrapes a node of the lab."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from tests.acceptance.outsider import Json, Outsider
from tests.architecture.sources import REPOSITORY
from tests.support.patience import PATIENCE_S
from tests.support.receivers import servers

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("prometheus", "iperf3", "cubic"),
]

BOARDS = sorted((REPOSITORY / "deploy/grafana").glob("*.json"))
ALERTS = REPOSITORY / "deploy/alerts.yaml"
VARIABLES = {"$__rate_interval": "1m"}
"""Values of what Grafana fills in; the boards' own variables match everything."""
CONFIGURATION = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{alerts}]
scrape_configs:
  - job_name: parley
    authorization: {{credentials: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
"""
QUIET = {
    "Runs that will be late": "no pool of the lab has more work than time",
    "Clock": "nothing may set the clock of the host on which tests run",
    "Use of quotas": "the nodes of the lab have one owner, who limits nothing",
}
"""Panels without values in a lab that works, and why."""
NAME = re.compile(r"\bparley_[a-z_]+")
SERIES = re.compile(r"_(bucket|count|sum)$")


class Prometheus:
    """A running server."""

    def __init__(self, node: Outsider, port: int) -> None:
        self._node = node
        self._url = f"http://127.0.0.1:{port}"

    async def ask(self, path: str, **query: str) -> Json:
        """Return the data of an answer."""
        async with self._node.session.get(f"{self._url}{path}", params=query) as answer:
            found = await answer.json()
        assert found["status"] == "success", (query, found)
        return found["data"]

    async def until(self, expression: str) -> None:
        """Return once an expression has a value."""
        async with asyncio.timeout(PATIENCE_S), self._node.changes() as changed:
            while not await self._has(expression):
                await changed()

    async def _has(self, expression: str) -> bool:
        found = (await self.ask("/api/v1/query", query=expression))["result"]
        return any(each["value"][1] != "NaN" for each in found)


async def _plan(a: Outsider, b: Outsider) -> None:
    """Book a run on both nodes, and take it back, which takes a plan and messages."""
    await a.cancel(await a.planned(await a.create("idle", a, b, schedule={"start": "PT1H"})))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def busy(a: Outsider, b: Outsider) -> AsyncIterator[None]:
    """Let the lab measure again and again, deliver results, and fail, as the boards show it."""
    archive = {"name": "boards", "archiver": "bitbucket"}
    assert (await a.ask("POST", "/v1/archives", archive)).status == 201
    ends = {"source": a.name, "dest": b.name}
    often = {"schedule": {"repeat": "PT6S", "max_runs": 30}}
    tasks = [
        await a.create(test, spec=spec, reference={"mesh": "boards", "key": test, **ends}, **often)
        for test, spec in (
            ("rtt", {"source": a.name, "dest": b.address, "count": 1}),
            ("throughput", {**ends, "duration": "PT1S", "omit": "PT0S", "rate_bps": 1_000_000}),
        )
    ]
    tasks.append(
        await a.create("http", spec={"url": "http://127.0.0.1:9/", "timeout": "PT1S"}, **often)
    )
    for task in tasks:
        await a.over((await a.runs(task))[0])
    await _plan(a, b)  # a rate is that of a counter which was there before
    yield
    for task in tasks:
        await a.cancel(task)
    assert (await a.ask("DELETE", "/v1/archives/boards")).status == 204


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prometheus(a: Outsider, busy: None) -> AsyncIterator[Prometheus]:
    """Start a Prometheus that scrapes the first node and knows the alerts.

    Nobody asks for the figures of meshes before, which are kept for a minute.
    """
    assert busy is None
    target = a.url.removeprefix("http://")
    text = CONFIGURATION.format(alerts=ALERTS, token=a.token, target=target)
    with servers() as started:
        server = Prometheus(a, await asyncio.to_thread(started.prometheus, text))
        await server.until("parley_build_info")
        yield server


def _boards() -> Iterator[tuple[str, str, str]]:
    """Yield each expression of the boards, with its board and panel."""
    for board in BOARDS:
        document = json.loads(board.read_text())
        for panel in document["panels"]:
            for target in panel["targets"]:
                yield board.stem, panel["title"], target["expr"]


def _filled(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$\w+", ".*", expression)


async def test_every_panel_shows_what_the_lab_does(
    prometheus: Prometheus, a: Outsider, b: Outsider
) -> None:
    """Each expression of each board is valid, and has a value on a node that works."""
    await _plan(a, b)
    for _board, title, expression in _boards():
        if title in QUIET:
            await prometheus.ask("/api/v1/query", query=_filled(expression))
        else:
            await prometheus.until(_filled(expression))


async def test_boards_and_alerts_know_the_metrics(prometheus: Prometheus) -> None:
    """A metric that no node has would leave a panel or an alert empty for ever."""
    written: set[str] = set(NAME.findall(ALERTS.read_text()))
    written |= {name for _, _, expression in _boards() for name in NAME.findall(expression)}
    known = set(await prometheus.ask("/api/v1/metadata"))
    sources = [
        REPOSITORY / "node" / name for name in ("operation/metrics.py", "runtime/instruments.py")
    ]
    known |= {name for source in sources for name in NAME.findall(source.read_text())}
    unknown = {
        name
        for name in written
        if not name.startswith(("parley_result_", "parley_lead_"))
        and not {name, SERIES.sub("", name), name.removesuffix("_total")} & known
    }
    assert unknown == set()


async def test_alerts_are_evaluated(prometheus: Prometheus) -> None:
    """Prometheus evaluates each alert without an error, and a lab that works raises none."""
    await prometheus.until("ALERTS or vector(1) and on () parley_ready == 1")
    [group] = (await prometheus.ask("/api/v1/rules"))["groups"]
    faults = {rule["name"]: rule["lastError"] for rule in group["rules"] if rule.get("lastError")}
    assert faults == {}
    firing: list[dict[str, Any]] = [r for r in group["rules"] if r["state"] == "firing"]
    assert firing == []
