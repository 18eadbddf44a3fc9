"""A host applies its limits to its own users before it asks any other node."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from node.model import times
from node.model.principals import Role
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import limit
from tests.support.served_nodes import Asker, asker, give_token, served
from tests.support.served_pairs import Pair, paired

OF_ALICE = """
version = 1

[who.students]
tokens = ["alice"]

[[rule]]
name = "course"
who = ["students"]
tests = ["idle"]
spec = { duration = { "<=" = "PT1M" } }
priority_max = 5
"""


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Return a, whose owner limits the user alice, and b, which admits everything."""
    async with contextlib.AsyncExitStack() as stack:
        a = await stack.enter_async_context(asker("a", await new_database(), clock, tmp_path / "a"))
        b = await stack.enter_async_context(
            served("b", await new_database(), clock, tmp_path / "b")
        )
        clock.advance(times.HOUR)
        await limit(a.node, OF_ALICE)
        yield await paired(a, b, clock)


@pytest.fixture
async def alice(pair: Pair) -> AsyncIterator[Asker]:
    """Return the user with the token alice."""
    await give_token(pair.a.node, "hers", "alice", Role.OPERATE)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer hers"}) as session:
        yield Asker(pair.a.node, session)


def _document(priority: int = 0, duration: str = "PT30S") -> dict[str, Any]:
    spec = {"duration": duration, "class": "exclusive", "participants": ["a", "b"]}
    start = times.format_instant(START + 3 * times.HOUR)
    return {
        "test": {"type": "idle", "spec": spec},
        "schedule": {"start": start},
        "priority": priority,
    }


async def test_a_user_is_refused_before_anybody_is_asked(
    pair: Pair, alice: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is told which rule of this host, at which field; no other node hears of the task."""
    asked: list[object] = []

    async def introduce(*question: object) -> None:
        asked.append(question)

    monkeypatch.setattr(pair.a.node.admission, "_introduce", introduce)
    status, problem = await alice.ask("POST", "/v1/tasks", _document(duration="PT2M"))
    assert (status, problem["type"].rsplit("/", 1)[-1]) == (403, "limit-refused")
    [refused] = problem["limits"]
    assert (refused["node"], refused["rule"]) == ("a", "course")
    assert (refused["pointer"], refused["allowed"]) == (
        "/test/spec/duration",
        'duration <= "PT1M"',
    )
    status, problem = await alice.ask("POST", "/v1/tasks?if_time=true", _document(priority=6))
    assert (status, problem["limits"][0]["pointer"]) == (403, "/priority")
    assert asked == []


async def test_a_user_is_served_within_the_limits(pair: Pair, alice: Asker) -> None:
    """A task within a rule is created, and cannot be edited out of it; others are not limited."""
    status, task = await alice.ask("POST", "/v1/tasks", _document(priority=5))
    assert status == 201
    longer = {"test": {"spec": {"duration": "PT2M"}}}
    status, problem = await alice.ask("PATCH", f"/v1/tasks/{task['id']}", longer)
    assert (status, problem["limits"][0]["pointer"]) == (403, "/test/spec/duration")
    assert (await alice.ask("GET", f"/v1/tasks/{task['id']}"))[1]["revision"] == 1
    assert (await pair.a.ask("PATCH", f"/v1/tasks/{task['id']}", longer))[0] == 200


async def test_a_task_is_tried_as_a_user(pair: Pair) -> None:
    """The owner learns what would become of a user's task; nothing is stored."""
    body = {"as": "token:alice", "task": _document(duration="PT2M")}
    status, trial = await pair.a.ask("POST", "/v1/limits/trials", body)
    assert (status, trial["allowed"]) == (200, False)
    assert trial["refusal"]["pointer"] == "/test/spec/duration"
    _, trial = await pair.a.ask("POST", "/v1/limits/trials", body | {"as": "token:bob"})
    assert (trial["allowed"], trial["rule"]) == (True, None)
    assert await pair.a.rows("SELECT FROM task") == []
