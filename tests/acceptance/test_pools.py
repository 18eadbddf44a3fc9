"""Pool tasks from the command line, on real nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("tidy"),
]

IDLE = ("idle", "--spec-json", '{"duration": "PT1S", "class": "background"}')


async def done(node: Outsider, *arguments: str) -> Json:
    """Run a command that must succeed, and return the document it prints."""
    result = await parley(node, *arguments, "-o", "json")
    assert result.code == 0, result
    return json.loads(result.out)


async def _known(lead: Outsider, pool: str, *members: Outsider) -> None:
    """Return when exactly these nodes are known to be in a pool."""
    names = sorted(node.name for node in members)
    await lead.until(f"/v1/pools/{pool}", lambda found: sorted(found["nodes"]) == names)


@pytest_asyncio.fixture(loop_scope="session")
async def pool(nodes: list[Outsider]) -> AsyncIterator[str]:
    """Create a pool of all three nodes, each at its own site."""
    lead = nodes[0]
    await asyncio.gather(
        *(done(node, "node", "set", "in=story", f"site={node.name}") for node in nodes)
    )
    name = f"story-{uuid4().hex[:8]}"
    await done(lead, "pool", "add", name, "--match", "in=story", "--term", "1m")
    await _known(lead, name, *nodes)
    yield name
    for node in nodes:
        await done(node, "node", "unset", "in", "site")


async def _seats(lead: Outsider, task: Json) -> dict[str, dict[int, str]]:
    """Return the nodes of taken seats by term and number."""
    seats = (await lead.get(f"/v1/tasks/{task['id']}/seats"))["items"]
    by_term: dict[str, dict[int, str]] = {}
    for seat in seats:
        if seat["state"] in {"taken", "over"}:
            by_term.setdefault(seat["term"], {})[seat["number"]] = seat["node"]
    return by_term


def _to_come(seats: list[Json]) -> set[str]:
    """Return the nodes of the seats with future runs."""
    return {seat["node"] for seat in seats if seat["runs"].get("scheduled")}


async def test_nodes_are_chosen_measure_leave_and_are_replaced(
    nodes: list[Outsider], pool: str
) -> None:
    """Two of three nodes get the seats and measure; one leaves, and the third replaces it."""
    lead = nodes[0]
    await done(lead, "campaign", "add", "watch", "--weight", "2")
    seats = ("--pool", pool, "-k", "2", "--min-k", "1", "--spread", "site=1", "--campaign", "watch")
    task = await done(lead, "task", "create", *IDLE, *seats, "--repeat", "10s", "--max-runs", "40")
    path = f"/v1/tasks/{task['id']}"
    await lead.until(path, lambda found: found["seats"]["taken"] == 2)
    runs = await lead.until(
        f"{path}/runs?state=finished", lambda page: len({r["task"] for r in page["items"]}) == 2
    )
    terms = await _seats(lead, task)
    first = min(terms)
    assert len(set(terms[first].values())) == 2
    assert {name for run in runs["items"] for name in run["participants"]} == set(
        terms[first].values()
    )
    shown = (await parley(lead, "task", "show", task["id"], "-o", "table")).out
    assert f"2 of {pool}, at least 1, 1 per site" in shown
    assert "2 of 2 seats from" in shown
    listed = await done(lead, "task", "list")
    assert task["id"] in {each["id"] for each in listed}
    assert not {run["task"] for run in runs["items"]} & {each["id"] for each in listed}

    names = {node.name: node for node in nodes}
    leaver = next(names[name] for name in terms[first].values() if name != lead.name)
    (other,) = set(names) - set(terms[first].values())
    await done(leaver, "node", "set", "in=elsewhere")
    await _known(lead, pool, *(node for node in nodes if node is not leaver))
    remaining = set(names) - {leaver.name}
    await lead.until(f"{path}/seats", lambda page: _to_come(page["items"]) == remaining)
    why = (await parley(lead, "explain", task["id"], "--all", "-o", "table")).out
    assert f'({leaver.name}): {leaver.name}: its in is "elsewhere", and pool {pool} asks for' in why
    assert other in why

    cancelled = await done(lead, "task", "cancel", task["id"])
    assert cancelled[0]["state"] == "cancelled"
    page = await lead.get("/v1/tasks", state="active", limit=500, seats="true")
    assert task["id"] not in {each["parent"] for each in page["items"]}


async def _explained(lead: Outsider, task: Json, *words: str) -> None:
    """Return when the explanation of the last decision about a task has all these words."""
    why = ""
    async with asyncio.timeout(PATIENCE_S), lead.changes() as changed:
        while not all(each in why for each in words):
            await changed()
            why = (await parley(lead, "explain", task["id"], "-o", "table")).out


@pytest.mark.nightly
async def test_limits_say_no_in_every_set(nodes: list[Outsider], pool: str) -> None:
    """A refused seat names the limit and the pool's set; a higher limit takes effect at once."""
    lead = nodes[0]
    await done(lead, "campaign", "add", "modest", "--limit", "seats=0,0")
    options = ("--pool", pool, "-k", "1", "--no-wait", "--campaign", "modest", "--start", "+1h")
    task = await done(lead, "task", "create", *IDLE, *options)
    path = f"/v1/tasks/{task['id']}"
    for given, policy in (("maui-throttle", "priority"), ("pscheduler", "pscheduler")):
        await done(lead, "pool", "set-policy", pool, given)
        await _explained(lead, task, f"by       {policy}, pool {pool}", "(throttle/")
    assert await lead.runs(task) == []
    await done(lead, "campaign", "edit", "modest", "--limit", "seats=1,1")
    await lead.until(path, lambda found: found["seats"]["taken"] == 1)
    (run,) = await lead.runs(task)
    assert run["state"] == "scheduled"


@pytest.mark.nightly
async def test_too_much_is_refused_with_the_remedy(nodes: list[Outsider], pool: str) -> None:
    """Requests for more nodes than exist, or for attributes that no node has, are refused."""
    lead = nodes[0]
    result = await parley(lead, "task", "create", *IDLE, "--pool", pool, "-k", "4")
    assert result.code == 2
    assert (
        f"/participants/k: is more than pool {pool} has: 3 nodes\n  ask for 3 at most" in result.err
    )
    options = ("--pool", pool, "-k", "1", "--match", "site=moon")
    result = await parley(lead, "task", "create", *IDLE, *options)
    assert result.code == 2
    assert "/participants/match/site" in result.err
    assert 'site is "a", "b", "c"' in result.err
