"""Retention: a year passes through a node, and leaves nothing but what the settings keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node.journal import retention
from node.journal.retention import Purger, RetentionRule, rules_of
from node.model import times
from node.model.taskstate import TaskState
from node.model.wire.participants import TaskEnd
from node.model.wire.tasks import Schedule
from node.runtime.settings import Settings
from node.store.database import Connection
from tests.support.ended_tasks import ENDED_TASKS
from tests.support.worlds import (
    ON_ONE_LOOP,
    Site,
    World,
    book_everywhere,
    hold_everywhere,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP

PER_DAY = 2
MANY = 365 * PER_DAY
DELIVERED = """
WITH measured AS (
    SELECT run.id, task_id, starts_at, row_number() OVER () AS number FROM run
),
destinations AS (
    INSERT INTO destination (id, digest, archiver, spec, label, ordered)
    OVERRIDING SYSTEM VALUE
    SELECT number, number::text, 'http', '{}', 'there', false FROM measured
),
archives AS (
    INSERT INTO archive (id, task_id, place, destination_id, runs, created_at, changed_at)
    SELECT task_id, task_id, 0, number, 'all', starts_at, starts_at FROM measured
)
INSERT INTO archiving (archive_id, destination_id, run_id, edition, outcome, state, created_at)
SELECT task_id, number, id, 1, 'finished', 'delivered', starts_at FROM measured
"""
"""An archive of each task, which has its run."""

RECORDS = (
    *("task", "planning", "negotiation", "exchange", "decision", "run", "part", "run_interval"),
    *("destination", "archive", "archiving", "charge", "charge_hour", "idempotency", "outbox"),
)


async def _counts(site: Site) -> dict[str, int]:
    rows = {table: await site.rows(f"SELECT count(*) FROM {table}") for table in RECORDS}
    return {table: count[0][0] for table, count in rows.items()}


async def _end_tasks(site: Site, number: int) -> None:
    await site.execute(ENDED_TASKS, site.identity, site.clock.now(), number, times.DAY // PER_DAY)
    await site.execute(DELIVERED)


async def _a_year_ends(world: World) -> Site:
    site = await world.site("a")
    await _end_tasks(site, MANY)
    # Autovacuum, which is off in tests, would have done so: plans were made for empty tables.
    await site.execute("ANALYZE")
    world.clock.advance(365 * times.DAY)
    return site


async def test_nothing_is_left_of_a_year_of_ended_tasks(world: World) -> None:
    """Ended tasks go with all that depends on them, in steps, by the age that settings name."""
    a = await _a_year_ends(world)
    assert set((await _counts(a)).values()) == {MANY}
    await a.node.purger.purge(a.node.clock.now())
    left = await _counts(a)
    assert left["part"] == left["run"] == left["run_interval"] == left["archiving"]
    assert left["run"] == pytest.approx(PER_DAY * (30 * 2 / 3 + 90 / 3), abs=4)
    assert left["task"] == pytest.approx(PER_DAY * 90, abs=2)
    assert left["planning"] == left["archive"] == left["destination"] == left["task"]
    assert left["idempotency"] == left["negotiation"] == pytest.approx(PER_DAY, abs=1)
    assert left["charge"] == pytest.approx(PER_DAY * 30, abs=1)
    world.clock.advance(500 * times.DAY)
    await a.node.purger.purge(a.node.clock.now())
    assert set((await _counts(a)).values()) == {0}


async def test_each_record_is_kept_as_long_as_its_setting_says(world: World) -> None:
    """Every setting of retention changes how long its records are kept."""
    usual = {rule.name: rule.keep for rule in rules_of(Settings())}
    names = [name for name in Settings.model_fields if name.startswith("keep_")]
    short: dict[str, Any] = dict.fromkeys(names, times.HOUR)
    site = await world.site("a", **short)
    changed = {rule.name: rule.keep for rule in rules_of(site.node.settings)}
    assert {name for name, keep in usual.items() if keep} == {
        name for name, keep in changed.items() if keep == times.HOUR
    }
    await _end_tasks(site, 3)
    world.clock.advance(2 * times.DAY + 2 * times.HOUR)
    await site.node.purger.purge(site.node.clock.now())
    assert set((await _counts(site)).values()) == {0}


@pytest.mark.nightly
async def test_no_transaction_deletes_more_than_a_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many old records are deleted in many transactions, each of a bounded number."""
    monkeypatch.setattr(retention, "BATCH", 200)
    a = await _a_year_ends(world)
    deleted: list[int] = []

    def counted(rule: RetentionRule) -> RetentionRule:
        async def delete(connection: Connection, before: int, at_most: int) -> int:
            deleted.append(await rule.delete(connection, before, at_most))
            return deleted[-1]

        return replace(rule, delete=delete)

    world.clock.advance(times.DAY)
    rules = [counted(replace(rule, keep=0)) for rule in rules_of(a.node.settings)]
    await Purger(a.node.core, rules).purge(world.clock.now())
    assert max(deleted) == 200
    assert set((await _counts(a)).values()) == {0}


@pytest.mark.nightly
async def test_a_peer_that_ends_tasks_all_day_leaves_a_bounded_number(world: World) -> None:
    """The latest ended tasks of a node stay, booked or not; tasks of others all stay."""
    a, b, c = (
        await world.site("a"),
        await world.site("b", peer_ended_tasks=10),
        await world.site("c"),
    )
    measuring = introduction([a, b])
    [run] = await book_everywhere(measuring, a, [b], [world.clock.now() + times.HOUR])
    foreign = introduction([c, b])
    for lead, task in ((a, measuring), (c, foreign), (b, introduction([b]))):
        if lead is not a:
            await b.keep(task, lead)
        await b.node.termination.cancel_task(task.task)
    await b.execute("UPDATE run SET state = 'running' WHERE id = $1", run)
    latest = []
    for number in range(48):
        world.clock.advance(times.HOUR)
        starts = world.clock.now() + times.MINUTE
        task = introduction([a, b], schedule=Schedule(start=starts))
        await a.node.peer(b.identity).introduce(task.model_copy(update={"participant": 1}))
        if number % 2:
            await hold_everywhere(a, [b], hold_request(task, [starts]))
        end = TaskEnd(task=task.task, state=TaskState.CANCELLED, reason="no longer wanted")
        assert await b.node.termination.apply_task_end(a.identity, end)
        latest.append(task.task)
        if number % 12 == 11:
            await b.node.surplus_purger.purge(world.clock.now())
            left = await b.rows("SELECT id FROM task WHERE lead = $1 ORDER BY ended_at", a.identity)
            assert [row[0] for row in left] == [measuring.task, *latest[-10:]]
    assert await b.state(run) == "running"
    [others] = await b.rows("SELECT count(*) FROM task WHERE lead <> $1", a.identity)
    assert others[0] == 2
