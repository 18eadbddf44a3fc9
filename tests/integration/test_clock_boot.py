"""A host that boots under a wrong clock gives up nothing, and takes nothing back."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from node.journal.retention import Purger, rules_of
from node.model import times
from node.model.errors import NotReady
from node.model.wire.tasks import Schedule
from node.runtime.clock import DOUBT
from node.store import clock_steps
from node.store.nodes import KnownNode
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import ON_ONE_LOOP, Site, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

WITHIN = [START + number * 10 * times.MINUTE for number in range(1, 6)]
"""Starts of the hour by which the clock is ahead at the least."""
ahead = pytest.mark.parametrize("by", [times.HOUR, times.DAY, 40 * times.DAY])


async def _look(site: Site) -> None:
    """Let the launcher and the housekeeper look, as often as they would."""
    for _ in range(3):
        await site.node.launcher.run_once()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*site.node.launcher._tasks.values())
        await site.node._end_overdue()


async def _boot(site: Site, by: int) -> None:
    """Start a process after a minute, under a clock that is ahead."""
    site.world.clock.advance(times.MINUTE)
    site.world.clock.step(by)
    await site.world.restart(site)
    await site.node.begin_clock()
    await site.node.launcher.recover()


async def _set_right(site: Site, by: int) -> None:
    site.world.clock.step(-by)
    await site.node.watch_clock()


@ahead
@pytest.mark.mostly_nightly
async def test_nothing_is_given_up_on_a_first_reading(world: World, by: int) -> None:
    """A clock that nothing confirms is doubted at the start, and all runs are measured later."""
    a, b = await world.two()
    await a.node.begin_clock()
    await book_everywhere(introduction([a, b]), a, [a, b], WITHIN)
    world.clock.confirmed = False
    await _boot(a, by)
    await _look(a)
    with pytest.raises(NotReady, match="not synchronised: nothing is begun or given up before"):
        a.node.clock_steps.require_begun()
    await _set_right(a, by)
    a.node.clock_steps.require_begun()
    await _look(a)
    assert set((await a.states()).values()) == {"scheduled"}


@ahead
@pytest.mark.mostly_nightly
async def test_what_was_wrongly_given_up_comes_back(world: World, by: int) -> None:
    """A clock that claims to be synchronised is believed; its runs are booked again afterwards."""
    a, b = await world.two()
    await a.node.begin_clock()
    await book_everywhere(introduction([a, b]), a, [a, b], WITHIN)
    await book_everywhere(introduction([a, b]), b, [a, b], [at + times.MINUTE * 5 for at in WITHIN])
    await _boot(a, by)
    await _look(a)
    assert set((await a.states()).values()) == {"missed"}
    assert await a.outbox_messages() != []
    await _set_right(a, by)
    assert set((await a.states()).values()) == {"scheduled"}
    assert await a.outbox_messages() == []
    await _look(a)
    assert await a.rows("SELECT FROM part") == []
    assert await a.states() == await b.states()


async def test_an_absence_that_the_kernel_has_counted_casts_no_doubt(world: World) -> None:
    """On a host that nobody tells the time a node goes on at once after a stop of an hour."""
    a = await world.site("a")
    world.clock.boot, world.clock.confirmed = "first", False
    await a.node.begin_clock()
    world.clock.advance(times.HOUR)
    await _boot(a, 0)
    a.node.clock_steps.require_begun()


@pytest.mark.parametrize(
    "boot", [pytest.param("first", id="set while stopped"), pytest.param("next", id="booted")]
)
async def test_what_the_kernel_has_not_counted_does(world: World, boot: str) -> None:
    """The clock is ahead of what was known, and of the time since then."""
    a = await world.site("a")
    world.clock.boot, world.clock.confirmed = "first", False
    await a.node.begin_clock()
    world.clock.boot = boot
    world.clock.advance(times.HOUR)
    await _boot(a, times.HOUR)
    assert a.node.clock_steps.watcher.ahead >= times.HOUR
    with pytest.raises(NotReady):
        a.node.clock_steps.require_begun()


async def test_what_came_back_is_noticed_at_a_start(world: World) -> None:
    """The clock may be set right while no process is there."""
    a = await world.site("a")
    await a.node.begin_clock()
    await book_everywhere(introduction([a]), a, [a], WITHIN)
    await _boot(a, times.DAY)
    await _look(a)
    assert set((await a.states()).values()) == {"missed"}
    await _boot(a, -times.DAY)
    assert set((await a.states()).values()) == {"scheduled"}


async def test_what_came_back_waits_for_a_clock_that_is_believed(world: World) -> None:
    """A start long before the last known time may be the wrong one: nothing is booked again yet."""
    a = await world.site("a")
    await a.node.begin_clock()
    await book_everywhere(introduction([a]), a, [a], WITHIN)
    await _boot(a, times.DAY)
    await _look(a)
    world.clock.confirmed = False
    await _boot(a, -times.DAY)
    assert set((await a.states()).values()) == {"missed"}
    world.clock.advance(a.node.settings.clock_doubt)
    await a.node.watch_clock()
    assert sorted((await a.states()).values()) == ["missed", *["scheduled"] * 4]


_PAST = """
    SELECT run.starts_at, run.state::text, run.reason, run.changed_at, part.reason, task.state::text
    FROM run INNER JOIN task ON run.task_id = task.id LEFT JOIN part ON part.run_id = run.id
    ORDER BY run.starts_at
