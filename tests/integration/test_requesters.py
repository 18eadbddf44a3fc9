"""Tasks keep who requested them, and users with the role run reach their own tasks only."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from lead.assembly.with_node import lead_of
from node.api.app import ROUTES
from node.model import times
from node.model.permissions import PERMISSIONS, Access
from node.model.principals import Role
from node.model.wire.participants import RunEnd
from node.store.database import Notice
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import limit
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Asker, asker, give_token

AT = times.format_instant(START + 3 * times.HOUR)

GUESTS = """
version = 1
[who.guests]
users = true
[[rule]]
name = "guests"
who = ["guests"]
priority_max = 9
"""


@dataclass
class Users:
    """A node with its owner, and two users with the role run, each with a task of a mesh."""

    owner: Asker
    alice: Asker
    bob: Asker
    task: dict[str, Any]
    """The task of alice."""
    run: str
    """Its run."""
    of_bob: tuple[str, str]
    """The task of bob, and its run, which waits because alice's is in the way."""


def a_task(**changes: Any) -> dict[str, Any]:
    """Return the document of a task of a mesh, whose run leaves no time for another one."""
    spec = {"duration": "PT1M", "class": "exclusive", "participants": ["a"]}
    return {
        "test": {"type": "idle", "spec": spec},
        "schedule": {"start": AT, "slip": "PT30S"},
        "reference": {"mesh": "wide", "key": "idle/a/a"},
        **changes,
    }


@pytest.fixture
async def users(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Users]:
    """Return a node whose two users have a task each; that of alice was planned first."""
    async with (
        asker("a", await new_database(), clock, tmp_path) as owner,
        aiohttp.ClientSession(headers={"Authorization": "Bearer of alice"}) as of_alice,
        aiohttp.ClientSession(headers={"Authorization": "Bearer of bob"}) as of_bob,
    ):
        for label in ("alice", "bob"):
            await give_token(owner.node, f"of {label}", label, Role.RUN)
        lead = lead_of(owner.node, owner="worker", rng=random.Random(1))
        clock.advance(times.HOUR)
        alice, bob = Asker(owner.node, of_alice), Asker(owner.node, of_bob)
        made = []
        for user in (alice, bob):
            status, task = await user.ask("POST", "/v1/tasks", a_task())
            assert status == 201, task
            await lead.workers.run_once()
            await asyncio.gather(*lead.workers._busy)
            [[run, state]] = await owner.rows(
                "SELECT id::text, state::text FROM run WHERE task_id = $1", UUID(task["id"])
            )
            made.append((task, run, state))
        assert [state for _, _, state in made] == ["booked", "waiting"]
        (task, run, _), (of_bob_task, of_bob_run, _) = made
        yield Users(owner, alice, bob, task, run, (of_bob_task["id"], of_bob_run))


async def test_a_task_shows_who_requested_it(users: Users) -> None:
    """The label of the token is in the task, in its run, in both lists, and in explanations."""
    assert users.task["requester"] == "alice"
    for path in (
        f"/v1/tasks/{users.task['id']}",
        f"/v1/tasks/{users.task['id']}/explain",
        f"/v1/runs/{users.run}",
        f"/v1/runs/{users.run}/explain",
    ):
        assert (await users.owner.ask("GET", path))[1]["requester"] == "alice", path
    _, listed = await users.owner.ask("GET", "/v1/tasks")
    assert {task["requester"] for task in listed["items"]} == {"alice", "bob"}
    _, listed = await users.owner.ask("GET", "/v1/tasks?requester=bob")
    assert [task["requester"] for task in listed["items"]] == ["bob"]
    _, listed = await users.owner.ask("GET", "/v1/runs?requester=bob&to=2027-01-01T00:00:00Z")
    assert [run["id"] for run in listed["items"]] == [users.of_bob[1]]


