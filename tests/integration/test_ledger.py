"""The ledger at the lead: charges with decisions, reversals, moves, and hourly sums."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.ids import TaskId, run_id
from node.model.wire.participants import Introduction
from node.model.wire.tasks import Schedule, TaskPatch
from node.store import runs
from node.store.runs import KeptPart
from tests.support.clocks import START
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
SEAT_SECOND = 1000 * times.SECOND
_CHARGES = """
SELECT
    node.name, charge.starts_at, charge.ends_at, charge.weight, charge.cause::text,
    campaign.name AS campaign
FROM charge
INNER JOIN node ON charge.node = node.identity
INNER JOIN campaign ON charge.campaign_id = campaign.id
ORDER BY charge.id, node.name
"""
_SUMS = """
SELECT hour, campaign_id, node, amount FROM charge_hour ORDER BY hour, campaign_id, node
"""
_RECOMPUTED = """
SELECT
    hour, campaign_id, node, sum(weight * extract(
        EPOCH FROM least(ends_at, hour + interval '1 hour') - greatest(starts_at, hour)
    ) * 1000000)::bigint AS amount
FROM charge
INNER JOIN generate_series($1::timestamptz, $1 + interval '30 hours', interval '1 hour') AS hour
    ON charge.starts_at < hour + interval '1 hour' AND charge.ends_at > hour