"""


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("by", [times.HOUR, times.DAY])
async def test_nothing_is_taken_back_by_a_clock_that_is_behind(
    world: World, by: int, *, restarts: bool
) -> None:
    """Failed runs are over, and later ones are to come, though a wrong clock says otherwise."""
    a = await world.site("a")
    await a.node.begin_clock()
    await book_everywhere(introduction([a]), a, [a], WITHIN)
    world.clock.advance(25 * times.MINUTE)
    await _look(a)
    await a.node.clock_steps.note()
    past = await a.rows(_PAST)
    assert [row[1] for row in past] == ["missed"] * 2 + ["booked"] * 3
    world.clock.confirmed = False
    if restarts:
        await _boot(a, -by)
        with pytest.raises(NotReady, match="before the last time that is known here, and is not"):
            a.node.clock_steps.require_begun()
    else:
        world.clock.step(-by)
    for _ in range(2):
        await a.node.watch_clock()
        await a.node.clock_steps.note()
        await _look(a)
    assert await a.rows(_PAST) == past
    await _set_right(a, -by)
    a.node.clock_steps.require_begun()
    await _look(a)
    assert await a.rows(_PAST) == past


async def test_what_was_to_be_tried_again_comes_back_at_its_time(world: World) -> None:
    """A slot with slip waits for a further attempt meanwhile; it is measured when it was booked."""
    a = await world.site("a")
    await a.node.begin_clock()
    soon = START + 20 * times.MINUTE
    await a.keep(introduction([a], schedule=Schedule(start=soon, slip=2 * times.HOUR)), a)
    await a.plan()
    await _boot(a, times.HOUR)
    await _look(a)
    assert sorted((await a.states()).values()) == ["missed", "waiting"]
    await _set_right(a, times.HOUR)
    await a.plan()
    rows = await a.rows("SELECT state::text, attempt, starts_at FROM run")
    assert [tuple(row) for row in rows] == [("booked", 1, soon)]


async def test_a_slot_whose_time_is_taken_is_planned_again(world: World) -> None:
    """A run that cannot come back does not lose its slot."""
    a = await world.site("a")
    await a.node.begin_clock()
    soon = START + 20 * times.MINUTE
    await a.keep(introduction([a], schedule=Schedule(start=soon, slip=times.HOUR)), a)
    await a.plan()
    await _boot(a, times.HOUR)
    await _look(a)
    assert sorted((await a.states()).values()) == ["missed", "waiting"]
    taken = introduction([a])
    world.clock.step(-times.HOUR)
    await book_everywhere(taken, a, [a], [soon])
    await a.node.watch_clock()
    await a.plan()
    rows = await a.rows("SELECT state::text, starts_at FROM run WHERE task_id <> $1", taken.task)
    [again] = [row["starts_at"] for row in rows if row["state"] == "booked"]
    assert soon + 5 * times.MINUTE <= again <= soon + times.HOUR


async def test_a_task_that_seemed_to_be_over_goes_on(world: World) -> None:
    """A task finished by a clock that was ahead is active again, and others hear nothing of it."""
    a, b = await world.two()
    await a.node.begin_clock()
    task = introduction([a, b], schedule=Schedule(start=START + 30 * times.MINUTE, slip=0))
    for site in (a, b):
        await site.keep(task, a)
    await a.plan()
    await _boot(a, times.DAY)
    await _look(a)
    query = "SELECT state::text FROM task"
    assert [row[0] for row in await a.rows(query)] == ["finished"]
    await _set_right(a, times.DAY)
    await _look(a)
    assert [row[0] for row in await a.rows(query)] == ["active"]
    assert await a.states() == await b.states()
    assert await a.outbox_messages() == []


async def test_a_campaign_pays_for_what_comes_back(world: World) -> None:
    """The ledger has the same sums as before the clock was wrong."""
    a = await world.site("a")
    await a.node.begin_clock()
    start = START + 30 * times.MINUTE
    await a.keep(introduction([a], schedule=Schedule(start=start, slip=0)), a)
    await a.plan()
    query = "SELECT campaign_id, sum(weight), sum(bytes) FROM charge GROUP BY campaign_id"
    before = await a.rows(query)
    assert before[0][1] > 0
    await _boot(a, times.HOUR)
    await _look(a)
    assert await a.rows(query) != before
    await _set_right(a, times.HOUR)
    assert await a.rows(query) == before


async def test_a_clock_is_believed_that_another_process_believes(world: World) -> None:
    """The lead has nobody to ask: it follows the node, which asks the others."""
    a = await world.site("a")
    await a.node.begin_clock()
    world.clock.confirmed = False
    await _boot(a, times.DAY)
    assert a.node.clock_steps.watcher.newborn
    async with a.database.connection() as connection:
        await clock_steps.note_reading(connection, world.clock.now(), None, in_doubt=False)
    await a.node.watch_clock()
    assert not a.node.clock_steps.watcher.newborn


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_clock_is_believed_that_another_node_confirms(
    world: World, monkeypatch: pytest.MonkeyPatch, *, confirmed: bool
) -> None:
    """One that answers with its key and has another time confirms nothing."""
    a, _ = await world.two()
    await a.node.begin_clock()
    world.clock.confirmed = False
    await _boot(a, times.DAY)

    async def has_time(*_: object) -> bool:
        return confirmed

    monkeypatch.setattr(a.node.peers, "has_time", has_time)
    await a.node.watch_clock()
    assert a.node.clock_steps.watcher.newborn is not confirmed


async def test_all_nodes_are_asked_for_the_time_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than twenty are asked at once, and not the same ones each time."""
    a, b = await world.two()
    known = a.node.directory.by_identity(b.identity)
    asked: list[str] = []

    async def listed() -> list[KnownNode]:
        return [replace(known, identity=f"{number}", url="http://[::1]") for number in range(50)]

    async def has_time(_: str, identity: str, __: object) -> bool:
        asked.append(identity)
        return False

    monkeypatch.setattr(a.node.directory, "known_of_parley", listed)
    monkeypatch.setattr(a.node.peers, "has_time", has_time)
    monkeypatch.setattr(a.node, "_rng", random.Random(1))
    assert not await a.node._is_time_confirmed()
    assert len(asked) == len(set(asked)) == 20
    for _ in range(20):
        await a.node._is_time_confirmed()
    assert len(set(asked)) == 50


