"""Three nodes, the last in pull mode: it takes part like any other, also in repairs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import asyncpg
import orjson
import pytest
import pytest_asyncio

from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.results.bundles.verification import Outcome, check_bundle, parse_bundle
from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider, booked
from tests.integration.host_leftovers import nothing_left
from tests.support.bundles import keys_of
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio(loop_scope="module")]


def _command(plan: NodePlan) -> list[str]:
    """Return the command of a node; the last node has no URL."""
    argv = node_command(plan)
    if plan.name == "c":
        at = argv.index("--url")
        argv[at : at + 2] = ["--pull"]
    return argv


async def _parley(node: Outsider, *words: str) -> str:
    """Run a command that must succeed, and return its output."""
    result = await parley(node, *words)
    assert result.code == 0, result.err
    return result.out


async def _booked(lead: Outsider, *participants: Outsider) -> None:
    """Run a task of these nodes, and check that its run is the same on all of them."""
    spec = {"duration": "PT1S"}
    run = await lead.finished(await lead.run(await lead.create("idle", *participants, spec=spec)))
    assert run["result"]["participants"] == len(run["parts"]) == len(participants)
    bundle = parse_bundle(orjson.dumps(await lead.get(f"/v1/runs/{run['id']}/bundle")))
    assert check_bundle(bundle, keys_of(bundle)).outcome is Outcome.VERIFIED
    for node in participants:
        assert booked(await node.get(f"/v1/runs/{run['id']}")) == booked(run)


_RUNS = "/v1/runs?state=scheduled&limit=500"
_TASKS = "/v1/tasks?state=active&limit=500"


async def _admin(node: Outsider, *words: str | Path) -> None:
    """Run ``parley admin …`` for the database and the key of a node."""
    await _parley(node, "admin", *map(str, words), "--dsn", node.dsn, "--state-dir", node.state)


async def _known(node: Outsider) -> tuple[list[tuple[str, str, str]], list[tuple[str, int]]]:
    """Return the runs to come and the open tasks that a node has."""
    runs = [booked(run) for run in (await node.get(_RUNS))["items"]]
    tasks = [(task["id"], task["priority"]) for task in (await node.get(_TASKS))["items"]]
    return sorted(runs), sorted(tasks)


async def _age(*nodes: Outsider) -> None:
    """Let an hour pass since what was created and decided, which is compared after minutes."""
    for node in nodes:
        connection = await asyncpg.connect(node.dsn)
        await connection.execute("UPDATE task SET created_at = created_at - interval '1 hour'")
        await connection.execute("UPDATE negotiation SET decided_at = decided_at - interval '1 h'")
        await connection.close()


def _hourly(since: datetime) -> Json:
    start, until = since + timedelta(hours=1), since + timedelta(hours=4)
    return {"start": start.isoformat(), "repeat": "PT1H", "until": until.isoformat()}


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="lab")
async def _lab() -> AsyncIterator[Lab]:
    """Start the three nodes."""
    with nothing_left():
        async with Lab(3, command=_command) as lab:
            yield lab


@pytest.mark.nightly
async def test_a_node_behind_a_firewall_takes_part(lab: Lab) -> None:
    """A node in pull mode takes part, leads, is added by its key, and finds a restarted lead."""
    waits = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(timeout=waits) as session:
        a, b, c = (Outsider(**asdict(node), session=session) for node in lab.nodes)
        for other in (a, b):
            page = await other.get("/v1/nodes")
            assert {each["name"]: each["url"] is None for each in page["items"]}["c"]
        spec = {"count": 20, "interval": "PT0.1S", "timeout": "PT6S"}
        run = await a.finished(await a.run(await a.create("latency", a, c, spec=spec)))
        assert 0 < run["result"]["received_back"] <= run["result"]["sent"] == 20
        await asyncio.gather(_booked(c, c, b), _booked(b, c, a), _booked(a, a, b, c))

        (line,) = [
            line
            for line in (await _parley(a, "node", "list", "-o", "table")).splitlines()
            if line.startswith("c ")
        ]
        assert " pull " in line
        assert "unreachable" not in line
        await _parley(a, "node", "remove", "c")
        identity = (await c.get("/v1/nodes/self"))["identity"]
        await _parley(a, "node", "add", identity)
        await a.until("/v1/nodes", lambda page: "c" in {n["name"] for n in page["items"]})
        await _booked(a, c, a)

        again = await lab.restart("a")
        await _booked(Outsider(**asdict(again), session=session), a, c)


@pytest.mark.needs("postgres")
@pytest.mark.nightly
async def test_a_restored_lead_agrees_with_its_participant(lab: Lab, tmp_path: Path) -> None:
    """Tasks edited, cancelled, and posted since the backup are the same on both nodes again."""
    waits = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(timeout=waits) as session:
        a, _, c = (Outsider(**asdict(node), session=session) for node in lab.nodes)
        schedule = _hourly(datetime.now(UTC).replace(microsecond=0))

        async def post() -> Json:
            task = await a.create("idle", a, c, spec={"duration": "PT1S"}, schedule=schedule)
            assert len(await a.runs(task)) == 3
            return task

        edited, cancelled = await post(), await post()
        await _age(a, c)
        await _admin(a, "backup", tmp_path / "a.parley")
        change = {"priority": 7, "schedule": {**schedule, "repeat": "PT30M"}}
        answer = await a.ask("PATCH", f"/v1/tasks/{edited['id']}", change)
        assert answer.status == 200, answer
        await a.cancel(cancelled)
        posted = await post()
        await c.until(f"/v1/tasks/{edited['id']}", lambda task: task["priority"] == 7)
        await _age(a, c)
        await lab.kill("a")
        await _admin(a, "restore", "--replace", tmp_path / "a.parley")
        a = Outsider(**asdict(await lab.restart("a")), session=session)
        await c.until(
            _TASKS,
            lambda page: (
                [(edited["id"], 0)] == [(task["id"], task["priority"]) for task in page["items"]]
            ),
        )
        assert (await c.get(f"/v1/tasks/{posted['id']}"))["state"] == "cancelled"
        assert (await a.get(f"/v1/tasks/{cancelled['id']}"))["state"] == "cancelled"
        await c.until(_RUNS, lambda page: len(page["items"]) == 3)
        await a.until(_RUNS, lambda page: len(page["items"]) == 3)
        assert await _known(a) == await _known(c)
