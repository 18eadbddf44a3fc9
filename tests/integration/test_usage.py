"""The used, booked, and missing time of campaigns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from node.cli.campaigns import CAMPAIGN
from node.model import times
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, asker

IDLE = {"type": "idle", "spec": {"duration": "PT1M", "class": "exclusive"}}
NOW = START + 14 * times.MINUTE
_RUN = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state,
    created_at, changed_at
) VALUES ($1, $2, $3, 1, 'exclusive', 0, $3, $4, $5::run_state, $3, $3)
"""
_CHARGE = """
INSERT INTO charge (
    campaign_id, run_id, participant, node, starts_at, ends_at, weight, cause, made_at
)
SELECT campaign_id, $1, 0, 'ed25519:x', $3, $4, 1000, 'booked', $3 FROM planning WHERE task_id = $2
"""
_TERM = """
INSERT INTO term (pool_task, starts_at, ends_at, over_at, seats, tries, try_at, reason)
VALUES ($1, $2::timestamptz, $2 + interval '1 hour', $2 + interval '1 hour', $3, 1, $2, $4)
"""


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to query, with a token, fourteen minutes after a full hour."""
    clock.move_to(NOW)
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


async def _task(a: Asker, **fields: Any) -> UUID:
    """Create a task of the campaign ops."""
    await a.ask("POST", "/v1/campaigns", {"name": "ops"})
    status, task = await a.ask("POST", "/v1/tasks", {"test": IDLE, "campaign": "ops", **fields})
    assert status == 201, task
    return UUID(task["id"])


async def test_what_is_still_to_come_was_not_had(a: Asker) -> None:
    """Only the past part of the current hour counts as delivered; the rest is booked."""
    task = await _task(a)
    minute = times.MINUTE
    for starts_at, ends_at, state in (
        (NOW - 10 * minute, NOW - 9 * minute, "finished"),
        (NOW - minute, NOW + minute, "running"),
        (NOW + 5 * minute, NOW + 7 * minute, "booked"),
        (NOW + 60 * minute, NOW + 64 * minute, "booked"),
    ):
        run = uuid4()
        await a.rows(_RUN, run, task, starts_at, ends_at, state)
        await a.rows(_CHARGE, run, task, starts_at, ends_at)
    _, ops = await a.ask("GET", "/v1/campaigns/ops")
    assert ops["used"]["delivered_seat_seconds"] == 2 * 60
    assert ops["used"]["booked_seat_seconds"] == (1 + 2 + 4) * 60


async def test_the_time_found_for_a_seat_is_its_next_run(a: Asker) -> None:
    """A pool task reports the start found for a seat as its next run until the runs are booked."""
    await a.ask("POST", "/v1/pools", {"name": "core", "match": {}})
    pool_task = await _task(a, participants={"pool": "core", "k": 1})
    part, starts = await _task(a), [NOW - times.MINUTE, NOW + times.MINUTE, NOW + times.HOUR]
    await a.rows("UPDATE task SET parent = $1, starts = $2 WHERE id = $3", pool_task, starts, part)
    _, task = await a.ask("GET", f"/v1/tasks/{pool_task}")
    assert task["next_run_at"] == times.format_instant(NOW + times.MINUTE)


async def test_who_lacks_seats_waits(a: Asker) -> None:
    """A pool task with empty seats waits for that many seats, with the most frequent reason."""
    await a.ask("POST", "/v1/pools", {"name": "core", "match": {}})
    request = {"pool": "core", "k": 1}
    task = await _task(a, participants=request, schedule={"repeat": "PT1H", "until": "PT12H"})
    for hour, seats, reason in ((0, 3, "taken"), (1, 2, "taken"), (2, 3, "down")):
        await a.rows(_TERM, task, START + hour * times.HOUR, seats, reason)
    _, ops = await a.ask("GET", "/v1/campaigns/ops")
    assert ops["waiting"] == {"runs": 0, "seats": 3, "tasks": 1, "reason": "taken"}
    [column] = [column for column in CAMPAIGN.columns if column.heading == "waits"]
    assert column.cell(ops) == "3 seats: taken"
