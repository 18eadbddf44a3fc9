"""Each view of the API names a measurement by the same headline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from node.api.events import describe
from node.journal.events import Event
from node.model import times
from node.model.errors import DatabaseUnavailable
from node.store import tasks
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import asker, served
from tests.support.served_pairs import Pair, paired

LINE = "idle  a, b"


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Serve a and b, which know each other."""
    async with (
        asker("a", await new_database(), clock, tmp_path / "a") as a,
        served("b", await new_database(), clock, tmp_path / "b") as b,
    ):
        yield await paired(a, b, clock)


@pytest.mark.nightly
async def test_all_views_have_the_same_headline(pair: Pair) -> None:
    """Task, runs, schedule and explanations have one headline, and the run the mesh of its task."""
    task = await pair.book(1)
    await pair.a.rows("""UPDATE task SET reference = '{"mesh": "lab", "key": "k"}'""")
    soon = times.format_instant(pair.clock.now() + 3 * times.HOUR)
    answers = {
        path: (await pair.a.ask("GET", path))[1]
        for path in (
            "/v1/tasks", f"/v1/tasks/{task}", f"/v1/tasks/{task}/explain", "/v1/runs",
            f"/v1/tasks/{task}/runs", f"/v1/schedule?to={soon}",
        )
    }  # fmt: skip
    shown = [each for answer in answers.values() for each in answer.get("items", [answer])]
    assert len(shown) >= 8
    assert {each["headline"] for each in shown} == {LINE}
    runs = answers["/v1/runs"]["items"]
    assert {run["mesh"] for run in runs} == {"lab"}
    for tail in ("", "/explain"):
        _, one = await pair.a.ask("GET", f"/v1/runs/{runs[0]['id']}{tail}")
        assert one["headline"] == LINE


async def test_a_run_of_an_earlier_revision_keeps_its_headline(pair: Pair) -> None:
    """A run that measured something else before an edit is named by what it measured."""
    await pair.book(1)
    [first, *_] = await pair.a.rows("SELECT id FROM run ORDER BY starts_at")
    await pair.a.rows("""UPDATE task SET test = 'http', spec = '{"url": "https://b/new"}',
                         participants = jsonb_build_array(participants -> 0)""")
    await pair.a.rows(f"""UPDATE run SET spec = '{{"url": "https://b/old"}}'
                          WHERE id = '{first[0]}'""")
    _, listed = await pair.a.ask("GET", "/v1/runs?order=asc")
    lines = [run["headline"] for run in listed["items"]]
    assert lines == ["http  a → https://b/old", "http  a → https://b/new"]


async def test_events_have_the_headline_of_their_task(pair: Pair) -> None:
    """An event about a task, or a run of it, names the measurement; the first reader adds that."""
    task = await pair.book(1)
    events = [
        Event(1, "task", {"id": task, "state": "active"}, START),
        Event(2, "run", {"id": str(uuid4()), "task": task, "state": "running"}, START),
        Event(3, "task", {"id": str(UUID(int=7)), "state": "cancelled"}, START),
        Event(4, "node", {"id": "b", "state": "reached"}, START),
    ]
    await describe(pair.a.node, events)
    assert [event.body.get("headline") for event in events] == [LINE, LINE, "", None]
    assert LINE in events[0].text.decode()
    await pair.a.rows("UPDATE task SET test = 'rtt'")
    await describe(pair.a.node, events)
    assert events[0].body["headline"] == LINE


async def test_events_of_runs_that_are_over_have_the_judgement(pair: Pair) -> None:
    """A path on which nothing arrives finishes its run, and the event says that it is no answer."""
    task = await pair.book(2)
    over, ahead = [row[0] for row in await pair.a.rows("SELECT id FROM run ORDER BY starts_at")]
    await pair.a.rows(
        "UPDATE run SET state = 'finished', result = '{}', judgement = 'no-answer', lane = NULL "
        f"WHERE id = '{over}'"
    )
    events = [
        Event(1, "run", {"id": str(over), "task": task, "state": "finished"}, START),
        Event(2, "run", {"id": str(ahead), "task": task, "state": "booked"}, START),
    ]
    await describe(pair.a.node, events)
    assert [event.body.get("judgement") for event in events] == ["no-answer", None]


async def test_events_need_no_database(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event whose headline cannot be read is told without one, instead of not at all."""
    event = Event(1, "task", {"id": str(uuid4()), "state": "active"}, START)

    async def away(*_: object) -> None:
        raise DatabaseUnavailable("no connection")

    monkeypatch.setattr(tasks, "naming_facts", away)
    await describe(pair.a.node, [event])
    assert event.body == {"id": event.body["id"], "state": "active"}


async def test_a_task_says_why_its_run_waits(pair: Pair) -> None:
    """A task whose run found no time has the reason, in lists and alone."""
    busy = {
        "test": {
            "type": "idle", "spec": {"duration": "PT2H", "class": "exclusive",
                                     "participants": ["a", "b"]},
        },
        "priority": 5,
    }  # fmt: skip
    await pair.a.ask("POST", "/v1/tasks", busy)
    await pair.plan()
    late = {**busy, "priority": 0}
    status, task = await pair.a.ask("POST", "/v1/tasks", late)
    assert status == 201, task
    await pair.plan()
    _, alone = await pair.a.ask("GET", f"/v1/tasks/{task['id']}")
    assert "busy with an exclusive idle run" in alone["waiting"]
    _, listed = await pair.a.ask("GET", "/v1/tasks")
    assert {each["waiting"] for each in listed["items"]} == {alone["waiting"], None}
