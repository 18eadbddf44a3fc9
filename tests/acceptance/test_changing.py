"""Pausing and editing tasks that real nodes have booked."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from node.cli.lab.supervisor import Lab
from tests.acceptance.outsider import Json, Outsider
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]

SPEC = {"duration": "PT1M", "class": "exclusive"}


async def _hourly(lead: Outsider, nodes: list[Outsider], start: datetime) -> tuple[Json, int]:
    """Create a task with a run every hour on all nodes; return also the number of runs."""
    schedule = {"start": start.isoformat(), "repeat": "PT1H", "slip": "PT5M"}
    task = await lead.create("idle", *nodes, spec=SPEC, schedule=schedule)
    count = len(await lead.runs(task))
    for node in nodes:
        await _scheduled(node, task, count)
    return task, count


async def _scheduled(node: Outsider, task: Json, count: int) -> None:
    """Return when this node has this number of scheduled runs of the task, and none waiting."""

    def holds(found: Json) -> bool:
        counts = found.get("runs", {})
        return counts.get("scheduled", 0) == count and not counts.get("waiting")

    await node.until(f"/v1/tasks/{task['id']}", holds)


async def _change(
    node: Outsider, method: str, task: Json, what: str = "", body: Json = None
) -> Json:
    answer = await node.ask(method, f"/v1/tasks/{task['id']}{what}", body)
    assert answer.status == 200, answer
    return answer.body


async def _tells(node: Outsider, task: Json, state: str) -> None:
    """Return when the event stream, from its beginning, has this state of the task."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in node.events(after="0"):
            data = event["data"]
            if event["event"] == "task" and (data["id"], data["state"]) == (task["id"], state):
                return


@pytest.mark.nightly
async def test_a_pause_reaches_a_node_that_was_down(
    lab: Lab, nodes: list[Outsider], free_hour: datetime
) -> None:
    """A pause frees time at once on reachable nodes, and on the third when it is back."""
    a, b, c = nodes
    task, count = await _hourly(a, nodes, free_hour)
    await lab.kill("c")
    paused = await _change(a, "POST", task, "/pause")
    assert (paused["state"], paused["revision"], paused["next_run_at"]) == ("paused", 2, None)
    await _scheduled(b, task, 0)
    other = {"start": free_hour.isoformat(), "slip": "PT0S"}
    fits = await b.run(await b.create("idle", a, b, spec=SPEC, schedule=other))
    assert fits["starts_at"] == free_hour.isoformat().replace("+00:00", "Z")
    await lab.restart("c")
    await _scheduled(c, task, 0)
    for node in (a, b):
        await _tells(node, task, "paused")
    resumed = await _change(a, "POST", task, "/resume")
    assert (resumed["state"], resumed["paused_at"]) == ("active", None)
    for node in nodes:
        await _scheduled(node, task, count)
    sentences = [each["sentence"] for each in (await a.explain("task", task))["decisions"]]
    assert f"paused on a; {count} runs freed" in sentences
    assert "resumed on a" in sentences


async def test_an_edited_schedule(nodes: list[Outsider], free_hour: datetime) -> None:
    """Runs follow an edited schedule on all nodes; a dry run and refused edits change nothing."""
    a, b, _ = nodes
    task, count = await _hourly(a, nodes, free_hour)
    path = f"/v1/tasks/{task['id']}"
    patch = {"schedule": {"max_runs": 3}, "reference": {"ticket": 7}, "revision": 1}
    tried = await a.ask("PATCH", path, patch, query={"dry_run": "true"})
    assert (tried.status, tried.body["schedule"]["max_runs"]) == (200, 3)
    assert (await a.get(path))["revision"] == 1
    await _scheduled(b, task, count)
    edited = await _change(a, "PATCH", task, body=patch)
    assert (edited["revision"], edited["reference"]) == (2, {"ticket": 7})
    await _tells(a, task, "edited")
    for node in nodes:
        await _scheduled(node, task, 3)
    late = await a.ask("PATCH", path, patch)
    assert (late.status, late.body["type"].rpartition("/")[2]) == (409, "changed-since")
    for wrong, pointer in (
        ({"schedule": {"repeat": "PT1S"}}, "/schedule/repeat"),
        ({"test": {"type": "rtt"}}, "/test/type"),
        ({"colour": "red"}, "/colour"),
        ({"priority": "high"}, "/priority"),
        ({"test": {"spec": {"duration": 7}}}, "/test/spec/duration"),
    ):
        refused = await a.ask("PATCH", path, wrong)
        assert (refused.status, refused.pointers) == (422, [pointer])
    elsewhere = await b.ask("POST", f"{path}/pause")
    assert elsewhere.status == 403
    assert "led by another node" in elsewhere.body["detail"]
    sentences = [each["sentence"] for each in (await a.explain("task", task))["decisions"]]
    changes = "edited on a: max_runs none → 3; reference changed; "
    freed = "1 run" if count == 4 else f"{count - 3} runs"  # by the time of day
    assert f"{changes}{freed} freed" in sentences


@pytest.mark.nightly
async def test_a_measurement_under_way_goes_on(nodes: list[Outsider], free_hour: datetime) -> None:
    """A run that has begun is measured as booked, even if its task is paused or edited."""
    a, _, c = nodes
    schedule = {"repeat": "PT1H", "slip": "PT5M"}
    task = await a.create("idle", a, c, spec={"duration": "PT4S"}, schedule=schedule)
    first = (await a.runs(task))[0]
    await c.until_state(first, "running")
    await _change(a, "PATCH", task, body={"test": {"spec": {"duration": "PT9S"}}})
    await _change(a, "POST", task, "/pause")
    finished = await a.finished(first)
    assert finished["ends_at"] == first["ends_at"]
    assert datetime.fromisoformat(finished["finished_at"]) < datetime.fromisoformat(
        first["ends_at"]
    ) + timedelta(seconds=2)
    assert (await a.get(f"/v1/tasks/{task['id']}"))["state"] == "paused"
