"""A list of tasks in one request: each is created or refused as if it came alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node.model.principals import Role
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import (
    Asker,
    Served,
    answered,
    asker,
    give_token,
    know,
    served,
    user,
)


@dataclass
class Two:
    """Node a, to which a user sends lists, and node b, which takes part."""

    a: Asker
    b: Served

    async def post(self, tasks: list[Any]) -> list[Any]:
        """Post a list, and return its answers."""
        status, answer = await self.a.ask("POST", "/v1/tasks", tasks)
        assert status == 200, answer
        return list(answer["items"])

    async def at_b(self, query: str) -> list[Any]:
        """Return rows of the tables of b."""
        async with self.b.database.connection() as connection:
            return list(await connection.fetch(query))


@pytest.fixture(name="two")
async def _two(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Two]:
    own, other = await new_database(), await new_database()
    (tmp_path / "b").mkdir()
    async with (
        asker("a", own, clock, tmp_path) as a,
        served("b", other, clock, tmp_path / "b", peer_introductions=1000) as b,
    ):
        for node in (a.node, b):
            async with node.database.transaction() as connection:
                await node.own_card.write(connection)
        await know(a.node, b)
        await know(b, a.node)
        yield Two(a, b)


def _task(*participants: str, key: str | None = None, **fields: Any) -> dict[str, Any]:
    spec = {"duration": "PT5S", "participants": list(participants)}
    keyed = {} if key is None else {"idempotency_key": key}
    return {"test": {"type": "idle", "spec": spec}, **keyed, **fields}


async def test_each_is_created_or_refused_for_itself(two: Two) -> None:
    """A wrong field, an unknown node and a used key refuse their own tasks only."""
    items = await two.post(
        [
            _task("a", "b", key="one"),
            _task("a", priority="high"),
            _task("a", "nowhere"),
            _task("b"),
            "no task",
            _task("a", key="é"),
        ]
    )
    made = [item["task"] for item in items]
    assert [task is not None for task in made] == [True, False, False, True, False, False]
    problems = [item["problem"]["type"].rsplit("/")[-1] for item in items if item["problem"]]
    assert problems == ["invalid-document"] * 4
    pointers = [item["problem"]["errors"][0]["pointer"] for item in items if item["problem"]]
    assert pointers == ["/priority", "/test/spec/participants/1", "", "/idempotency_key"]
    rows = await two.a.rows("SELECT id::text FROM task ORDER BY id")
    assert [row[0] for row in rows] == sorted(filter(None, made))
    assert len(await two.at_b("SELECT FROM task")) == 2
    [other] = await two.post([_task("b", key="one")])
    assert other["problem"]["type"].endswith("conflict")


@pytest.mark.nightly
async def test_the_same_list_twice_makes_its_tasks_once(two: Two) -> None:
    """A repeated list, even at the same time, answers with the tasks that are there."""
    tasks = [_task("a", "b", key=f"key {number}") for number in range(70)]
    one, other = await asyncio.gather(two.post(tasks), two.post(tasks))
    assert [item["task"] for item in one] == [item["task"] for item in other]
    assert len(await two.a.rows("SELECT FROM task WHERE state = 'active'")) == 70
    assert [item["task"] for item in await two.post(tasks)] == [item["task"] for item in one]


async def test_a_list_travels_in_few_messages_and_transactions(two: Two) -> None:
    """Fifty tasks of two nodes share what each of them would take alone."""
    before = answered(two.b, "/v1/participant/")
    items = await two.post([_task("a", "b") for _ in range(50)])
    assert all(item["task"] for item in items)
    assert answered(two.b, "/v1/participant/") - before < 10
    assert len(await two.at_b("SELECT FROM task")) == 50
    assert len(await two.at_b("SELECT DISTINCT xmin::text FROM task")) < 10
    assert len(await two.a.rows("SELECT DISTINCT xmin::text FROM task")) < 10
    assert await two.a.rows("SELECT FROM outbox") == []


async def test_a_node_of_an_earlier_version_is_introduced_to_one_by_one(two: Two) -> None:
    """A card without the feature gets the requests that 0.1 understands, with the same outcome."""
    await two.a.rows(
        "UPDATE node SET attributes = attributes - 'feature:introductions' WHERE name = 'b'"
    )
    await two.a.node.directory.refresh()
    before = answered(two.b, "/v1/participant/")
    items = await two.post([_task("a", "b") for _ in range(20)])
    assert all(item["task"] for item in items)
    assert answered(two.b, "/v1/participant/") - before == 20
    assert len(await two.at_b("SELECT FROM task")) == 20


async def test_those_beyond_the_limit_of_a_participant_are_refused_alone(two: Two) -> None:
    """A participant that has room for three takes three, and the others say why they do not."""
    two.b.acceptance._tasks_max = 3
    items = await two.post([_task("a", "b", key=f"{number}") for number in range(8)])
    rows = await two.at_b("SELECT FROM task")
    assert len(rows) == 3
    taken = [item["task"] for item in items if item["task"]]
    waiting = await two.a.rows(
        "SELECT participants -> 1 ->> 'reason' FROM task WHERE participants -> 1 ->> 'reason' "
        "IS NOT NULL"
    )
    refused = [item["problem"]["detail"] for item in items if item["problem"]]
    reasons = refused + [row[0] for row in waiting]
    assert len(taken) + len(refused) == 8
    assert len(reasons) == 5
    assert all("takes at most 3" in reason for reason in reasons)


async def test_a_list_has_no_key_of_its_own(two: Two) -> None:
    """The header for one task, and a list that is empty or too long, are refused in words."""
    url = f"{two.a.node.card.url}/v1/tasks"
    header = {"Idempotency-Key": "one"}
    async with two.a.session.post(url, json=[_task("a")], headers=header) as response:
        assert response.status == 422
        assert "idempotency_key" in (await response.json())["errors"][0]["detail"]
    for many in (0, 501):
        status, answer = await two.a.ask("POST", "/v1/tasks", [_task("a")] * many)
        assert status == 422
        assert "from 1 to 500" in answer["errors"][0]["detail"]
    assert await two.a.rows("SELECT FROM task") == []


async def _changed(two: Two, change: str, tasks: list[str], query: str = "", **more: Any) -> Any:
    body = {"change": change, "tasks": tasks, **more}
    return await two.a.ask("POST", f"/v1/tasks/changes{query}", body)


@pytest.mark.nightly
async def test_many_are_changed_in_one_request(two: Two) -> None:
    """Each task is changed, or refused for itself; a trial changes none."""
    tasks = [item["task"] for item in await two.post([_task("a", "b"), _task("a"), _task("a")])]
    nobody = "00000000-0000-4000-8000-000000000000"
    status, answer = await _changed(two, "pause", [*tasks, nobody], "?dry_run=true")
    assert (status, [it["state"] for it in answer["items"]]) == (200, ["paused"] * 3 + [None])
    assert answer["items"][3]["problem"]["type"].endswith("/not-found")
    rows = "SELECT DISTINCT state::text, priority FROM task"
    assert [tuple(row) for row in await two.a.rows(rows)] == [("active", 0)]
    await _changed(two, "pause", tasks)
    patch = {"priority": 4}
    _, answer = await _changed(two, "edit", tasks, patch=patch)
    assert [it["state"] for it in answer["items"]] == ["paused"] * 3
    assert [tuple(row) for row in await two.a.rows(rows)] == [("paused", 4)]
    await _changed(two, "resume", tasks[1:])
    _, answer = await _changed(two, "cancel", tasks)
    assert [it["state"] for it in answer["items"]] == ["cancelled"] * 3
    wrongs: tuple[dict[str, Any], ...] = (
        {"change": "edit"},
        {"change": "cancel", "patch": patch},
        {"tasks": []},
    )
    for wrong in wrongs:
        body = {"change": "cancel", "tasks": tasks, **wrong}
        assert (await two.a.ask("POST", "/v1/tasks/changes", body))[0] == 422


async def test_users_change_their_own_tasks_only(two: Two) -> None:
    """With the role run, the tasks of others in a list are refused, and stay."""
    [item] = await two.post([_task("a")])
    await give_token(two.a.node, "guest", "guest", Role.RUN)
    async with user(two.a, "guest") as guest:
        status, answer = await guest.ask(
            "POST", "/v1/tasks/changes", {"change": "cancel", "tasks": [item["task"]]}
        )
    assert (status, answer["items"][0]["state"]) == (200, None)
    assert answer["items"][0]["problem"]["type"].endswith("/not-allowed")
    assert await two.a.rows("SELECT FROM task WHERE state = 'active'")


async def test_a_pair_without_a_task_is_in_its_mesh_with_the_reason(
    two: Two, clock: ManualClock
) -> None:
    """A refused pair is one of its mesh until a task of it is created."""
    ends = {"mesh": "wan", "source": "a", "dest": "b"}
    created = _task("a", "b", reference={**ends, "key": "idle/a/b"})
    refused = _task("a", "b", reference={**ends, "key": "idle/a/c"}, campaign="unknown")
    answers = await two.post([created, refused])
    assert answers[1]["problem"]["status"] < 500
    pages: list[Any] = []
    for size, expected in ((500, [["idle/a/b", "idle/a/c"]]), (1, [["idle/a/b"], ["idle/a/c"]])):
        pages, cursor = [], ""
        while cursor is not None:
            path = f"/v1/meshes/wan/pairs?limit={size}" + (f"&cursor={cursor}" if cursor else "")
            _, answer = await two.a.ask("GET", path)
            pages += [answer["items"]] if answer["items"] else []
            cursor = answer["next"]
        assert [[pair["key"] for pair in page] for page in pages] == expected
    [pair] = pages[1]
    assert (pair["state"], pair["outcome"]["reason"]) == (
        "refused",
        answers[1]["problem"]["detail"],
    )
    _, answer = await two.a.ask("GET", "/v1/meshes/wan/pairs?key=idle/a/c,idle/a/none")
    assert [each["key"] for each in answer["items"]] == ["idle/a/c"]
    [entry] = (await two.a.ask("GET", "/v1/meshes/wan/matrix"))[1]["entries"]
    assert (entry["dests"], entry["rows"]) == (["b", "c"], ["ur"])
    clock.advance(1)
    await two.post([{**refused, "campaign": None}])
    _, answer = await two.a.ask("GET", "/v1/meshes/wan/pairs")
    assert [pair["state"] for pair in answer["items"]] == ["active", "active"]
