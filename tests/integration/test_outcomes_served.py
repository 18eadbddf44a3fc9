"""``GET /v1/outcomes``: what fails of the tasks of a node, and what is common to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.principals import Role
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, asker, give_token, user

TASK = """
    INSERT INTO task (
        id, lead, test, tool, spec, scheduling_class, duration, participants, participant,
        schedule, created_at
    )
    SELECT
        $1, node.identity, 'rtt', 'ping', jsonb_build_object('dest', $3::text), 'background-multi',
        interval '1 s', jsonb_build_array(jsonb_build_object(
            'node', $2::text, 'name', $2::text, 'url', null, 'address', $2::text
        )), 0, '{"repeat": "PT1M"}', $4
    FROM node WHERE node.is_self
"""
RUN = """
    INSERT INTO run (
        id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at,
        state, reason, result, judgement, judgement_code, judgement_reason, created_at, changed_at
    )
    VALUES (
        $1, $2, $3, 1, 0, 'background-multi', 0, $3, $3::timestamptz + interval '1 s', 'finished',
        NULL, '{}', $4, $5, $6, $3, $3
    )
"""
LOST = ("no-answer", "all-lost", "all packets were lost")


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Serve a node that leads round trips between four hosts."""
    async with asker("a", await new_database(), clock, tmp_path / "a") as client:
        yield client


async def _measured(a: Asker, number: int, pair: str, judged: tuple[Any, Any, Any]) -> UUID:
    """Keep a task from the first to the second host of a pair, with one run of this judgement."""
    task, source, dest = UUID(int=number), pair[0], pair[1]
    await a.rows(TASK, task, source, dest, START)
    await a.rows(RUN, UUID(int=100 + number), task, START, *judged)
    return task


async def test_what_is_common_to_what_fails_is_told(a: Asker, clock: ManualClock) -> None:
    """All pairs with one host fail: one cause has them, and the pair apart is told beside it."""
    pairs = ["bd", "cd", "db", "dc", "bc", "cb"]
    tasks = [
        await _measured(a, number, pair, LOST if "d" in pair else ("good", None, None))
        for number, pair in enumerate(pairs, start=1)
    ]
    clock.move_to(START + 30 * times.SECOND)
    status, found = await a.ask("GET", "/v1/outcomes")
    assert status == 200, found
    assert found["judgements"] == {"no-answer": 4, "good": 2}
    [cause] = found["causes"]
    assert (cause["names"], cause["failing"], cause["crossing"]) == (["d"], 4, 4)
    assert cause["sentence"].startswith("d: ")
    assert {each["task"] for each in cause["tasks"]} == {str(each) for each in tasks[:4]}
    assert (found["apart"], found["apart_count"]) == ([], 0)

    _, of_one = await a.ask("GET", f"/v1/outcomes?task={tasks[0]},{tasks[4]}")
    assert of_one["judgements"] == {"no-answer": 1, "good": 1}
    assert [each["sentence"] for each in of_one["causes"]] == [cause["sentence"]]
    _, of_good = await a.ask("GET", f"/v1/outcomes?task={tasks[4]}")
    assert (of_good["judgements"], of_good["causes"]) == ({"good": 1}, [])


async def test_what_has_nothing_in_common_is_apart(a: Asker, clock: ManualClock) -> None:
    """A single failing pair is no cause; a task older than twice its interval is stale."""
    for number, pair in enumerate(("bc", "cb", "db"), start=1):
        await _measured(a, number, pair, ("good", None, None))
    alone = await _measured(a, 4, "bd", LOST)
    clock.move_to(START + 30 * times.SECOND)
    _, found = await a.ask("GET", "/v1/outcomes")
    told = {each["task"] for cause in found["causes"] for each in cause["tasks"]}
    told |= {each["task"] for each in found["apart"]}
    assert told == {str(alone)}
    clock.move_to(START + times.HOUR)
    _, later = await a.ask("GET", "/v1/outcomes")
    assert (later["judgements"], later["causes"], later["apart"]) == ({"stale": 4}, [], [])


async def test_who_has_tasks_of_their_own_only_does_not_see_them(a: Asker) -> None:
    """The outcomes of all tasks are for those who may read them all; odd queries are refused."""
    await give_token(a.node, "of bob", "bob", Role.RUN)
    async with user(a, "of bob") as asking:
        assert (await asking.ask("GET", "/v1/outcomes"))[0] == 403
    assert (await a.ask("GET", "/v1/outcomes?task=x"))[0] == 422
    assert (await a.ask("GET", "/v1/outcomes?tasks=x"))[0] == 422
