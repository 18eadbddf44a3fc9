"""The runs of a user's tasks count for that user, wherever they are, and are given back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest

from node.client.peers import Peer
from node.model import times
from node.model.principals import Role
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import limit
from tests.support.served_nodes import Asker, asker, give_token, served
from tests.support.served_pairs import Pair, paired

HOUR = START // times.HOUR * times.HOUR + 3 * times.HOUR
RULE = """
version = 1

[who.students]
tokens = ["alice"]

[[rule]]
name = "course"
who = ["students"]
"""
BOTH = ("a", "b")
B_ALONE = ("b",)


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Return a, which leads, and b, which admits everything."""
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(asker("a", await new_database(), clock, tmp_path / "a"))
        b = await stack.enter_async_context(
            served("b", await new_database(), clock, tmp_path / "b")
        )
        clock.advance(times.HOUR)
        yield await paired(a, b, clock)


@pytest.fixture
async def alice(pair: Pair) -> AsyncIterator[Asker]:
    """Return the user with the token alice."""
    await give_token(pair.a.node, "hers", "alice", Role.OPERATE)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer hers"}) as session:
        yield Asker(pair.a.node, session)


def _document(
    participants: tuple[str, ...] = BOTH, runs: int = 1, duration: str = "PT1M", first: int = 0
) -> dict[str, Any]:
    spec = {"duration": duration, "class": "exclusive", "participants": list(participants)}
    schedule = {
        "start": times.format_instant(HOUR + first * times.MINUTE),
        "repeat": "PT5M",
        "slip": "PT4M",
        "max_runs": runs,
    }
    return {"test": {"type": "idle", "spec": spec}, "schedule": schedule}


async def _post(user: Asker, document: dict[str, Any]) -> str:
    status, task = await user.ask("POST", "/v1/tasks", document)
    assert status == 201, task
    return str(task["id"])


async def _states(pair: Pair, task: str) -> list[str]:
    query = "SELECT state::text FROM run WHERE task_id = $1 ORDER BY slot"
    return [row[0] for row in await pair.a.rows(query, UUID(task))]


async def _left(pair: Pair) -> dict[str, str]:
    """Return what alice has left, as the owner sees it."""
    body = {"as": "token:alice", "task": _document()}
    _, trial = await pair.a.ask("POST", "/v1/limits/trials", body)
    return {each["quota"]: each["left"] for each in trial["left"]}


async def _used(pair: Pair) -> dict[str, int]:
    query = "SELECT holder, sum(used)::bigint FROM limit_used GROUP BY holder"
    return {row[0]: row[1] for row in await pair.a.rows(query) if row[1]}


@pytest.mark.parametrize("participants", [BOTH, B_ALONE])
@pytest.mark.nightly
async def test_no_more_runs_than_a_quota_are_booked(
    pair: Pair, alice: Asker, participants: tuple[str, ...]
) -> None:
    """Runs beyond the quota of their user wait, with that reason, until there is room."""
    await limit(pair.a.node, RULE + 'most.runs = "2/PT1H"')
    task = await _post(alice, _document(participants, runs=3))
    await pair.plan()
    assert await _states(pair, task) == ["booked", "booked", "waiting"]
    assert await _used(pair) == {"alice": 2}
    _, explanation = await alice.ask("GET", f"/v1/tasks/{task}/explain")
    assert "limit 'course': 2 runs of 2 runs per hour used, free again" in explanation["sentence"]
    [first, *_] = [row[0] for row in await pair.a.rows("SELECT id FROM run ORDER BY slot")]
    assert (await alice.ask("DELETE", f"/v1/runs/{first}"))[0] == 200
    assert await _used(pair) == {"alice": 1}
    await alice.ask("POST", f"/v1/tasks/{task}/release")
    pair.clock.advance(times.HOUR)
    await pair.plan()
    assert await _states(pair, task) == ["cancelled", "booked", "booked", "waiting"]
    assert await _used(pair) == {"alice": 2}


@pytest.mark.parametrize("participants", [BOTH, B_ALONE])
@pytest.mark.nightly
async def test_two_tasks_that_are_booked_at_once_share_a_quota(
    pair: Pair, alice: Asker, participants: tuple[str, ...]
) -> None:
    """Tasks of one user that are planned at the same time share what the rule allows."""
    await limit(pair.a.node, RULE + 'most.runs = "3/PT1H"')
    created = [await _post(alice, _document(participants, 2, first=20 * n)) for n in range(3)]
    await pair.plan()
    states = [state for task in created for state in await _states(pair, task)]
    assert states.count("booked") == 3, states
    assert await _used(pair) == {"alice": 3}


