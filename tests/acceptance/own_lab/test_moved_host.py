"""A node that was restored on another host: the others follow it there, and the old host ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from node.cli.lab import nodes
from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.execution import process
from node.model.errors import HostError, WrongKey
from tests.acceptance.outsider import Json, Outsider
from tests.acceptance.own_lab.copies import elsewhere, execute, lab_of, outsiders
from tests.support.command_line import run_command
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs("postgres"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="lab")
async def _lab() -> AsyncIterator[Lab]:
    async with lab_of(3) as lab:
        yield lab


async def _admin(node: Outsider, *words: object) -> None:
    """Run ``parley admin …`` for the database and the key of a node."""
    options = ("--dsn", node.dsn, "--state-dir", node.state)
    environment = {name: it for name, it in os.environ.items() if not name.startswith("PARLEY_")}
    result = await run_command(("admin", *map(str, words), *options), environment)
    assert result.code == 0, result.err


async def _another_host(plan: NodePlan, place: Path) -> NodePlan:
    """Return the same node with another address, database, and state directory."""
    await execute(plan.dsn, "CREATE DATABASE moved")
    return elsewhere(plan, place, "moved")


async def _finished(task: Json, lead: Outsider, since: datetime) -> None:
    """Wait until a run of a task that began after this instant has finished."""
    path = f"/v1/tasks/{task['id']}/runs?state=finished"
    await lead.until(
        path,
        lambda page: any(
            datetime.fromisoformat(run["starts_at"]) > since for run in page.get("items", ())
        ),
    )


@pytest.mark.nightly
async def test_a_restored_node_is_followed_to_its_new_host(lab: Lab, tmp_path: Path) -> None:
    """Tasks that it leads, and those that it takes part in, go on; the old host is refused."""
    tmp_path.chmod(0o711)
    async with outsiders(lab) as (a, b, c):
        often = {"repeat": "PT3S", "until": (datetime.now(UTC) + timedelta(minutes=5)).isoformat()}
        spec = {"duration": "PT1S"}
        led = await a.create("idle", a, b, spec=spec, schedule=often)
        joined = await c.create("idle", c, a, spec=spec, schedule=often)
        await asyncio.gather(a.planned(led), c.planned(joined))
        await _admin(a, "backup", tmp_path / "a.parley")
        plan = await _another_host(lab._plans["a"], tmp_path)
        moved = replace(a, url=plan.url, dsn=plan.dsn, state=str(plan.state))
        await _admin(moved, "restore", tmp_path / "a.parley")
        running = await nodes.start(plan, node_command)
        try:
            # The old host still runs, and has the key.
            async with asyncio.timeout(PATIENCE_S):
                ended = await lab._running["a"].wait()
            old = process.tail_of(lab._plans["a"].log, 3)
            assert ended.exit_code == 9, old
            assert "another host goes on as this node" in old
            ready = await nodes.ready(plan, running, PATIENCE_S)
            moved = replace(moved, token=ready.token)
            for other in (b, c):
                await other.until(
                    "/v1/nodes",
                    lambda page: plan.url in [each["url"] for each in page["items"]],
                )
            since = datetime.now(UTC)
            await asyncio.gather(_finished(led, moved, since), _finished(joined, c, since))
            with pytest.raises(HostError, match="another host goes on as this node"):
                await lab.restart("a")
            assert process.tail_of(plan.log, 200).count('"level": "error"') == 0
        finally:
            await running.end(PATIENCE_S)
        # The old host has lost its key, and is to have the node again.
        (Path(a.state) / "node.pem").unlink()
        with pytest.raises(WrongKey, match="this database belongs to the node"):
            await lab.restart("a")
        await _admin(a, "restore", "--replace", tmp_path / "a.parley")
        again = Outsider(**asdict(await lab.restart("a")), session=a.session)
        for other in (b, c):
            await other.until(
                "/v1/nodes", lambda page: again.url in [each["url"] for each in page["items"]]
            )
        since = datetime.now(UTC)
        await asyncio.gather(_finished(led, again, since), _finished(joined, c, since))
