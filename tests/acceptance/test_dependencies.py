"""Tasks that follow others, from the command line and over HTTP, on real nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]


BRIEF = {"duration": "PT1S", "class": "background"}
MESH = """
name = "chain"

[tests.first]
type = "idle"
spec = { duration = "PT1S", class = "background" }

[schedules.often]
start = "PT3S"
repeat = "PT5S"
max_runs = 20

[[measure]]
shape = "pairs"
pairs = [["a", "b"]]
test = "first"
schedule = "often"

[[measure]]
name = "then"
shape = "pairs"
pairs = [["a", "b"]]
test = "first"
after = { key = "first", within = "PT1M" }
"""


async def _command(node: Outsider, *arguments: str) -> Json:
    """Run a command that must succeed, and return the document it prints."""
    result = await parley(node, *arguments, "-o", "json")
    assert result.code == 0, result
    return json.loads(result.out)


@pytest.mark.nightly
async def test_after_each_run_another_task_runs(nodes: list[Outsider]) -> None:
    """After each run of a task on two nodes, a task on the third runs once, and both end."""
    lead, b, c = nodes
    twice = {"start": "PT6S", "repeat": "PT4S", "max_runs": 2}
    first = await lead.create("idle", lead, b, spec=BRIEF, schedule=twice)
    after = {"task": first["id"], "within": "PT1M"}
    document = {"test": {"type": "idle", "spec": BRIEF}, "participants": [c.name], "after": after}
    plan = await lead.ask("POST", "/v1/plans", document)
    unknown = f"it follows task {first['id']}, so that its times are known only when"
    assert plan.body["sentence"].startswith(unknown)
    spec, follow = ("--spec-json", json.dumps(BRIEF)), ("--after", first["id"])
    who = ("--participant", c.name, "--after-within", "1m")
    then = await _command(lead, "task", "create", "idle", *spec, *who, *follow)
    assert (then["planned"], then["runs"]) == (False, {})
    assert then["after"] == {"task": first["id"], "outcome": "succeeded", "within": "PT1M"}
    why = (await parley(lead, "explain", then["id"], "-o", "table")).out
    assert f"it follows runs that succeed of task {first['id']} (idle, active)" in why
    shown = (await parley(lead, "task", "show", then["id"], "-o", "table")).out
    assert f"after {first['id'][:8]} succeeded, within 1 min" in shown

    path = f"/v1/tasks/{then['id']}"
    over = await lead.until(path, lambda task: task["state"] == "finished")
    assert over["reason"] == f"task {first['id']}, which it follows, is finished"
    followed = (await lead.get(f"/v1/tasks/{first['id']}/runs?order=asc"))["items"]
    following = (await lead.get(f"{path}/runs?order=asc"))["items"]
    assert [run["state"] for run in following] == ["finished"] * 2
    assert [run["slot"] for run in following] == [run["ends_at"] for run in followed]
    assert all(run["starts_at"] >= run["slot"] for run in following)
    there = await c.get(f"/v1/runs/{following[0]['id']}")
    assert (there["state"], there["lead"]) == ("finished", lead.name)


async def test_cycles_are_refused_over_http(a: Outsider) -> None:
    """An edit by which two tasks would follow each other answers 422 and shows the path."""
    later = {"start": "PT1H"}
    first = await a.create("idle", a, spec=BRIEF, schedule=later)
    then = await a.create("idle", a, spec=BRIEF, after={"task": first["id"]})
    patch = {"schedule": {"start": None}, "after": {"task": then["id"]}}
    answer = await a.ask("PATCH", f"/v1/tasks/{first['id']}", patch)
    assert (answer.status, answer.pointers) == (422, ["/after/task"])
    assert f"{first['id']} → {then['id']} → {first['id']}" in answer.body["errors"][0]["detail"]
    await a.cancel(first)
    gone = await a.until(f"/v1/tasks/{then['id']}", lambda task: task["state"] != "active")
    assert gone["state"] == "cancelled"
    assert first["id"] in gone["reason"]


@pytest.mark.nightly
async def test_entries_of_a_mesh_follow_others(nodes: list[Outsider], tmp_path: Path) -> None:
    """Each task of an entry runs after that of its pair, and is created anew with it."""
    lead = nodes[0]
    file = tmp_path / "chain.toml"
    file.write_text(MESH)
    plan = await _command(lead, "plan", "mesh", str(file))
    sentences = {answer["key"]: answer["sentence"] for answer in plan["plans"]}
    assert sentences["then/a/b"].startswith("follows first/a/b, which does not exist yet; a run")
    done = await _command(lead, "mesh", "apply", str(file))
    assert (done["created"], done["failed"]) == (2, [])
    plan = await _command(lead, "plan", "mesh", str(file))
    assert plan["sentence"] == "the existing tasks match the file: 2 tasks"
    tasks = {task["key"]: task for task in (await lead.get("/v1/meshes/chain/tasks"))["items"]}
    assert tasks["then/a/b"]["after"]["task"] == tasks["first/a/b"]["id"]
    path = f"/v1/tasks/{tasks['then/a/b']['id']}/runs"
    await lead.until(f"{path}?state=finished", lambda page: page["items"])

    await lead.cancel(tasks["first/a/b"])
    await lead.until(
        f"/v1/tasks/{tasks['then/a/b']['id']}", lambda task: task["state"] == "cancelled"
    )
    done = await _command(lead, "mesh", "apply", str(file))
    assert (done["created"], done["failed"]) == (2, [])
    removed = await _command(lead, "mesh", "remove", "chain")
    assert removed["failed"] == []
