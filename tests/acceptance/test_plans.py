"""Previews by three nodes, compared with what then happens."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.hostility import newest
from tests.acceptance.outsider import Json, Outsider, instant

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]


async def _parley(node: Outsider, *arguments: str, stdin: str = "") -> tuple[int, Json]:
    """Return the exit code of a command and the document it prints."""
    result = await parley(node, *arguments, stdin=stdin)
    assert result.out, result.err
    return result.code, json.loads(result.out)


def _exclusive(start: datetime, minutes: int, **document: Json) -> Json:
    schedule = {"start": start.isoformat(), "slip": "PT0S"}
    spec = {"duration": f"PT{minutes}M", "class": "exclusive"}
    return {"spec": spec, "schedule": schedule, **document}


async def test_an_alternative_is_found_posted_and_booked(
    a: Outsider, b: Outsider, c: Outsider, nodes: list[Outsider], free_hour: datetime
) -> None:
    """A preview without time has an alternative, which can be posted and is booked as announced."""
    blocking = await b.create("idle", b, c, **_exclusive(free_hour, 20, priority=5))
    await b.planned(blocking)
    before = await newest(nodes)
    late = free_hour + timedelta(minutes=15)
    options = (
        "idle",
        "--spec-json",
        json.dumps({"duration": "PT10M", "class": "exclusive"}),
        *("--participant", a.name, "--participant", c.name),
        *("--start", late.isoformat(), "--slip", "1m"),
    )
    code, plan = await _parley(a, "plan", "task", *options)
    assert (code, plan["outcome"], plan["starts"]) == (4, "no-time", [])
    assert [each["windows_free"] for each in plan["participants"]] == [1, 0]
    first = plan["alternatives"][0]
    assert (first["kind"], first["placed"]) == ("later", 1)
    assert await newest(nodes) == before
    code, document = await _parley(a, "plan", "task", *options, "--alternative", "1")
    assert (code, document) == (0, first["document"])
    code, task = await _parley(a, "task", "create", "--file", "-", stdin=json.dumps(document))
    assert code == 0
    assert (await a.run(task))["starts_at"] == first["starts_at"]
    assert datetime.fromisoformat(first["starts_at"]) >= free_hour + timedelta(minutes=20)


async def _measured(node: Outsider, hour: datetime, first: int, last: int) -> float:
    """Return the seconds in these minutes of an hour in which the runs of other tests measure."""
    start, end = hour + timedelta(minutes=first), hour + timedelta(minutes=last)
    span = {"from": start.isoformat(), "to": end.isoformat(), "state": "scheduled", "limit": 500}
    runs = (await node.get("/v1/runs", **span))["items"]
    times = [(instant(run["starts_at"]), instant(run["ends_at"])) for run in runs]
    assert all(one[1] <= two[0] for one, two in pairwise(sorted(times)))
    return sum((min(e, end) - max(s, start)).total_seconds() for s, e in times)


async def test_who_would_give_way_does(
    a: Outsider, b: Outsider, free_hour: datetime, nodes: list[Outsider]
) -> None:
    """A plan counts the run that is then displaced, and names it to the owner of the node only."""
    low = await b.create("idle", b, **_exclusive(free_hour, 20))
    run = await b.run(low)
    document = {"participants": [a.name, b.name], "priority": 4} | _exclusive(free_hour, 5)
    document["test"] = {"type": "idle", "spec": document.pop("spec")}
    before = await newest(nodes)
    answer = await a.ask("POST", "/v1/plans", document)
    assert (answer.status, answer.body["outcome"]) == (200, "found")
    assert [(lost["name"], lost["run"]) for lost in answer.body["displaced"]] == [(b.name, None)]
    own = await b.ask("POST", "/v1/plans", document)
    assert (b.name, run["id"]) in {(lost["name"], lost["run"]) for lost in own.body["displaced"]}
    first, rest = [await _measured(a, free_hour, *part) for part in ((0, 5), (5, 20))]
    assert [full["added_s"] for full in answer.body["occupancy"]] == [300 - first, rest - 900]
    assert await newest(nodes) == before
    assert (await a.ask("POST", "/v1/tasks", document)).status == 201
    await b.until_state(run, "displaced")


async def test_plans_need_a_token_and_a_sound_document(a: Outsider) -> None:
    """A preview requires a token, and its wrong fields have pointers as in a POST."""
    document = {"test": {"type": "idle"}, "runs": 0}
    answer = await a.ask("POST", "/v1/plans", document)
    assert (answer.status, answer.pointers) == (422, ["/runs"])
    answer = await a.ask("POST", "/v1/plans", {"test": {"type": "juggling"}})
    assert (answer.status, answer.pointers) == (422, ["/test/type"])
    headers = {"Authorization": "Bearer wrong"}
    assert (await a.ask("POST", "/v1/plans", document, headers)).status == 401
    described = await a.get("/v1/openapi.json")
    assert "PlanRequest" in json.dumps(described["paths"]["/v1/plans"]["post"]["requestBody"])
