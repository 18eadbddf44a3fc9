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


async def test_the_doctor_checks_a_pair_from_both_ends(a: Outsider) -> None:
    """A asks b and c, and each tells of the way to the other one; nothing is booked for it."""
    told = await parley(a, "doctor", "b", "c", "-o", "json")
    checks = json.loads(told.out)
    for one, other in (("b", "c"), ("c", "b")):
        found = {
            each["subject"]: each
            for each in checks
            if (each["node"], each["towards"]) == (one, other) and each["state"] == "ok"
        }
        assert f"{other} answers with the key that is known here" in found["peering"]["what"]
        assert f"the clock of {other} is " in found["clock"]["what"]
        assert f"get to {other} and back in one piece" in found["mtu"]["what"]
        assert f"{other} answers over UDP at a port of its tools" in found["ports"]["what"]
        assert "throughput" in found["tools"]["what"]
        assert "limits" in found
    assert [each for each in checks if each["state"] == "fault"] == []
    assert told.code == 0


async def test_the_doctor_checks_one_node(a: Outsider) -> None:
    """Without arguments the node itself is checked; what is unknown is refused."""
    told = await parley(a, "doctor", "-o", "table")
    assert told.out.splitlines()[0] == "a"
    for line in ("✓ lead ", "✓ schema ", "✓ disk ", "✓ tools "):
        assert line in told.out
    assert told.code == 0
    unknown = await parley(a, "doctor", "nobody")
    assert (unknown.code, "no node is called nobody" in unknown.err) == (6, True)
