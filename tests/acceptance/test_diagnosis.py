"""Operators learn how a node is, and what is wrong."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Outsider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


async def test_status_tells_how_a_node_is(a: Outsider, b: Outsider) -> None:
    """One screen has the leads of the node and its database; 1 is the exit code for attention."""
    await a.over(await a.run(await a.create("idle", a, b)))
    told = await parley(a, "status", "-o", "json")
    status = json.loads(told.out)
    [lead] = status["leads"]
    assert (lead["state"], lead["takeovers"]) == ("planning", 0)
    assert status["planning"]["plan_age"] is not None
    assert (status["peers"], status["peers_away"]) == (2, [])
    # Whether the clock of this machine is synchronised is not up to the node.
    others = [each for each in status["attention"] if "clock" not in each["what"]]
    assert others == []
    assert told.code == (1 if status["attention"] else 0)
    screen = await parley(a, "status", "-o", "table")
    assert f"{lead['owner']} planning, heard " in screen.out
    assert screen.code == told.code