GROUP BY hour, campaign_id, node
ORDER BY hour, campaign_id, node
"""
_NEW_CAMPAIGN = """
INSERT INTO campaign (name, created_at, changed_at) VALUES ($1, now(), now())
"""


async def _planned(lead: Site, *others: Site, **options: Any) -> tuple[Introduction, UUID]:
    """Create a task of these nodes and book its first run; return both."""
    options.setdefault("schedule", Schedule(start=HOUR, slip=0))
    task = introduction((lead, *others), **options)
    for site in (lead, *others):
        await site.keep(task, lead)
    await lead.plan()
    return task, run_id(TaskId(task.task), HOUR, 1)


async def _charges(site: Site) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await site.rows(_CHARGES)]


async def _net(site: Site) -> int:
    """Return the net charges, in thousandths of a seat times microseconds."""
    return sum((end - start) * weight for _, start, end, weight, *_ in await _charges(site))


async def _assert_sums(site: Site) -> None:
    """Assert that the hourly sums match the charges."""
    day = START - START % times.DAY
    sums = [tuple(row) for row in await site.rows(_SUMS)]
    assert sums == [tuple(row) for row in await site.rows(_RECOMPUTED, day)]


async def test_a_decision_is_charged_on_every_node(world: World) -> None:
    """An exclusive run is charged as one whole seat on each of its nodes, at its lead alone."""
    a, b = await world.two()
    await _planned(a, b)
    span = (HOUR, HOUR + DURATION, 1000, "booked", "default")
    assert await _charges(a) == [("a", *span), ("b", *span)]
    assert await b.rows("SELECT FROM charge") == []
    await _assert_sums(a)


async def test_classes_weigh_differently(world: World) -> None:
    """A normal run is charged one lane of each node, a background run nothing."""
    a, b = await world.site("a", lanes=3), await world.site("b")
    await _planned(a, b, scheduling_class=SchedulingClass.NORMAL)
    await _planned(a, b, scheduling_class=SchedulingClass.BACKGROUND)
    assert [(row[0], row[3]) for row in await _charges(a)] == [("a", 333), ("b", 125)]


async def test_what_is_cancelled_is_given_back(world: World) -> None:
    """A run cancelled before its start has both charges and reversals, which add up to 0."""
    a, b = await world.two()
    _, run = await _planned(a, b)
    await a.node.termination.cancel_run(run)
    assert [(row[3], row[4]) for row in await _charges(a)] == [
        (1000, "booked"),
        (1000, "booked"),
        (-1000, "unused"),
        (-1000, "unused"),
    ]
    assert await _net(a) == 0
    await _assert_sums(a)


async def test_an_early_end_gives_back_the_rest(world: World) -> None:
    """Each node is charged up to the end of its own part."""
    a, b = await world.two()
    _, run = await _planned(a, b)
    a.clock.advance(HOUR - a.clock.now() + times.SECOND)
    ends = HOUR + 20 * times.SECOND, HOUR + 50 * times.SECOND
    for site in (a, b):
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, site.clock.now())
    a.clock.advance(times.MINUTE)
    for place, (site, end) in enumerate(zip((a, b), ends, strict=True)):
        part = KeptPart(place, site.name, {"slept_ms": 1.0}, None, HOUR, end)
        await site.node.collector.keep_own(run, part)
    await world.settle()
    assert await a.state(run) == "finished"
    reversals = sorted(row for row in await _charges(a) if row[4] == "unused")
    assert [(row[0], row[1]) for row in reversals] == [("a", ends[0]), ("b", ends[1])]
    assert await _net(a) == 70 * SEAT_SECOND
    await _assert_sums(a)


async def test_what_is_displaced_is_given_back_and_charged_again(world: World) -> None:
    """A displaced run is charged only for the time at which it was placed again."""
    a, b = await world.two()
    low, _ = await _planned(a, b, schedule=Schedule(start=HOUR, slip=20 * times.MINUTE))
    await _planned(b, priority=5)
    await world.settle()
    assert await _net(a) == 0
    await a.plan()
    charges = [row for row in await _charges(a) if row[1] == HOUR + DURATION]
    assert [row[3] for row in charges] == [1000, 1000]
    assert await a.state(run_id(TaskId(low.task), HOUR, 2)) == "scheduled"
    await _assert_sums(a)


async def test_what_was_missed_is_given_back(world: World) -> None:
    """A missed run is not charged."""
    a, b = await world.two()
    _, run = await _planned(a, b)
    a.clock.advance(2 * times.HOUR)
    await a.node.launcher.run_once()
    assert await a.state(run) == "missed"
    assert await _net(a) == 0


async def test_an_edit_to_another_campaign_moves_the_charges(world: World) -> None:
    """The charges of future runs move to the new campaign, and so do their reversals."""
    a, b = await world.two()
    await a.execute(_NEW_CAMPAIGN, "ops")
    await a.node.campaigns.refresh()
    task, run = await _planned(a, b)
    await a.node.editing.edit(task.task, TaskPatch(campaign="ops"))
    await world.settle()
    by_campaign: dict[str, int] = {}
    for *_, weight, _, campaign in await _charges(a):
        by_campaign[campaign] = by_campaign.get(campaign, 0) + weight
    assert by_campaign == {"default": 0, "ops": 2000}
    await a.node.termination.cancel_run(run)
    assert await _net(a) == 0
    assert {row[5] for row in await _charges(a) if row[4] == "unused"} == {"ops"}
    await _assert_sums(a)


async def test_hours_are_summed_up_at_their_borders(world: World) -> None:
    """A run over three hours counts in each of them, and the view names its campaign."""
    a, b = await world.two()
    start = HOUR - HOUR % times.HOUR + 2 * times.HOUR - 10 * times.MINUTE
    schedule = Schedule(start=start, slip=0)
    await _planned(a, b, duration=80 * times.MINUTE, schedule=schedule)
    rows = await a.rows("SELECT * FROM campaign_usage ORDER BY starts_at")
    minutes = [(row["seat_seconds"] / 120, row["nodes"], row["share"]) for row in rows]
    assert minutes == [(10, 2, 1), (60, 2, 1), (10, 2, 1)]
    assert {(row["campaign"], row["level"]) for row in rows} == {("default", 5)}
    await _assert_sums(a)


async def test_the_ledger_is_only_added_to(world: World) -> None:
    """Charges cannot be changed."""
    a, b = await world.two()
    await _planned(a, b)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="only added to"):
        await a.execute("UPDATE charge SET weight = 1")