@pytest.mark.nightly
async def test_a_user_sees_nothing_of_the_tasks_of_others(users: Users) -> None:
    """No answer to bob, whatever he asks for, has the id of alice's task or run."""
    names = {"id": users.task["id"], "name": "wide"}
    for route in ROUTES:
        access = PERMISSIONS[f"{route.method} {route.path}"]
        if route.method != "GET" or access is Access.PEER or route.path == "/v1/events":
            continue
        for name in (users.task["id"], users.run, *users.of_bob):
            path = route.path.format(**{**names, "id": name})
            if route.path == "/v1/schedule":
                path += "?to=2027-01-01T00:00:00Z"
            async with users.bob.session.get(f"{users.bob.node.card.url}{path}") as response:
                body = (await response.read()).decode()
            if response.content_type == "application/problem+json":
                # His own run has no bundle before it is over.
                early = name == users.of_bob[1] and path.endswith("/bundle")
                assert response.status in ({409} if early else {403, 404}), (path, body)
            else:
                assert users.task["id"] not in body, path
                assert users.run not in body, path


async def test_a_displaced_run_names_no_run_of_others(users: Users) -> None:
    """Alice does not learn which run took the time of hers, whatever a participant says of it."""
    node, (task, run) = users.owner.node, users.of_bob
    reason = f"displaced by a run of higher priority (idle of task {task}, priority 2 over 1)"
    end = RunEnd(run=UUID(users.run), state="displaced", reason=reason, displaced_by=UUID(run))
    await node.termination.apply_run_end(node.card.identity, end)
    own = f"/v1/runs/{users.run}"
    mine = f"/v1/tasks/{users.task['id']}"
    for path in (own, f"{own}/explain", f"{own}/bundle", f"{mine}/runs", "/v1/runs"):
        status, answer = await users.alice.ask(
            "GET", f"{path}?to=2027-01-01T00:00:00Z" if path.endswith("runs") else path
        )
        assert (status, task in str(answer), run in str(answer)) == (200, False, False), path
    _, shown = await users.owner.ask("GET", own)
    whose = "idle of a task of another user, priority 2 over 1"
    assert (shown["displaced_by"], whose in shown["reason"]) == (run, True)


async def test_a_preview_names_no_run_of_others(users: Users) -> None:
    """A plan says that a run of alice would give way to one of bob, and not which one."""
    await limit(users.owner.node, GUESTS)
    for asking, known in ((users.owner, users.run), (users.bob, None)):
        status, plan = await asking.ask("POST", "/v1/plans", a_task(priority=9))
        assert (status, [each["run"] for each in plan["displaced"]]) == (200, [known])


async def test_a_user_sees_their_own(users: Users) -> None:
    """Alice finds her task and her run in every list, and her mesh without the pair of bob."""
    for path in ("/v1/tasks", "/v1/meshes/wide/tasks", "/v1/tasks?requester=alice"):
        _, listed = await users.alice.ask("GET", path)
        assert [item["id"] for item in listed["items"]] == [users.task["id"]], path
    _, listed = await users.alice.ask("GET", "/v1/runs?to=2027-01-01T00:00:00Z")
    assert [item["id"] for item in listed["items"]] == [users.run]
    for path in ("/v1/meshes/wide", "/v1/meshes/wide/pairs", f"/v1/tasks/{users.task['id']}/runs"):
        assert (await users.alice.ask("GET", path))[0] == 200, path
    _, [mesh] = (None, (await users.alice.ask("GET", "/v1/meshes"))[1]["items"])
    assert mesh["tasks"] == {"active": 1}
    status, problem = await users.alice.ask("GET", "/v1/tasks?requester=bob")
    assert (status, "sees and changes its own tasks only" in problem["detail"]) == (403, True)


async def test_a_user_changes_their_own_only(users: Users) -> None:
    """Bob can neither edit, pause, resume, nor cancel alice's task or run; she can."""
    await limit(users.owner.node, GUESTS)
    task, run = f"/v1/tasks/{users.task['id']}", f"/v1/runs/{users.run}"
    changes: list[tuple[str, str, Any]] = [
        ("PATCH", task, {"priority": 3}),
        ("POST", f"{task}/pause", None),
        ("POST", f"{task}/resume", None),
        ("DELETE", run, None),
        ("DELETE", task, None),
    ]
    for method, path, document in changes:
        status, problem = await users.bob.ask(method, path, document)
        assert (status, "was not requested by bob" in problem["detail"]) == (403, True), path
    for method, path, document in changes:
        status, answer = await users.alice.ask(method, path, document)
        assert status == 200, (path, answer)
    status, problem = await users.alice.ask("POST", f"{task}/release")
    assert (status, "needs a token with the role operate" in problem["detail"]) == (403, True)


