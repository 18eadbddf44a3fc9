"""A node that lost its database knows nobody: the others notice, and begin nothing alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.model import times
from node.model.wire.nodes import NodeAddition
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import asker, served
from tests.support.served_pairs import Pair, paired


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Serve a and b, which know each other."""
    async with (
        asker("a", await new_database(), clock, tmp_path / "a") as a,
        served("b", await new_database(), clock, tmp_path / "b") as b,
    ):
        yield await paired(a, b, clock)


async def _lose_database(pair: Pair) -> None:
    """Leave b with what a new database has: itself."""
    await pair.at_b("DELETE FROM task")
    await pair.at_b("DELETE FROM node WHERE NOT is_self")
    await pair.b.directory.refresh()


async def _states(pair: Pair) -> set[str]:
    return {row[0] for row in await pair.a.rows("SELECT state::text FROM run")}


@pytest.mark.nightly
async def test_runs_with_a_node_that_lost_its_database_wait(pair: Pair) -> None:
    """Runs with a node that does not know this one are taken back, and explained."""
    task = await pair.book(1)
    assert await _states(pair) == {"booked"}
    await _lose_database(pair)
    await pair.a.node.peer_monitor.run_once()
    await pair.plan()
    assert await _states(pair) == {"displaced", "waiting"}
    _, told = await pair.a.ask("GET", f"/v1/tasks/{task}/explain")
    assert "b does not know this node: its database was lost" in told["sentence"]
    assert "on b, its owner adds it: parley node add" in told["sentence"]
    _, listed = await pair.a.ask("GET", "/v1/nodes")
    assert "b does not know this node" in listed["items"][1]["last_error"]


@pytest.mark.nightly
async def test_all_is_booked_again_when_it_is_added_again(pair: Pair) -> None:
    """Once it knows the others again, their tasks are told and booked again at once."""
    await pair.book(1)
    await _lose_database(pair)
    await pair.a.node.peer_monitor.run_once()
    await pair.plan()
    added = await pair.b.registration.add(NodeAddition(url=pair.a.node.card.url))
    await pair.b.comparer.compare_with(added.name)
    assert pair.a.node.directory.by_identity(pair.b.card.identity).unreachable_since is None
    await pair.a.node.outbox.run_once()
    pair.lead.reachability.probe_by_name("b")
    await pair.lead.planner.apply_reachability_changes()
    await pair.plan()
    booked = "SELECT id, starts_at FROM run WHERE state = 'booked' ORDER BY id"
    assert len(await pair.at_b(booked)) == 2
    assert await pair.at_b(booked) == await pair.a.rows(booked)


@pytest.mark.nightly
async def test_what_it_led_is_not_measured_alone(pair: Pair) -> None:
    """Runs that a node led before it lost its database are taken back at their participants."""
    await pair.book(1)
    await pair.a.rows("UPDATE task SET lead = $1", pair.b.card.identity)
    await _lose_database(pair)
    await pair.a.node.peer_monitor.run_once()
    assert await _states(pair) == {"displaced"}
    await pair.b.registration.add(NodeAddition(url=pair.a.node.card.url))
    pair.clock.advance(times.MINUTE)
    await pair.b.comparer.compare_with("a")
    await pair.a.node.comparer.compare_with("b")
    [task] = await pair.a.rows("SELECT state::text, reason FROM task")
    assert tuple(task) == ("cancelled", "its lead does not know it")
