"""Tasks that follow others, from the command line and over HTTP, on real nodes."""

from __future__ import annotations

import pytest

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Outsider

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]


BRIEF = {"duration": "PT1S", "class": "background"}


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
    then = await lead.create("idle", c, spec=BRIEF, after=after)
    assert then["after"] == {"task": first["id"], "outcome": "succeeded", "within": "PT1M"}
    why = (await parley(lead, "explain", then["id"], "-o", "table")).out
    assert f"it follows runs that succeed of task {first['id']} (idle, active)" in why
    shown = (await parley(lead, "task", "show", then["id"], "-o", "table")).out
    assert f"after {first['id'][:8]} succeeded, within PT1M" in shown

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
