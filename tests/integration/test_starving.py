"""A backlog of tomorrow's terms does not delay what is wanted now."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from node.model import times
from node.model.wire.campaigns import CampaignDocument
from node.store import seats
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, pooled
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

BACKLOG: dict[str, Any] = {"repeat": "PT20S", "slip": "PT10S", "max_runs": 2000}
ONCE: dict[str, Any] = {"repeat": None, "slip": "PT2M"}


@pytest_asyncio.fixture(loop_scope="session")
async def backlog(world: World) -> Pooled:
    """Return four rotating nodes and two campaigns with 1,900 open terms each, some seated."""
    pool = await pooled(world, [{}] * 4, choice="rotating")
    for name, level in (("ops", 5), ("lab", 5), ("other", 5), ("outage", "urgent")):
        document = {"name": name, "level": level}
        await pool.lead.node.campaigns.create(CampaignDocument.model_validate(document))
    for name in ("ops", "lab"):
        await pool.create(2, seat=False, schedule=BACKLOG, length="PT1S", campaign=name)
    while await pool.lead.rows("SELECT FROM pool_task WHERE due_at <= $1", world.clock.now()):
        await pool.episodes._open_terms()
    assert (await pool.lead.rows("SELECT count(*) FROM term"))[0][0] > 3500
    for _ in range(2):
        await _episode(pool)
    return pool


async def _episode(pool: Pooled) -> None:
    """Run an episode, which takes a second."""
    await pool.episodes.run_once()
    pool.world.clock.advance(times.SECOND)


async def _create(pool: Pooled, campaign: str, start: int) -> UUID:
    schedule = ONCE | {"start": times.format_instant(START + start)}
    return await pool.create(1, seat=False, schedule=schedule, length="PT5S", campaign=campaign)


@pytest.mark.nightly
async def test_what_is_urgent_does_not_wait_for_a_backlog(backlog: Pooled) -> None:
    """An urgent task gets its seat in the next episode despite thousands of older terms."""
    for start in (times.MINUTE, 59 * times.MINUTE):
        urgent = await _create(backlog, "outage", start)
        await _episode(backlog)
        assert len(await backlog.seats(urgent)) == 1


@pytest.mark.nightly
async def test_what_begins_soon_does_not_wait_for_a_backlog(backlog: Pooled) -> None:
    """A task that begins soon gets its seat among those of its hour, before the backlog."""
    other = await _create(backlog, "other", times.MINUTE)
    for _ in range(8):
        await _episode(backlog)
    assert len(await backlog.seats(other)) == 1
    terms = [row[0] for row in await backlog.lead.rows("SELECT term FROM seat ORDER BY taken_at")]
    assert max(terms) < START + 2 * times.HOUR


@pytest.mark.nightly
async def test_hours_are_given_one_after_the_other(backlog: Pooled) -> None:
    """Seats of an hour are given only when no earlier hour has due terms."""
    for _ in range(8):
        first = await _first_due(backlog)
        seats_before = await _seated_terms(backlog)
        await _episode(backlog)
        new = [term for task, term in await _seated_terms(backlog) - seats_before]
        assert new
        assert max(new) // times.HOUR <= first // times.HOUR + 1


async def _first_due(pool: Pooled) -> int:
    now = pool.lead.clock.now()
    rows = await pool.lead.rows("SELECT min(starts_at) FROM term WHERE try_at <= $1", now)
    return int(rows[0][0])


async def _seated_terms(pool: Pooled) -> set[tuple[UUID, int]]:
    return {(row[0], row[1]) for row in await pool.lead.rows("SELECT pool_task, term FROM seat")}


async def test_what_never_had_a_seat_ends_unplaced(world: World) -> None:
    """A task that never had a seat ends as unplaced, once the reason is known."""
    pool = await pooled(world, [{}])
    full = await pool.create(1, schedule=ONCE, length="PT30M", campaign=None)
    late = await pool.create(1, schedule=ONCE, length="PT30M", campaign=None)
    world.clock.advance(times.HOUR)
    await pool.lead.node.termination.finish_tasks()
    assert await _ended(pool, late) == ("active", None)
    await pool.seat()
    await pool.lead.node.termination.finish_tasks()
    state, reason = await _ended(pool, late)
    assert state == "unplaced"
    assert reason is not None
    assert "n1" in reason
    assert (await _ended(pool, full))[0] != "unplaced"


async def _ended(pool: Pooled, task: UUID) -> tuple[str, str | None]:
    row = (await pool.lead.rows("SELECT state::text, reason FROM task WHERE id = $1", task))[0]
    return row[0], row[1]


@pytest.mark.nightly
async def test_a_term_in_turn_says_who_comes_before_it(backlog: Pooled) -> None:
    """A term without a decision reports how many terms of its hour and earlier come first."""
    other = await _create(backlog, "other", times.HOUR + times.MINUTE)
    await backlog.episodes._open_terms()
    lead, now = backlog.lead, backlog.lead.clock.now()
    count = "SELECT count(*) FROM term WHERE try_at <= $1 AND starts_at < $2 AND pool_task <> $3"
    async with lead.database.connection() as connection:
        position = await seats.terms_before(connection, other, now)
    rows = await lead.rows(count, now, START + 2 * times.HOUR, other)
    assert position == ("europe", rows[0][0])
    assert 200 < rows[0][0] < 1000
