"""A node whose files were copied beside it: the copy begins nothing, and the node goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from node.cli.lab import nodes
from node.cli.lab.nodes import NodePlan, node_command
from node.cli.lab.supervisor import Lab
from node.execution import process
from tests.acceptance.outsider import Outsider
from tests.acceptance.own_lab.copies import elsewhere, execute, lab_of, outsiders
from tests.support.command_line import run_command
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.needs("postgres"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="lab")
async def _lab() -> AsyncIterator[Lab]:
    async with lab_of(2) as lab:
        yield lab


async def _copied(plan: NodePlan, beside: Path, server: str) -> NodePlan:
    """Return a copy of a node that does not run: its database and its state directory."""
    await execute(server, f"CREATE DATABASE clone TEMPLATE {plan.name}")
    shutil.copytree(plan.state, beside / "clone")
    return elsewhere(plan, beside, "clone")


async def test_a_copy_waits_for_the_word_of_its_owner(lab: Lab, tmp_path: Path) -> None:
    """It ends while the original answers, measures nothing, and goes on by a command."""
    tmp_path.chmod(0o711)
    async with outsiders(lab) as both:
        a, b = both
        often = {"repeat": "PT3S", "until": (datetime.now(UTC) + timedelta(minutes=9)).isoformat()}
        led = await a.create("idle", a, b, spec={"duration": "PT1S"}, schedule=often)
        await a.planned(led)
        await lab.kill("a")
        plan = await _copied(lab._plans["a"], tmp_path, b.dsn)
        copy = await nodes.start(plan, node_command)  # before the original, which is still down
        a = Outsider(**asdict(await lab.restart("a")), session=a.session)
        for number in range(2):
            if number:  # the second time it knows
                copy = await nodes.start(plan, node_command)
            ended = await copy.wait()
            said = process.tail_of(plan.log, 3)
            assert ended.exit_code == 9, said
            assert f"this is a copy of a node that goes on at {a.url}" in said
        connection = await asyncpg.connect(plan.dsn)
        since = await connection.fetchval("SELECT made_at FROM generation")
        query = "SELECT count(*) FROM run WHERE started_at > $1"
        assert await connection.fetchval(query, since) == 0
        await connection.close()
        moved = "/v1/nodes"
        await b.until(moved, lambda page: a.url in [each["url"] for each in page["items"]])
        now = datetime.now(UTC).isoformat()
        await a.until(
            f"/v1/tasks/{led['id']}/runs?state=finished",
            lambda page: any(run["starts_at"] > now for run in page.get("items", ())),
        )
        await lab.kill("a")
        environment = {name: it for name, it in os.environ.items() if name[:7] != "PARLEY_"}
        options = ("--dsn", plan.dsn, "--state-dir", str(plan.state))
        result = await run_command(("admin", "take-over", *options), environment)
        assert result.code == 0, result.err
        copy = await nodes.start(plan, node_command)
        try:
            await nodes.ready(plan, copy, PATIENCE_S)
            await b.until(moved, lambda page: plan.url in [each["url"] for each in page["items"]])
        finally:
            await copy.end(PATIENCE_S)
