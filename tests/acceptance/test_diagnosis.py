"""Operators learn how a node is, and what is wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


async def test_status_tells_how_a_node_is(a: Outsider, b: Outsider) -> None:
    """One screen has the leads of the node and its database; 1 is the exit code for attention."""
    await a.over(await a.run(await a.create("idle", a, b)))
    await a.until("/v1/status", _is_calm)
    told = await parley(a, "status", "-o", "json")
    status = json.loads(told.out)
    [lead] = _planning(status)
    assert status["planning"]["plan_age"] is not None
    assert (status["peers"], status["peers_away"]) == (2, [])
    subjects = {each["subject"] for each in status["attention"]}
    assert subjects.isdisjoint({"lead", "planning", "database", "schema", "disk", "nodes"})
    assert told.code == (1 if status["attention"] else 0)
    screen = await parley(a, "status", "-o", "table")
    assert f"{lead['owner']} planning, heard " in screen.out
    assert screen.code == told.code


def _is_calm(status: Json) -> bool:
    """Return whether nothing is left of the nodes and leads that other tests have killed."""
    return not status["peers_away"] and len(_planning(status)) == 1


def _planning(status: Json) -> list[Json]:
    return [each for each in status["leads"] if each["state"] == "planning"]


@pytest.mark.needs("ping")
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
    assert told.code == (1 if "✗" in told.out else 0)
    unknown = await parley(a, "doctor", "nobody")
    assert (unknown.code, "no node is called nobody" in unknown.err) == (6, True)


@pytest.mark.nightly
async def test_events_are_printed_as_they_happen(a: Outsider, b: Outsider) -> None:
    """Each event is a line; filters choose, --count ends, and an id resumes the stream."""
    task = await a.create("idle", a, b)
    await a.over(await a.run(task))
    told = await parley(
        a, "events", "--kept", "--task", task["id"], "--kind", "run", "--count", "2", "-o", "json"
    )
    first, second = map(json.loads, told.out.splitlines())
    assert first["state"] == "running"
    assert second["state"] in {"merging", "finished"}, "whose part comes first is open"
    assert first["headline"] == "idle  a, b"
    after = str(first["event_id"])
    again = await parley(
        a, "events", "--after", after, "--task", task["id"], "--count", "1", "-o", "jsonl"
    )
    assert json.loads(again.out)["event_id"] > first["event_id"]
    filters = ("--after", "1", "--kind", "run", "--state", "finished", "--count", "1")
    line = await parley(a, "events", *filters, "-o", "table")
    assert "events between 1 and " in line.err, "the node never had that event"
    assert "run  " in line.out
    assert "  finished good  " in line.out
    unknown = await parley(a, "events", "--kind", "walk")
    assert unknown.code == 2
    assert "'walk' is not known\n  there are: alert, archive, " in unknown.err


async def test_top_tells_who_takes_the_node(a: Outsider, b: Outsider) -> None:
    """It has what comes next and who takes the time, and prints once where no terminal is."""
    later = {"start": (datetime.now(UTC) + timedelta(seconds=40)).isoformat()}
    task = await a.create("idle", a, b, schedule=later)
    run = await a.until_state(await a.run(task), "scheduled")
    await b.until_state(run, "scheduled")
    told = json.loads((await parley(a, "top", "-o", "json")).out)
    assert task["id"] in {run["task"] for run in told["next"]}
    assert "owner" in {taker["who"] for taker in told["takers"]}
    screen = await parley(a, "top", "--once", "-o", "table")
    for line in ("now", "who takes the node, an hour before and after now"):
        assert line in screen.out.splitlines()
    seen_at_b = json.loads((await parley(b, "top", "-o", "json")).out)
    assert "a" in {taker["who"] for taker in seen_at_b["takers"]}, "b knows the lead only"
    await a.cancel(task)


async def test_the_page_opens_logged_in(a: Outsider) -> None:
    """The link has the token, and a token that is not accepted gives none."""
    told = await parley(a, "open", "--print", "-o", "ids")
    assert told.out.strip() == f"{a.url}/#token={a.token}"
    refused = await parley(a, "open", "--token", "parley_wrong", "--print")
    assert (refused.code, refused.out) == (3, "")
