"""Unexpected errors while seats are given stop only the pool or task that they concern."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.wire.pools import PoolDocument
from tests.support.pool_worlds import Pooled, known_as_they_are, pooled
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

BROKEN_OFF = "giving seats failed: a fault of this program: "


async def _spoil(pool: Pooled, task: UUID) -> dict[str, Any]:
    """Make the request of a pool task unreadable, and return it."""
    rows = await pool.lead.rows("SELECT request FROM pool_task WHERE task_id = $1", task)
    await _mend(pool, task, {"pool": "europe"})
    request: dict[str, Any] = rows[0][0]
    return request


async def _mend(pool: Pooled, task: UUID, request: dict[str, Any]) -> None:
    await pool.lead.rows("UPDATE pool_task SET request = $2 WHERE task_id = $1", task, request)


@pytest.mark.nightly
async def test_a_fault_in_one_pool_leaves_the_others_alone(world: World) -> None:
    """An error in one pool is stored at its tasks, and the pool is retried after a pause."""
    pool = await pooled(world, [{}, {}])
    document = {"name": "all", "match": {"in": "europe"}}
    await pool.lead.node.pools.create(PoolDocument.model_validate(document))
    first = await pool.create(1, seat=False)
    other = await pool.create(1, seat=False, request={"pool": "all"})
    original = pool.episodes._driver.run

    async def run(episode_input: Any, membership: Any) -> Any:
        if episode_input.pool.name == "europe":
            raise RuntimeError("unexpected")
        return await original(episode_input, membership)

    pool.episodes._driver.run = run  # type: ignore[method-assign]
    await pool.seat()
    assert await pool.seats(first) == {}
    assert list(await pool.seats(other)) == [0, 6, 12]
    reason = f"{BROKEN_OFF}RuntimeError('unexpected')"
    assert await pool.told(first) == [("broken off", reason)]
    said = await pool.lead.rows("SELECT DISTINCT reason FROM term WHERE pool_task = $1", first)
    assert [row[0] for row in said] == [reason]
    pool.episodes._driver.run = original  # type: ignore[method-assign]
    await pool.seat()
    assert await pool.seats(first) == {}, "not before the pause is over"
    world.clock.advance(times.SECOND)
    await pool.seat()
    assert list(await pool.seats(first)) == [0, 6, 12]


@pytest.mark.nightly
async def test_terms_that_cannot_be_begun_hold_up_no_other_task(world: World) -> None:
    """A task whose terms cannot be opened stores the reason, and opens them once it is readable."""
    pool = await pooled(world, [{}, {}])
    first = await pool.create(1, seat=False)
    other = await pool.create(1, seat=False)
    request = await _spoil(pool, first)
    await pool.seat()
    assert list(await pool.seats(other)) == [0, 6, 12]
    decisions = dict(await pool.told(first))
    assert decisions["broken off"].startswith(f"{BROKEN_OFF}1 validation error for SeatRequest")
    assert decisions["lacks nodes"].startswith(
        "what its pool lacks is not known, by a fault of this"
    )
    await _mend(pool, first, request)
    world.clock.advance(times.SECOND)
    await pool.seat()
    assert list(await pool.seats(first)) == [0, 6, 12]


@pytest.mark.nightly
async def test_seats_that_cannot_be_judged_hold_up_no_other_task(world: World) -> None:
    """A node that left the pool loses the seats of readable tasks; the others follow later."""
    pool = await pooled(world, [{}, {}])
    first, other = await pool.create(1), await pool.create(1)
    request = await _spoil(pool, first)
    sits = (await pool.seats(other))[0][1]
    leaver = next(site for site in pool.nodes if site.name == sits)
    await leaver.node.own_card.set({"in": "asia"})
    await known_as_they_are(world)
    await pool.changed()
    names = {site.name for site in pool.nodes} - {leaver.name}
    assert {name for term in (await pool.seats(other)).values() for name in term.values()} == names
    assert (await pool.told(first))[-2][0] == "broken off"
    await _mend(pool, first, request)
    world.clock.advance(times.SECOND)
    await pool.seat()
    assert {name for term in (await pool.seats(first)).values() for name in term.values()} == names


@pytest.mark.nightly
async def test_a_task_that_cannot_be_read_holds_up_no_other_of_its_pool(world: World) -> None:
    """An unreadable task waits, while the others of its pool get their seats."""
    pool = await pooled(world, [{}, {}])
    first = await pool.create(1, seat=False)
    other = await pool.create(1, seat=False)
    await pool.episodes._open_terms()
    request = await _spoil(pool, first)
    await pool.seat()
    assert list(await pool.seats(other)) == [0, 6, 12]
    assert await pool.seats(first) == {}
    assert dict(await pool.told(first))["broken off"].startswith(f"{BROKEN_OFF}1 validation error")
    assert "broken off" not in dict(await pool.told(other))
    await _mend(pool, first, request)
    world.clock.advance(times.SECOND)
    await pool.seat()
    assert list(await pool.seats(first)) == [0, 6, 12]


async def test_a_task_whose_test_is_gone_holds_up_no_other_of_its_pool(world: World) -> None:
    """A task whose test is missing stores that, and gets its seats once it is installed."""
    pool = await pooled(world, [{}, {}])
    first = await pool.create(1, seat=False)
    other = await pool.create(1, seat=False)
    await pool.episodes._open_terms()
    rename = "UPDATE task SET test = $2 WHERE id = $1"
    await pool.lead.execute(rename, first, "tracing")
    await pool.seat()
    assert list(await pool.seats(other)) == [0, 6, 12]
    assert (await pool.told(first))[-1][0] == "not seated"
    assert "there is no test 'tracing'; did you mean trace?" in (await pool.told(first))[-1][1]
    await pool.lead.execute(rename, first, "idle")
    world.clock.advance(times.MINUTE)
    await pool.seat()
    assert list(await pool.seats(first)) == [0, 6, 12]


@pytest.mark.nightly
async def test_a_fault_in_looking_for_nodes_is_that_of_one_task(world: World) -> None:
    """An error in the node search for one task does not affect the others of the episode."""
    pool = await pooled(world, [{}, {}])
    first = await pool.create(1, seat=False, priority=1)
    other = await pool.create(1, seat=False)
    original = pool.episodes._driver._seat_task

    def seat_task(pool_task: Any, *arguments: Any) -> Any:
        if pool_task.id == first:
            raise RuntimeError("unexpected")
        return original(pool_task, *arguments)

    pool.episodes._driver._seat_task = seat_task
    await pool.seat()
    assert list(await pool.seats(other)) == [0, 6, 12]
    assert await pool.seats(first) == {}
    outcome, sentence = (await pool.told(first))[-1]
    assert outcome == "not seated"
    assert "idle: a fault of this program: RuntimeError('unexpected')" in sentence
