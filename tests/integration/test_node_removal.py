"""With a node that is removed, all open tasks between it and this one end."""

from __future__ import annotations

import pytest

from node.model import times
from node.model.errors import DatabaseUnavailable, NotFound
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


async def _booked(lead: Site, *participants: Site, at: int) -> Introduction:
    """Return a task with three booked runs."""
    schedule = Schedule(start=at, repeat=times.HOUR, max_runs=3)
    task = introduction(list(participants), schedule=schedule)
    for site in {lead, *participants}:
        await site.keep(task, lead)
    await lead.plan()
    for site in participants:
        rows = await site.rows("SELECT state::text FROM run WHERE task_id = $1", task.task)
        assert [row[0] for row in rows] == ["booked"] * 3
    return task


async def _state(site: Site, task: Introduction) -> tuple[str, str | None]:
    [row] = await site.rows("SELECT state::text, reason FROM task WHERE id = $1", task.task)
    return row[0], row[1]


async def test_all_tasks_with_a_removed_node_end(world: World) -> None:
    """The tasks that it leads here and those that it takes part in end, and their time is free."""
    a, b, c = await world.three()
    theirs = await _booked(b, a, b, at=HOUR)
    ours = await _booked(a, a, b, c, at=HOUR + 10 * times.MINUTE)
    other = await _booked(a, a, c, at=HOUR + 20 * times.MINUTE)
    alone = await _booked(b, b, at=HOUR + 30 * times.MINUTE)
    removed = await a.node.node_removal.remove("b")
    assert (removed.name, removed.identity) == ("b", b.identity)
    assert (removed.tasks_led_there, removed.tasks_led_here, removed.runs) == (1, 1, 6)
    why_theirs = "b, which leads it, was removed on a"
    why_ours = "b, which takes part in it, was removed on a"
    assert await _state(a, theirs) == ("refused", why_theirs)
    assert await _state(a, ours) == ("cancelled", why_ours)
    rows = await a.rows("SELECT DISTINCT task_id FROM run WHERE state = 'booked'")
    assert [row[0] for row in rows] == [other.task]
    # The removed node was told at once, though nothing can be sent to it any more.
    assert await _state(b, theirs) == ("refused", why_theirs)
    assert await _state(b, ours) == ("cancelled", why_ours)
    assert {node for node, _, _ in await a.outbox_messages()} == {c.identity}
    await world.settle()
    assert await _state(c, ours) == ("cancelled", why_ours)
    assert (await _state(c, other))[0] == (await _state(b, alone))[0] == "active"


async def test_a_node_that_is_away_is_removed_all_the_same(world: World) -> None:
    """A removed node that does not answer is told nothing, and its tasks end here."""
    a, b = await world.two()
    theirs = await _booked(b, a, b, at=HOUR)
    world.cut = {frozenset("ab")}
    removed = await a.node.node_removal.remove("b")
    assert (removed.tasks_led_there, removed.tasks_led_here, removed.runs) == (1, 0, 3)
    assert (await _state(a, theirs))[0] == "refused"
    assert set((await a.states()).values()) == {"cancelled"}
    assert (await _state(b, theirs))[0] == "active"
    with pytest.raises(NotFound, match="no other node named b is known here"):
        await a.node.node_removal.remove("b")


async def test_a_node_is_removed_with_its_tasks_or_not_at_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its tasks cannot be ended, the node stays known, and its tasks stay open."""
    a, b = await world.two()
    theirs = await _booked(b, a, b, at=HOUR)

    async def fail(*_: object) -> None:
        raise DatabaseUnavailable("the disk is full")

    monkeypatch.setattr(a.node.termination, "end_all_with", fail)
    with pytest.raises(DatabaseUnavailable):
        await a.node.node_removal.remove("b")
    assert (await _state(a, theirs))[0] == "active"
    assert set((await a.states()).values()) == {"scheduled"}
    assert [row[0] for row in await a.rows("SELECT name FROM node ORDER BY name")] == ["a", "b"]


async def test_a_node_with_very_many_tasks_is_removed(world: World) -> None:
    """All tasks end, however many; a node without any is just removed."""
    a, b, _ = await world.three()
    for _ in range(203):
        await a.keep(introduction([a], schedule=Schedule(start=HOUR)), b)
    removed = await a.node.node_removal.remove("b")
    assert (removed.tasks_led_there, removed.tasks_led_here, removed.runs) == (203, 0, 0)
    assert not await a.rows("SELECT FROM task WHERE state = 'active'")
    removed = await a.node.node_removal.remove("c")
    assert (removed.tasks_led_there, removed.tasks_led_here, removed.runs) == (0, 0, 0)
