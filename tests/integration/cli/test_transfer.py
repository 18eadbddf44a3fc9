"""``parley admin export`` and ``import``: what one node leads goes to another one."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lead.assembly.with_node import lead_of
from node.model import times
from node.runtime.clock import SystemClock
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Asker, Command, asker, know

CLOCK = SystemClock()

STRANGER = "ed25519:9rX2m0vQmB3pJc7T1wqYd0aZk5LsHnEoU8fGiRtVxyA"

HOURLY = {"repeat": "PT1H", "slip": "PT10M"}


def _task(name: str, **fields: Any) -> dict[str, Any]:
    spec = {"duration": "PT5S", "participants": ["a"]}
    return {"test": {"type": "idle", "spec": spec}, "reference": {"name": name}, **fields}


@pytest.fixture(name="heir")
async def _heir(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Asker]:
    """Serve a new node of the same name, on another host as it were."""
    async with asker("a", await new_database(), clock, tmp_path / "heir") as heir:
        await know(heir.node)
        yield heir


async def _made(a: Asker) -> None:
    for path, document in (
        ("/v1/campaigns", {"name": "ops", "weight": 0.5, "description": "day and night"}),
        ("/v1/campaigns", {"name": "lab", "parent": "ops"}),
        ("/v1/pools", {"name": "all", "match": {}}),
    ):
        status, answer = await a.ask("POST", path, document)
        assert status == 201, answer
    status, first = await a.ask("POST", "/v1/tasks", _task("first", schedule=HOURLY))
    assert status == 201, first
    follower = _task("follower", after={"task": first["id"]}, campaign="lab", priority=3)
    status, answer = await a.ask("POST", "/v1/tasks", follower)
    assert status == 201, answer
    night = {"cron": "0 22 * * *"}
    for path, document in (
        (
            "/v1/archives",
            {"name": "shelf", "archiver": "http", "spec": {"url": "http://127.0.0.1:9/"}},
        ),
        (
            "/v1/reservations",
            {
                "kind": "quiet",
                "name": "night",
                "schedule": night,
                "duration": "PT8H",
                "access": {"campaigns": ["lab"], "tasks": [first["id"]]},
            },
        ),
        ("/v1/nodes", {"identity": STRANGER}),
    ):
        status, answer = await a.ask("POST", path, document)
        assert status == 201, answer
    status, gone = await a.ask("POST", "/v1/tasks", _task("gone", schedule=HOURLY))
    await a.ask("DELETE", f"/v1/tasks/{gone['id']}")
    status, paused = await a.ask("POST", "/v1/tasks", _task("paused", schedule=HOURLY))
    await a.ask("POST", f"/v1/tasks/{paused['id']}/pause")


def _counts(file: Path, nodes: int) -> str:
    return f"{file}: 3 tasks, 2 campaigns, 1 pools, 1 archives, 1 reservations, {nodes} nodes\n"


async def _led(a: Asker) -> dict[str, Any]:
    _, page = await a.ask("GET", "/v1/tasks?state=active,paused")
    return {task["reference"]["name"]: task for task in page["items"]}


@pytest.mark.nightly
async def test_a_node_leads_what_another_one_led(
    ask: Command, a: Asker, heir: Asker, tmp_path: Path
) -> None:
    """Campaigns, pools and open tasks come over, a second import changes nothing."""
    await _made(a)
    file = tmp_path / "a.json"
    exported = await ask("admin", "export", str(file), "-o", "table")
    assert (exported.code, exported.out) == (0, _counts(file, 1))
    there = ("--server", heir.node.card.url or "", "--token", "secret")
    tried = await ask(*there, "admin", "import", str(file), "-o", "table", "--dry-run")
    assert (tried.code, tried.out, await _led(heir)) == (0, exported.out, {})
    imported = await ask(*there, "admin", "import", str(file), "-o", "table")
    assert (imported.code, imported.out) == (0, exported.out)
    before, after = await _led(a), await _led(heir)
    assert after.keys() == {"first", "follower", "paused"}
    for name, task in after.items():
        kept = ("test", "schedule", "priority", "campaign", "tools", "state")
        assert {it: task[it] for it in kept} == {it: before[name][it] for it in kept}
    assert after["follower"]["after"]["task"] == after["first"]["id"]
    _, campaign = await heir.ask("GET", "/v1/campaigns/ops")
    assert (campaign["weight"], campaign["description"]) == (0.5, "day and night")
    _, reserved = await heir.ask("GET", "/v1/reservations")
    [night] = reserved["items"]
    assert (night["name"], night["access"]["tasks"]) == ("night", [after["first"]["id"]])
    _, known = await heir.ask("GET", "/v1/nodes")
    assert STRANGER in [node["identity"] for node in known["items"]]
    again = await ask(*there, "admin", "import", str(file), "-o", "table")
    assert again.code == 0
    tried = json.loads((await ask(*there, "admin", "import", str(file), "--dry-run")).out)
    assert [tried[what] for what in ("campaigns", "pools", "archives", "nodes")] == [0] * 4
    assert len((await heir.ask("GET", "/v1/reservations"))[1]["items"]) == 1
    assert {name: task["id"] for name, task in (await _led(heir)).items()} == {
        name: task["id"] for name, task in after.items()
    }


@pytest.mark.nightly
async def test_what_cannot_come_over_is_told(
    ask: Command, a: Asker, heir: Asker, tmp_path: Path
) -> None:
    """A refused task, and those that follow it, are named; the others are created."""
    await _made(a)
    file = tmp_path / "a.json"
    await ask("admin", "export", str(file))
    content = json.loads(file.read_text())
    first = next(it for it in content["tasks"] if it["document"]["reference"]["name"] == "first")
    first["document"]["test"]["spec"]["participants"] = ["elsewhere"]
    file.write_text(json.dumps(content))
    there = ("--server", heir.node.card.url or "", "--token", "secret")
    imported = await ask(*there, "admin", "import", str(file), "-o", "table")
    assert imported.code != 0
    assert "elsewhere is not a node known here" in imported.out
    assert "which it follows, could not be created" in imported.out
    assert (await _led(heir)).keys() == {"paused"}


async def test_a_file_that_is_no_export_is_refused(ask: Command, tmp_path: Path) -> None:
    """Neither an existing file is overwritten, nor one of another form read."""
    file = tmp_path / "a.json"
    file.write_text("{}")
    exported = await ask("admin", "export", str(file))
    assert exported.code != 0
    assert "name a new file" in exported.err
    imported = await ask("admin", "import", str(file))
    assert imported.code != 0
    assert "see parley admin export" in imported.err


@pytest.mark.nightly
async def test_many_tasks_are_changed_by_a_filter(ask: Command, a: Asker) -> None:
    """A trial shows what would change; a filter and names together, or none, are refused."""
    await _made(a)
    shown = await ask("task", "cancel", "--campaign", "lab", "--dry-run")
    assert [(it["state"], it["problem"]) for it in json.loads(shown.out)] == [("cancelled", None)]
    assert "1 task would change" in shown.err
    assert len(await _led(a)) == 3
    paused = await ask("task", "pause", "--reference", "name=first", "--yes", "-o", "table")
    assert (paused.code, "1 task changed" in paused.err) == (0, True)
    edited = await ask("task", "edit", "--where", "test=idle", "--priority", "9")
    assert len(json.loads(edited.out)) == 3
    assert {task["priority"] for task in (await _led(a)).values()} == {9}
    states = {name: task["state"] for name, task in (await _led(a)).items()}
    assert states == {"first": "paused", "follower": "active", "paused": "paused"}
    assert (await ask("task", "resume", "--participant", "a")).code == 0
    assert {task["state"] for task in (await _led(a)).values()} == {"active"}
    for wrong in (["cancel"], ["cancel", "@-1", "--test", "idle"], ["edit", "--where", "x=1"]):
        assert (await ask("task", *wrong)).code == 2
    done = await ask("task", "cancel", "--test", "idle", "--requester", "owner")
    assert len(json.loads(done.out)) == 3
    assert await _led(a) == {}
    long = {"schedule": HOURLY, "reference": {"mesh": "wide", "note": "x" * 5000}}
    assert (await a.ask("POST", "/v1/tasks", {**_task("long"), **long}))[0] == 201
    meshed = await ask("task", "cancel", "--mesh", "wide")
    assert len(json.loads(meshed.out)) == 1
    nothing = await ask("task", "cancel", "--test", "idle", "-o", "table")
    assert (nothing.code, "No such tasks." in nothing.out + nothing.err) == (0, True)


@pytest.mark.nightly
async def test_tasks_are_exported_and_created_again(ask: Command, a: Asker, tmp_path: Path) -> None:
    """A file of tasks, or of documents written by hand, becomes tasks once."""
    await _made(a)
    exported = await ask("task", "export", "--where", "reference=name=first")
    file = tmp_path / "tasks.json"
    file.write_text(exported.out)
    [task] = json.loads(exported.out)["tasks"]
    assert task["document"]["schedule"]["repeat"] == "PT1H"
    other = tmp_path / "tasks.yaml"
    other.write_text((await ask("task", "export", task["id"], "-o", "yaml")).out)
    assert other.read_text().startswith("parley_export: 1\n")
    assert (await ask("task", "import", str(other), "--dry-run")).out == (
        await ask("task", "import", str(file), "--dry-run")
    ).out
    tried = await ask("task", "import", str(file), "--dry-run")
    assert [(it["was"], it["id"]) for it in json.loads(tried.out)] == [(task["id"], "")]
    made = json.loads((await ask("task", "import", str(file))).out)
    again = json.loads((await ask("task", "import", str(file))).out)
    assert made == again
    assert made[0]["id"] not in {task["id"], ""}
    file.write_text(json.dumps([_task("by hand"), {**_task("wrong"), "priority": "high"}]))
    by_hand = await ask("task", "import", str(file))
    assert by_hand.code != 0
    assert "by hand" in await _led(a)
    whole = json.loads((await ask("task", "export", "--all")).out)["tasks"]
    assert len(whole) == len((await a.ask("GET", "/v1/tasks?state=active,paused"))[1]["items"])


@pytest.mark.nightly
async def test_a_run_is_measured_once_more(ask: Command, a: Asker) -> None:
    """The new task is like that of the run, and runs once."""
    await _made(a)
    first = (await _led(a))["first"]["id"]
    await lead_of(a.node, owner="worker", rng=random.Random(1)).workers.run_once()
    async with asyncio.timeout(PATIENCE_S):
        while not (await a.ask("GET", f"/v1/tasks/{first}/runs"))[1]["items"]:
            await CLOCK.sleep(0.05)
    run = (await a.ask("GET", f"/v1/tasks/{first}/runs"))[1]["items"][0]["id"]
    done = await ask("run", "rerun", run, "--no-wait")
    assert done.code == 0, done.err
    _, task = await a.ask("GET", f"/v1/tasks/{json.loads(done.out)['task']}")
    assert (task["schedule"]["repeat"], task["schedule"]["slip"]) == (None, "PT10M")
    assert task["reference"] == {"name": "first"}


@pytest.mark.nightly
async def test_a_drained_node_takes_no_runs_until_it_is_undrained(
    ask: Command, a: Asker, clock: ManualClock
) -> None:
    """Booked runs give way, the reason is told, and the node shows that it is drained."""
    await _made(a)
    lead = lead_of(a.node, owner="worker", rng=random.Random(1))

    async def news() -> str:
        await lead.workers.run_once()
        await asyncio.gather(*lead.workers._busy)
        first = (await _led(a))["first"]
        return f"{first['waiting']} {sorted(first['runs'].items())}"

    assert "'scheduled', 24" in await news()
    drained = await ask("node", "drain", "new disks", "--from", "2026-12-01T00:00:00Z")
    assert drained.code == 0, drained.err
    done = json.loads(drained.out)
    assert (done["node"], done["staying"]) == ("a", 0)
    assert done["displaced"] > 20
    assert "reserved for maintenance 'drained: new disks' by" in await news()
    listed = (await ask("node", "list", "-o", "table")).out
    assert "drained=new disks (from " in listed
    assert (await ask("node", "drain", "--from", "2026-12-01T01:00:00Z", "--keep")).code == 0
    _, page = await a.ask("GET", "/v1/reservations")
    assert {it["name"] for it in page["items"]} == {"drained: maintenance", "night"}
    assert (await ask("node", "undrain", "-o", "table")).out == "a takes runs again.\n"
    clock.advance(times.HOUR)
    assert "reserved" not in await news()
    again = await ask("node", "undrain")
    assert (again.code != 0, "a is not drained" in again.err) == (True, True)