async def test_an_operator_changes_the_tasks_of_all(users: Users) -> None:
    """A token with the role operate cancels the task of another user, who stays its requester."""
    await give_token(users.owner.node, "of carol", "carol", Role.OPERATE)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer of carol"}) as session:
        carol = Asker(users.owner.node, session)
        path = f"/v1/tasks/{users.task['id']}"
        assert (await carol.ask("PATCH", path, {"priority": 3}))[1]["requester"] == "alice"
        assert (await carol.ask("DELETE", path))[1]["state"] == "cancelled"


async def test_two_tokens_of_one_label_are_one_user(users: Users) -> None:
    """A second token of alice reaches the tasks that she created with the first."""
    await give_token(users.owner.node, "of alice too", "alice", Role.RUN)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer of alice too"}) as session:
        path = f"/v1/tasks/{users.task['id']}"
        assert (await Asker(users.owner.node, session).ask("GET", path))[0] == 200


async def test_a_user_follows_their_own_tasks_only(users: Users) -> None:
    """A task of bob can follow none of alice's, when it is planned, created, or edited."""
    after = {"task": users.task["id"]}
    document = a_task(after=after, schedule={})
    for path in ("/v1/plans", "/v1/tasks"):
        status, problem = await users.bob.ask("POST", path, document)
        assert (status, "was not requested by bob" in problem["detail"]) == (403, True), problem
    own = f"/v1/tasks/{users.of_bob[0]}"
    assert (await users.bob.ask("PATCH", own, {"after": after}))[0] == 403
    assert (await users.alice.ask("POST", "/v1/tasks", document))[0] == 201


async def test_a_user_sends_results_nowhere(users: Users) -> None:
    """Archives of a task reach what the host reaches, so naming them needs the role operate."""
    document = a_task(archives=[{"archiver": "http", "spec": {"url": "http://127.0.0.1:1/"}}])
    for path in ("/v1/plans", "/v1/tasks"):
        status, problem = await users.alice.ask("POST", path, document)
        assert (status, problem["detail"].startswith("naming archives of a task")) == (403, True)
    patch = {"archives": document["archives"]}
    assert (await users.alice.ask("PATCH", f"/v1/tasks/{users.task['id']}", patch))[0] == 403


async def test_an_idempotency_key_is_of_one_user(users: Users) -> None:
    """A key and document that alice has sent give bob neither her task nor another one."""
    statuses = []
    for user in (users.alice, users.alice, users.bob):
        url = f"{user.node.card.url}/v1/tasks"
        headers = {"Idempotency-Key": "monday"}
        async with user.session.post(url, json=a_task(), headers=headers) as response:
            statuses.append((response.status, (await response.json(content_type=None)).get("id")))
    assert statuses[0] == statuses[1]
    assert (statuses[0][0], statuses[2]) == (201, (409, None))


async def test_events_are_of_own_tasks(users: Users) -> None:
    """Bob's stream has the events of his tasks and of no task, and none of alice's."""
    url = f"{users.bob.node.card.url}/v1/events"
    own = users.of_bob[0]
    async with users.bob.session.get(url) as stream, asyncio.timeout(PATIENCE_S):
        await stream.content.readuntil(b"retry: 2000\n\n")
        for notice in (
            Notice("run", users.run, (users.task["id"], "running")),
            Notice("task", users.task["id"], ("paused",)),
            Notice("token", own, ("revoked",)),
            Notice("pool", "lab", ("changed",)),
            Notice("task", own, ("paused",)),
        ):
            users.owner.node.hub.on_notice(notice)
        seen = await stream.content.readuntil(own.encode())
    assert users.task["id"].encode() not in seen
    assert b"event: pool" in seen
    assert b"event: token" not in seen
