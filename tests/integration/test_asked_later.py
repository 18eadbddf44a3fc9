"""A lead that a participant tells to ask later (429) asks later, and takes it for no refusal."""

from __future__ import annotations

import pytest

from node.model import times
from node.model.errors import InvalidDocument, TooManyRequests
from node.model.ids import TaskId, run_id
from node.model.wire.participants import INTRODUCTION_BYTES_MAX
from node.model.wire.tasks import Schedule, TaskDocument, TaskPatch
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Call, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


def _document(*participants: Site, reference: object = None) -> TaskDocument:
    spec = {"duration": "PT5S", "participants": [site.name for site in participants]}
    schedule = {"start": "2026-12-01T01:00:00Z"}
    test = {"type": "idle", "spec": spec}
    return TaskDocument.model_validate(
        {"test": test, "schedule": schedule, "reference": reference},
        context={"from_outside": True},
    )


async def test_the_planner_introduces_the_task_again(world: World) -> None:
    """The runs of a task that a participant has no room for wait, and are booked when it has."""
    a, b = await world.two()
    b.node.acceptance._tasks_max = 0
    task = introduction([a, b], accepted=None, schedule=Schedule(start=HOUR))
    await a.keep(task, a)
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    assert await a.state(run) == "waiting"
    reason = "b: its lead has 0 open tasks here, and this host takes at most 0 of another node"
    assert (await a.reason(run) or "").startswith(reason)
    await world.pass_time(5 * times.SECOND)
    assert await a.state(run) == "waiting"
    b.node.acceptance._tasks_max = 1
    await world.pass_time(30 * times.SECOND, 5 * times.SECOND)
    assert (await a.state(run), await b.state(run)) == ("scheduled", "scheduled")


async def test_a_task_is_created_all_the_same(world: World) -> None:
    """A user's task is not refused because a participant is to be asked later."""
    a, b = await world.two()
    b.node.acceptance._tasks_max = 0
    task, _ = await a.node.admission.create(_document(a, b), None)
    [row] = await a.rows("SELECT state::text, participants FROM task")
    assert (row[0], [each["accepted"] for each in row[1]]) == ("active", [True, None])
    b.node.acceptance._tasks_max = 1
    await world.pass_time(5 * times.SECOND)
    assert await b.state(run_id(TaskId(task), HOUR, 1)) == "scheduled"


async def test_a_change_is_told_later(world: World) -> None:
    """The message of a change waits for a participant that lost the task and has no room for it."""
    a, b = await world.two()
    task, _ = await a.node.admission.create(_document(a, b), None)
    await b.execute("DELETE FROM task")
    b.node.acceptance._tasks_max = 0
    await a.node.editing.edit(task, TaskPatch(priority=7))
    await world.settle()
    assert [(node, kind) for node, kind, _ in await a.outbox_messages()] == [
        (b.identity, "task-change")
    ]
    b.node.acceptance._tasks_max = 1
    world.clock.advance(59 * times.SECOND)
    await world.settle()
    assert await a.outbox_messages()
    world.clock.advance(times.SECOND)
    await world.settle()
    assert not await a.outbox_messages()
    assert [row[0] for row in await b.rows("SELECT priority FROM task")] == [7]


async def test_a_task_too_long_for_others_is_refused_by_its_lead(world: World) -> None:
    """A reference that no participant would take is named at once; alone it may be long."""
    a, b = await world.two()
    long = "x" * INTRODUCTION_BYTES_MAX
    with pytest.raises(InvalidDocument, match=r"/reference: makes the task .* bytes long"):
        await a.node.admission.create(_document(a, b, reference=long), None)
    assert not await b.rows("SELECT FROM task")
    await a.node.admission.create(_document(a, reference=long), None)
    task, _ = await a.node.admission.create(_document(a, b, reference="x" * 48_000), None)
    with pytest.raises(InvalidDocument, match=r"/reference: makes the task .* bytes long"):
        await a.node.editing.edit(task, TaskPatch(reference=long))


@pytest.mark.parametrize("question", ["propose", "hold"])
@pytest.mark.nightly
async def test_a_busy_participant_is_asked_when_it_says(world: World, question: str) -> None:
    """A participant that is asked for too much is busy, not away, and asked when it says."""
    a, b = await world.two()
    task = introduction([a, b], accepted=True, schedule=Schedule(start=HOUR))
    await a.keep(task, a)
    await b.keep(task, a)
    asked = []

    async def busy(call: Call, when: str) -> None:
        if when == "asked" and call == ("a", "b", question):
            asked.append(world.clock.now())
            if len(asked) == 1:
                msg = "a asks for too much"
                raise TooManyRequests(msg, 40)

    world.watch = busy
    await a.plan()
    run = run_id(TaskId(task.task), HOUR, 1)
    assert (await a.state(run), len(asked)) == ("waiting", 1)
    assert "a asks for too much" in (await a.reason(run) or "")
    assert a.reachability.unreachable_among([b.identity]) is None
    await world.pass_time(60 * times.SECOND, times.SECOND)
    assert asked[1] - asked[0] >= 40 * times.SECOND
    assert (await a.state(run), await b.state(run)) == ("scheduled", "scheduled")
