"""Messages of a lead that are late, repeated or reordered do not undo a newer change."""

from __future__ import annotations

import pytest

from node.model import times
from node.model.errors import Conflict, NotFound
from node.model.wire.participants import FreedRuns, Introduction
from node.model.wire.tasks import Schedule
from tests.support.clocks import START
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    Site,
    World,
    book_everywhere,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
MANY = 288
SLOTS = Schedule(start=START, repeat=DURATION, slip=0)


def _freeing(before_epoch: int, starting: int = START, slots_from: int = 0) -> FreedRuns:
    return FreedRuns(
        before_epoch=before_epoch,
        starting=starting,
        slots_from=slots_from,
        reason="the task was edited: slip 5 min → 1 min",
    )


def _at(task: Introduction, revision: int, **changes: object) -> Introduction:
    """Return the task at another revision, as b gets to know it."""
    return task.model_copy(update={"revision": revision, "participant": 1, **changes})


async def _known(world: World) -> tuple[Site, Site, Introduction]:
    a, b = await world.two()
    task = introduction([a, b], schedule=SLOTS)
    await b.node.acceptance.consider(a.identity, _at(task, 1))
    return a, b, task


async def test_an_old_introduction_changes_nothing(world: World) -> None:
    """An old introduction is refused and leaves the newer terms unchanged."""
    a, b, task = await _known(world)
    await b.node.acceptance.consider(a.identity, _at(task, 3, priority=7, paused_at=START))
    with pytest.raises(Conflict, match="3 is known"):
        await b.node.acceptance.consider(a.identity, _at(task, 2, priority=5))
    row = (await b.rows("SELECT priority, revision, state::text FROM task"))[0]
    assert tuple(row) == (7, 3, "paused")


async def test_a_question_keeps_nothing(world: World) -> None:
    """Asking about an edit does not change what the participant knows of the task."""
    a, b, task = await _known(world)
    answer = await b.node.acceptance.judge(a.identity, _at(task, 2, priority=9))
    assert answer.accepted
    assert (await b.rows("SELECT priority, revision FROM task"))[0][1] == 1
    unknown = introduction([a, b], schedule=SLOTS)
    await b.node.acceptance.judge(a.identity, _at(unknown, 1))
    assert len(await b.rows("SELECT FROM task")) == 1


async def test_a_question_about_a_task_that_is_over_is_refused(world: World) -> None:
    """A participant that has withdrawn from a task answers so when asked about an edit."""
    a, b, task = await _known(world)
    await b.node.termination.cancel_task(task.task)
    answer = await b.node.acceptance.judge(a.identity, _at(task, 2))
    assert answer.reason == "the task is refused here: b withdrew from it"


async def test_a_hold_under_another_revision_is_refused(world: World) -> None:
    """A hold under an older revision is a conflict; a newer one requires an introduction."""
    a, b, task = await _known(world)
    await b.node.acceptance.consider(a.identity, _at(task, 2))
    request = hold_request(task, [HOUR])
    with pytest.raises(Conflict, match="which is newer than"):
        await b.node.time_line.hold(exchange_of(request), a.identity, request)
    newer = request.model_copy(update={"revision": 3})
    with pytest.raises(NotFound, match="which is older than"):
        await b.node.time_line.hold(exchange_of(newer), a.identity, newer)
    fitting = request.model_copy(update={"revision": 2})
    assert (await b.node.time_line.hold(exchange_of(fitting), a.identity, fitting)).held


async def test_a_paused_task_holds_nothing(world: World) -> None:
    """A hold for a paused task is refused with that reason."""
    a, b, task = await _known(world)
    await b.node.acceptance.consider(a.identity, _at(task, 2, paused_at=START))
    request = hold_request(task, [HOUR]).model_copy(update={"revision": 2})
    with pytest.raises(Conflict, match="is paused here"):
        await b.node.time_line.hold(exchange_of(request), a.identity, request)


