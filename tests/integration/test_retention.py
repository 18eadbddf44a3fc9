"""Retention: a year passes through a node, and leaves nothing but what the settings keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node import retention
from node.model import times
from node.retention import Purger, RetentionRule, rules_of
from node.settings import Settings
from node.store.database import Connection
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

PER_DAY = 2
MANY = 365 * PER_DAY
YEAR = """
WITH ended AS (
    SELECT
        gen_random_uuid() AS id, gen_random_uuid() AS run, gen_random_uuid() AS exchange,
        CASE WHEN number % 2 = 0 THEN $1 ELSE 'else' END AS lead,
        $2::timestamptz + number * interval '12 hours' AS at, number
    FROM generate_series(1, $3) AS number
),
tasks AS (
    INSERT INTO task (
        id, lead, state, reason, test, spec, scheduling_class, duration, participants, created_at,
        ended_at
    )
    SELECT
        id, lead, 'finished', 'over', 'idle', '{}', 'normal', interval '1 min', '[]', at, at
    FROM ended
),
agenda AS (
    INSERT INTO planning (task_id, campaign_id, added_at) SELECT id, 1, at FROM ended
),
negotiations AS (
    INSERT INTO negotiation (
        id, task_id, state, lease_epoch, run_ids, opened_at, expires_at, decided_at
    )
    SELECT exchange, id, 'committed', 1, ARRAY[run], at, at, at FROM ended
),
exchanges AS (
    INSERT INTO exchange (id, task_id, state, lease_epoch, held_at, expires_at, decided_at)
    SELECT exchange, id, 'committed', 1, at, at, at FROM ended
),
decisions AS (
    INSERT INTO decision (
        task_id, exchange_id, first_at, decided_at, outcome, sentence, asked, placed, trace
    )
    SELECT id, exchange, at, at, 'booked', 'all', 1, 1, '{}' FROM ended
),
runs AS (
    INSERT INTO run (
        id, task_id, exchange_id, slot, attempt, participant, scheduling_class, priority, starts_at,
        ends_at, state, reason, created_at, changed_at
    )
    SELECT
        run, id, exchange, at, 1, 0, 'normal', 0, at, at + interval '1 min',
        CASE WHEN number % 3 = 0 THEN 'failed' ELSE 'finished' END::run_state, 'over', at, at
    FROM ended
),
parts AS (
    INSERT INTO part (run_id, participant, name, result) SELECT run, 0, 'a', '{}' FROM ended
),
intervals AS (
    INSERT INTO run_interval (run_id, number, starts_at, ends_at)
    SELECT run, 0, at, at + interval '1 min' FROM ended
),
charges AS (
    INSERT INTO charge (
        campaign_id, run_id, participant, node, starts_at, ends_at, weight, cause, made_at
    )
    SELECT 1, run, 0, 'a', at, at + interval '1 min', 1000, 'booked', at FROM ended
),
keys AS (
    INSERT INTO idempotency (key, request_digest, made, created_at)
    SELECT number::text, 'x', id, at FROM ended
)
INSERT INTO outbox (node, kind, message, created_at, next_at)
SELECT 'gone', 'task-end', jsonb_build_object('task', id), at, at FROM ended
"""
"""A year of tasks with one run each, every other one led here, and what belongs to them."""

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
    await site.execute(YEAR, site.identity, site.clock.now(), number)
    await site.execute(DELIVERED)


async def _a_year_ends(world: World) -> Site:
    site = await world.site("a")
    await _end_tasks(site, MANY)
    world.clock.advance(365 * times.DAY)
    return site


async def test_nothing_is_left_of_a_year_of_ended_tasks(world: World) -> None:
    """Ended tasks go with all that depends on them, in steps, by the age that settings name."""
    a = await _a_year_ends(world)
    assert set((await _counts(a)).values()) == {MANY}
    await a.node.purger.run_once()
    left = await _counts(a)
    assert left["part"] == left["run"] == left["run_interval"] == left["archiving"]
    assert left["run"] == pytest.approx(PER_DAY * (30 * 2 / 3 + 90 / 3), abs=4)
    assert left["task"] == pytest.approx(PER_DAY * 90, abs=2)
    assert left["planning"] == left["archive"] == left["destination"] == left["task"]
    assert left["idempotency"] == left["negotiation"] == pytest.approx(PER_DAY, abs=1)
    assert left["charge"] == pytest.approx(PER_DAY * 30, abs=1)
    world.clock.advance(500 * times.DAY)
    await a.node.purger.run_once()
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
    await site.node.purger.run_once()
    assert set((await _counts(site)).values()) == {0}


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
    await Purger(a.database, world.clock, rules).run_once()
    assert max(deleted) == 200
    assert set((await _counts(a)).values()) == {0}