async def test_a_fault_does_not_keep_a_node_from_its_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that cannot begin, whatever the fault, tells it and tries again."""
    a = await world.site("a")
    faults = [RuntimeError("a bug"), None]

    async def work() -> None:
        if (fault := faults.pop(0)) is not None:
            raise fault

    monkeypatch.setattr(a.node, "_work", work)
    working = asyncio.create_task(a.node._work_later())
    with capture_logs() as logs:
        while not (await asyncio.wait({working}, timeout=0.05))[0]:
            world.clock.advance(times.SECOND)
    await working
    assert faults == []
    assert [each["event"] for each in logs if each["log_level"] == "error"] == [
        "cannot begin to work"
    ]


async def test_an_absence_is_believed_at_last(world: World) -> None:
    """A host that nobody tells the time goes on after ten minutes, and marks what it has missed."""
    a = await world.site("a")
    await a.node.begin_clock()
    await book_everywhere(introduction([a]), a, [a], WITHIN)
    world.clock.confirmed = False
    world.clock.advance(times.DAY)
    await _boot(a, 0)
    came_back = times.to_the_second(world.clock.now())
    await _look(a)
    assert set((await a.states()).values()) == {"scheduled"}
    world.clock.advance(a.node.settings.clock_doubt)
    await _look(a)
    assert set((await a.states()).values()) == {"missed"}
    [reason] = {row[0] for row in await a.rows("SELECT reason FROM run")}
    assert reason == f"the node was down at its start and came back at {came_back}"


async def test_nothing_begins_in_doubt(world: World) -> None:
    """A run that seems due by a clock that was set forward is begun at its true start."""
    a = await world.site("a")
    [run] = await book_everywhere(introduction([a]), a, [a], [START + times.HOUR])
    world.clock.step(times.HOUR)
    await _look(a)
    assert await a.state(run) == "scheduled"
    world.clock.advance(DOUBT // 2)
    world.clock.step(-times.HOUR)
    await _look(a)
    assert await a.state(run) == "scheduled"


@pytest.mark.nightly
async def test_a_purge_deletes_nothing_that_was_a_month_too_young(world: World) -> None:
    """However far a clock is ahead, in an hour nothing becomes more than a day older."""
    a = await world.site("a")
    await a.node.begin_clock()
    query = "INSERT INTO idempotency VALUES ($1, '', gen_random_uuid(), $2)"
    keep = 30 * times.DAY
    await a.execute(query, "young", START)
    await a.execute(query, "old", START - keep + times.HOUR)
    rules = rules_of(a.node.settings.model_copy(update={"keep_keys": keep}))
    purger, kept = Purger(a.node.core, rules), "SELECT key FROM idempotency ORDER BY key"
    world.clock.step(40 * times.DAY)
    await purger.run_once()
    assert [row[0] for row in await a.rows(kept)] == ["old", "young"]
    world.clock.advance(DOUBT)
    for _ in range(keep // times.DAY):
        await purger.run_once()
        assert [row[0] for row in await a.rows(kept)] == ["young"]
    await purger.run_once()
    assert await a.rows(kept) == []


async def test_no_lead_is_silent_for_days_at_once(world: World) -> None:
    """Tasks of others stay though a clock is eight days ahead and has been for an hour."""
    a, b = await world.two()
    await a.node.begin_clock()
    task = introduction([a, b])
    await a.keep(task, b)
    await _boot(a, 8 * times.DAY)
    for _ in range(2):
        world.clock.advance(times.HOUR)
        assert await a.node.leases.run_once() == 0