async def test_time_counts_and_what_is_left_is_shown(pair: Pair, alice: Asker) -> None:
    """A trial for the user says what is left, also of time; the owner has no limit."""
    await limit(pair.a.node, RULE + 'most = { time = "PT3M/P1D", runs = "10/P1D" }')
    await _post(alice, _document(runs=2))
    await pair.plan()
    left = await _left(pair)
    assert left == {"3 min per day": "1 min", "10 runs per day": "8 runs"}
    task = await _post(pair.a, _document(runs=3, first=20))
    await pair.plan()
    assert await _states(pair, task) == ["booked"] * 3


async def test_nobody_is_asked_where_nothing_is_left(
    pair: Pair, alice: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task to which the limits of its lead leave no time is asked of no other node."""
    await limit(pair.a.node, RULE + 'most.runs = "1/PT1H"')
    await _post(alice, _document())
    await pair.plan()
    asked: list[object] = []
    propose = pair.b.time_line.propose

    async def watched(*question: Any) -> object:
        asked.append(question)
        return await propose(*question)

    monkeypatch.setattr(pair.b.time_line, "propose", watched)
    task = await _post(alice, _document(first=20))
    await pair.plan()
    assert await _states(pair, task) == ["waiting"]
    assert asked == []


@pytest.mark.nightly
async def test_runs_of_a_user_lie_within_the_times_of_the_rule(pair: Pair, alice: Asker) -> None:
    """A run is moved into the times of its rule; one that cannot be waits, with the reason."""
    opens = times.format_instant(HOUR + 2 * times.MINUTE)[14:16]
    when = f'when = {{ cron = "{int(opens)} * * * *", for = "PT2M" }}'
    await limit(pair.a.node, RULE + when)
    within, beyond = await _post(alice, _document()), await _post(alice, _document(first=10))
    await pair.plan()
    [[starts_at]] = await pair.a.rows("SELECT starts_at FROM run WHERE task_id = $1", UUID(within))
    assert starts_at == HOUR + 2 * times.MINUTE
    assert await _states(pair, beyond) == ["waiting"]


async def test_open_tasks_of_a_user_are_counted(pair: Pair, alice: Asker) -> None:
    """A user has no more open tasks than the rule allows, however many are posted at once."""
    await limit(pair.a.node, RULE + "most.tasks = 2")
    posts = (alice.ask("POST", "/v1/tasks", _document(first=10 * n)) for n in range(5))
    answers = await asyncio.gather(*posts)
    assert sorted(status for status, _ in answers) == [201, 201, 429, 429, 429]
    problem = next(problem for status, problem in answers if status == 429)
    assert problem["type"].endswith("limit-reached")
    assert "alice has 2 of 2 open tasks here" in problem["detail"]
    url = f"{pair.a.node.card.url}/v1/tasks"
    async with alice.session.post(url, json=_document()) as refused:
        headers = refused.headers
    assert (headers["Retry-After"], headers["RateLimit-Policy"]) == ("60", '"limit";q=2')
    assert headers["RateLimit"] == '"limit";r=0;t=60'
    [task, _] = [task["id"] for status, task in answers if status == 201]
    assert (await alice.ask("DELETE", f"/v1/tasks/{task}"))[0] == 200
    assert (await alice.ask("POST", "/v1/tasks", _document()))[0] == 201


@pytest.mark.nightly
async def test_a_user_without_room_hinders_nobody_else(pair: Pair, alice: Asker) -> None:
    """Tasks that are stored together are refused one by one: others get theirs meanwhile."""
    await limit(pair.a.node, RULE + "most.tasks = 1")
    await _post(alice, _document())
    users = [alice if number % 2 else pair.a for number in range(16)]
    posts = (user.ask("POST", "/v1/tasks", _document(first=10 * n)) for n, user in enumerate(users))
    answers = await asyncio.gather(*posts)
    assert [status for status, _ in answers] == [201, 429] * 8


async def test_runs_at_once_of_a_user(pair: Pair, alice: Asker) -> None:
    """No more runs of a user take place at the same time than the rule allows."""
    await limit(pair.a.node, RULE + "most.runs_at_once = 1")
    document = _document(B_ALONE)
    document["test"]["spec"]["class"] = "background"
    document["schedule"] = {"start": times.format_instant(HOUR), "slip": "PT0S"}
    tasks = [await _post(alice, document) for _ in range(2)]
    await pair.plan()
    states = [state for task in tasks for state in await _states(pair, task)]
    assert sorted(states) == ["booked", "waiting"]


@pytest.mark.nightly
async def test_a_task_counts_for_who_edited_it_last(pair: Pair, alice: Asker) -> None:
    """An edit by another user makes the task theirs; what alice has booked is given back."""
    await limit(pair.a.node, RULE + 'most = { runs = "2/PT1H", tasks = 1 }')
    task = await _post(alice, _document(runs=2))
    await pair.plan()
    assert await _used(pair) == {"alice": 2}
    assert (await pair.a.ask("PATCH", f"/v1/tasks/{task}", {"priority": -1}))[0] == 200
    assert await _used(pair) == {}
    other = await _post(alice, _document(first=20))
    assert (await alice.ask("PATCH", f"/v1/tasks/{task}", {"priority": -2}))[0] == 429
    assert (await alice.ask("DELETE", f"/v1/tasks/{other}"))[0] == 200
    assert (await alice.ask("PATCH", f"/v1/tasks/{task}", {"priority": -2}))[0] == 200
    assert await _used(pair) == {"alice": 2}


@pytest.mark.nightly
async def test_changed_limits_apply_to_open_tasks(pair: Pair, alice: Asker) -> None:
    """A task that changed limits do not admit gets no time, until they admit it again."""
    task = await _post(alice, _document(runs=2))
    await limit(pair.a.node, RULE + 'tests = ["trace"]')
    await pair.plan()
    assert await _states(pair, task) == ["waiting", "waiting"]
    _, explanation = await alice.ask("GET", f"/v1/tasks/{task}/explain")
    assert "limit 'course': idle is not among its tests" in explanation["sentence"]
    await limit(pair.a.node, RULE)
    await alice.ask("POST", f"/v1/tasks/{task}/release")
    await pair.plan()
    assert await _states(pair, task) == ["booked", "booked"]


async def test_a_preview_knows_the_limits_of_its_user(pair: Pair, alice: Asker) -> None:
    """A plan says what the limits refuse its user, and to what they leave no time."""
    await limit(pair.a.node, RULE + 'most.runs = "1/PT1H"\nduration_max = "PT2M"')
    status, plan = await alice.ask("POST", "/v1/plans", _document(duration="PT4M"))
    assert (status, plan["outcome"]) == (200, "refused")
    assert "limit 'course': a run takes 4 min" in plan["sentence"]
    await _post(alice, _document())
    await pair.plan()
    _, plan = await alice.ask("POST", "/v1/plans", _document(first=20))
    assert plan["outcome"] == "no-time"
    assert "limit 'course': 1 run of 1 run per hour used" in plan["sentence"]
    assert (await alice.ask("POST", "/v1/tasks?if_time=true", _document(first=20)))[0] == 409
    _, plan = await pair.a.ask("POST", "/v1/plans", _document(first=20))
    assert plan["outcome"] == "found"


async def test_a_hold_that_runs_out_gives_back_what_it_took(
    pair: Pair, alice: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold that nobody decides on gives back what it was counted for, with its time."""
    await limit(pair.a.node, RULE + 'most.runs = "1/PT1H"')
    task = await _post(alice, _document())

    async def undecided(*_: object) -> None:
        return

    with monkeypatch.context() as patched:
        patched.setattr(pair.lead.planner._recorder, "record", undecided)
        await pair.plan()
    assert await _used(pair) == {"alice": 1}
    pair.clock.advance(times.MINUTE)
    await pair.plan()
    assert await _used(pair) == {"alice": 1}
    assert await _states(pair, task) == ["booked"]


@pytest.mark.nightly
async def test_tasks_that_are_planned_together_ask_together(
    pair: Pair, alice: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions of tasks with a quota are one message: what it leaves is read for all at once."""
    await limit(pair.a.node, RULE + 'most.runs = "100/PT1H"')
    created = [await _post(alice, _document(first=4 * number)) for number in range(12)]
    messages: list[int] = []
    peers = pair.a.node.peers
    post = peers.post

    async def counted(peer: Peer, path: str, body: bytes) -> bytes:
        if path == "proposals":
            messages.append(len(json.loads(body)["items"]))
        return await post(peer, path, body)

    monkeypatch.setattr(peers, "post", counted)
    await pair.plan()
    states = [await _states(pair, task) for task in created]
    assert states == [["booked"]] * 12
    assert messages == [12]
