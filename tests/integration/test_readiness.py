"""Operators learn over HTTP that a node lacks a lead or room."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from lead.assembly.with_node import lead_of
from lead.store import planning
from lead.store.planning import LeaseRequest
from node.cli.services import _show_lead
from node.model.errors import NoRoom
from node.model.readiness import LEAD_SILENT
from node.model.times import HOUR, MINUTE, SECOND
from node.store import readiness
from node.store.readiness import LeadProgram
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, asker


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to query, with a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


async def _metrics(a: Asker) -> dict[str, str]:
    async with a.session.get(f"{a.node.card.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


async def test_a_lead_that_died_is_missed(a: Asker, clock: ManualClock) -> None:
    """A node is not ready from half a minute after the last sign of a lead until the next one."""
    assert (await a.ask("GET", "/readyz"))[0] == 200, "it may only take part"
    await _show_lead(a.node, "host:1")
    clock.advance(LEAD_SILENT - SECOND)
    assert (await a.ask("GET", "/readyz"))[0] == 200
    clock.advance(SECOND)
    status, problem = await a.ask("GET", "/readyz")
    assert (status, problem["detail"].split(":")[0]) == (
        503,
        "no lead plans the tasks of this node",
    )
    figures = await _metrics(a)
    assert [figures[f"parley_{name}"] for name in ("ready", "leads", "lead_seen_seconds")] == [
        "0.0",
        "0.0",
        "30.0",
    ]
    await _show_lead(a.node, "host:2")
    assert (await a.ask("GET", "/readyz"))[0] == 200


async def test_tasks_that_nobody_plans_are_told(a: Asker, clock: ManualClock) -> None:
    """A task that is due for long, with or without a lead, is a reason not to be ready."""
    document = {"test": {"type": "idle", "spec": {"duration": "PT1S"}}}
    status, _ = await a.ask("POST", "/v1/tasks", document)
    assert status == 201
    clock.advance(7 * MINUTE)
    status, problem = await a.ask("GET", "/readyz")
    assert status == 503
    assert "none has ever reported here" in problem["detail"]
    await _show_lead(a.node, "host:1")
    status, problem = await a.ask("GET", "/readyz")
    assert problem["detail"].startswith("the oldest due task has waited 7 min")
    figures = await _metrics(a)
    assert figures["parley_oldest_due_task_seconds"] == "420.0"
    assert int(float(figures["parley_state_free_bytes"])) > 0


async def test_a_full_disk_is_told(a: Asker) -> None:
    """A database that refused a write for want of room makes the node not ready."""
    with pytest.raises(NoRoom, match=r"nothing was stored, .*full \(could not extend file\)"):
        async with a.node.database.connection():
            raise asyncpg.DiskFullError("could not extend file")
    status, problem = await a.ask("GET", "/readyz")
    assert (status, "could not extend file" in problem["detail"]) == (503, True)
    assert (await _metrics(a))["parley_database_full"] == "1.0"


async def test_leads_are_told_one_by_one(a: Asker, clock: ManualClock) -> None:
    """Status and metrics have each lead, the age of its last sign, and what it took over."""
    await _show_lead(a.node, "host:1")
    document = {"test": {"type": "idle", "spec": {"duration": "PT1S"}}}
    await a.ask("POST", "/v1/tasks", document)
    dead = LeaseRequest("host:1", clock.now(), clock.now() + a.node.settings.lease)
    async with a.node.database.connection() as connection:
        [claimed] = await planning.claim(connection, dead, clock.now() + HOUR, 1)
    assert claimed.taken_from is None
    clock.advance(12 * SECOND)
    _, status = await a.ask("GET", "/v1/status")
    [lead] = status["leads"]
    assert (lead["state"], lead["heartbeat_age"], lead["leases"], lead["oldest_lease_age"]) == (
        "planning",
        "PT12S",
        1,
        "PT12S",
    )
    clock.advance(MINUTE)
    await _show_lead(a.node, "other:2")
    living = lead_of(a.node, owner="other:2", rng=random.Random(1))
    await living.workers.run_once()
    await asyncio.gather(*living.workers._busy)
    _, status = await a.ask("GET", "/v1/status")
    assert [
        (lead["owner"], lead["state"], lead["takeovers"], lead["leases"])
        for lead in status["leads"]
    ] == [("other:2", "planning", 1, 0), ("host:1", "silent", 0, 0)]
    assert status["planning"]["plan_age"] == "PT0S"
    sentences = [each["what"] for each in status["attention"]]
    unheard = "the lead host:1 was not told to stop, and has not been heard for 1 min 12 s"
    assert unheard in sentences
    figures = await _metrics(a)
    assert figures['parley_lead_takeovers_total{lead="other:2"}'] == "1.0"
    assert figures['parley_lead_heartbeat_age_seconds{lead="host:1"}'] == "72.0"
    assert figures['parley_lead_leases{lead="other:2"}'] == "0.0"


async def test_a_lead_that_was_stopped_is_not_missed(a: Asker, clock: ManualClock) -> None:
    """A lead that was told to stop, or was started anew on its host, needs no attention."""
    await _show_lead(a.node, "host:1")
    async with a.node.database.connection() as connection:
        await readiness.stop_lead(connection, "host:1", clock.now())
        program = LeadProgram(clock.now() - HOUR, "0.3", 5)
        await readiness.keep_lead(connection, "other:1", clock.now(), 0, program)
    clock.advance(5 * MINUTE)
    async with a.node.database.connection() as connection:
        again = LeadProgram(clock.now(), "0.3", 5)
        await readiness.keep_lead(connection, "other:2", clock.now(), 0, again)
    _, status = await a.ask("GET", "/v1/status")
    assert {lead["owner"]: lead["state"] for lead in status["leads"]} == {
        "other:2": "planning",
        "other:1": "replaced",
        "host:1": "stopped",
    }
    assert "lead" not in " ".join(each["what"] for each in status["attention"])