async def test_a_late_freeing_spares_what_was_booked_since(world: World) -> None:
    """A late or repeated freeing frees only runs that were booked before the change."""
    a, b, task = await _known(world)
    first, second = HOUR, HOUR + times.HOUR
    for epoch, start in ((1, first), (5, second)):
        request = hold_request(task, [start], epoch=epoch)
        exchange = exchange_of(request)
        await b.node.time_line.hold(exchange, a.identity, request)
        await b.node.time_line.commit(exchange, commit_request(request))
    for _ in range(2):
        await b.node.acceptance.consider(a.identity, _at(task, 2, freeing=_freeing(4)))
    states = list((await b.states()).values())
    assert states == ["cancelled", "scheduled"]
    assert "slip 5 min → 1 min" in (await b.rows("SELECT reason FROM run WHERE freed"))[0][0]


async def test_an_old_word_still_frees(world: World) -> None:
    """A change that arrives after a newer one does not alter the terms but frees its runs."""
    a, b, task = await _known(world)
    request = hold_request(task, [HOUR])
    exchange = exchange_of(request)
    await b.node.time_line.hold(exchange, a.identity, request)
    await b.node.time_line.commit(exchange, commit_request(request))
    await b.node.acceptance.consider(a.identity, _at(task, 3))
    with pytest.raises(Conflict):
        await b.node.acceptance.consider(a.identity, _at(task, 2, freeing=_freeing(4)))
    assert list((await b.states()).values()) == ["cancelled"]


async def test_what_was_only_held_is_forgotten(world: World) -> None:
    """A hold from before the change is dropped, and its late commit keeps nothing."""
    a, b, task = await _known(world)
    request = hold_request(task, [HOUR])
    exchange = exchange_of(request)
    await b.node.time_line.hold(exchange, a.identity, request)
    await b.node.acceptance.consider(a.identity, _at(task, 2, freeing=_freeing(2)))
    await b.node.time_line.commit(exchange, commit_request(request))
    assert await b.states() == {}
    old = hold_request(task, [HOUR]).model_copy(update={"revision": 2})
    with pytest.raises(Conflict, match="epoch"):
        await b.node.time_line.hold(exchange_of(old), a.identity, old)


async def test_who_refuses_new_terms_frees_the_old_runs(world: World) -> None:
    """A participant that refuses new terms still applies the pause and frees the old runs."""
    a, b, task = await _known(world)
    request = hold_request(task, [HOUR])
    exchange = exchange_of(request)
    await b.node.time_line.hold(exchange, a.identity, request)
    await b.node.time_line.commit(exchange, commit_request(request))
    b.node.capabilities.tests = {}
    paused = _at(task, 2, freeing=_freeing(2), paused_at=START)
    answer = await b.node.acceptance.consider(a.identity, paused)
    assert not answer.accepted
    assert list((await b.states()).values()) == ["cancelled"]
    row = (await b.rows("SELECT state::text, revision FROM task"))[0]
    assert tuple(row) == ("paused", 1)


async def test_a_task_that_ended_here_is_not_brought_back(world: World) -> None:
    """A participant that withdrew refuses an edit with the state of the task."""
    a, b, task = await _known(world)
    await b.node.termination.cancel_task(task.task)
    answer = await b.node.acceptance.consider(a.identity, _at(task, 2))
    assert (answer.accepted, answer.reason) == (
        False,
        "the task is refused here: b withdrew from it",
    )
    assert (await b.rows("SELECT state::text FROM task"))[0][0] == "refused"


async def test_many_runs_are_freed_by_one_letter(world: World) -> None:
    """A day of runs is freed by one message to the participant."""
    a, b = [await world.site(name, horizon=2 * times.DAY) for name in "ab"]
    task = introduction([a, b], duration=times.MINUTE, schedule=SLOTS)
    starts = [HOUR + number * 5 * times.MINUTE for number in range(MANY)]
    await book_everywhere(task, a, [a, b], starts)
    await a.execute("UPDATE planning SET lease_epoch = 1")
    await a.node.editing.pause(task.task)
    world.calls.clear()
    await world.settle()
    assert world.calls == [("a", "b", "introduce")]
    assert set((await b.states()).values()) == set((await a.states()).values()) == {"cancelled"}
