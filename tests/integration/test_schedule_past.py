"""The schedule as it stood, and what has changed since: over HTTP, with real bookings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.model import times
from node.model.times import HOUR, MINUTE, format_instant
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import asker, served
from tests.support.served_pairs import Pair, paired

_FINISHED = """
    WITH made AS (
        INSERT INTO task (
            id, lead, test, spec, scheduling_class, duration, participants, participant, schedule,
            created_at
        )
        VALUES (
            gen_random_uuid(), $2, 'idle', '{}', 'background-multi', interval '2 min',
            '[{"node": "x", "name": "a"}]', 0, '{}', $1
        )
        RETURNING id
    ),

    decided AS (
        INSERT INTO exchange (id, task_id, state, lease_epoch, held_at, expires_at, decided_at)
        SELECT
            gen_random_uuid(), id, 'committed', 1, $1::timestamptz, $1::timestamptz,
            $1::timestamptz + interval '1 min'
        FROM made
        RETURNING id, task_id
    )

    INSERT INTO run (
        id, task_id, exchange_id, slot, attempt, participant, scheduling_class, priority, starts_at,
        ends_at, state, started_at, finished_at, created_at, changed_at
    )
    SELECT
        gen_random_uuid(), task_id, id, $1::timestamptz, 1, 0, 'background-multi', 0,
        $1::timestamptz + interval '10 min', $1::timestamptz + interval '12 min', 'finished',
        $1::timestamptz + interval '10 min', $1::timestamptz + interval '13 min', $1, $1
    FROM decided
"""
SPAN = f"from={format_instant(START)}&to={format_instant(START + 12 * HOUR)}"


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Serve two nodes, of which one can plan."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with (
        asker("a", await new_database(), clock, tmp_path / "a") as a,
        served("b", await new_database(), clock, tmp_path / "b") as b,
    ):
        yield await paired(a, b, clock)


async def booked(pair: Pair, at: int | None = None) -> dict[str, str]:
    """Return the runs of the span with their states, now or as they were."""
    past = "" if at is None else f"&as_of={format_instant(at)}"
    status, answer = await pair.a.ask("GET", f"/v1/schedule?{SPAN}{past}")
    assert status == 200, answer
    assert answer["as_of"] == (None if at is None else format_instant(at))
    return {run["run"]: run["state"] for run in answer["items"]}


async def changed(pair: Pair, since: int, until: int | None = None) -> dict[str, Any]:
    """Return what has changed, by run."""
    to = "" if until is None else f"&until={format_instant(until)}"
    path = f"/v1/schedule/changes?{SPAN}&since={format_instant(since)}{to}"
    status, answer = await pair.a.ask("GET", path)
    assert (status, answer["complete"]) == (200, True), answer
    return {change["run"]: change for change in answer["items"]}


@pytest.mark.nightly
async def test_the_past_is_told(pair: Pair, clock: ManualClock) -> None:
    """The schedule of an earlier time shows what it showed then, whatever became of the runs."""
    empty = clock.now()
    clock.advance(MINUTE)
    task = await pair.book(2)
    before, then = await booked(pair), clock.now()
    assert list(before.values()) == ["scheduled", "scheduled"]
    clock.advance(MINUTE)
    await pair.a.ask("DELETE", f"/v1/tasks/{task}")
    assert set((await booked(pair)).values()) == {"cancelled"}

    assert await booked(pair, empty) == {}
    assert await booked(pair, then) == before
    assert await booked(pair, clock.now()) == await booked(pair)

    added = await changed(pair, empty, then)
    assert {run: added[run]["change"] for run in added} == dict.fromkeys(before, "added")
    lost = await changed(pair, then)
    assert lost.keys() == before.keys()
    for change in lost.values():
        assert (change["change"], change["headline"]) == ("cancelled", "idle  a, b"), change
        assert change["reason"]
        assert change["changed_at"] == format_instant(clock.now())
    assert await changed(pair, empty) == {}
    for wrong in ("since=2027-01-01T00:00:00Z", f"until={format_instant(clock.now() + 1)}"):
        assert (await pair.a.ask("GET", f"/v1/schedule/changes?{wrong}"))[0] == 422
    assert (await pair.a.ask("GET", "/v1/schedule?as_of=2027-01-01T00:00:00Z"))[0] == 422


async def test_a_run_had_each_state_at_its_time(pair: Pair, clock: ManualClock) -> None:
    """A run that is over was held, scheduled, running and merging before."""
    await pair.a.rows(_FINISHED, clock.now(), pair.a.node.card.identity)
    begun = clock.now()
    clock.advance(20 * MINUTE)
    seen = {}
    for minutes in (-1, 0, 5, 11, 12, 14):
        runs = await booked(pair, begun + minutes * MINUTE)
        seen[minutes] = list(runs.values())
    assert seen == {
        -1: [],
        0: ["held"],
        5: ["scheduled"],
        11: ["running"],
        12: ["merging"],
        14: ["finished"],
    }


async def test_displaced_and_moved_runs_are_told(pair: Pair, clock: ManualClock) -> None:
    """A run that gave way is displaced by another one, or moved once its slot has time again."""
    document = {
        "test": {"type": "idle", "spec": {"duration": "PT1M", "class": "exclusive"}},
        "schedule": {"start": format_instant(START + 2 * HOUR), "slip": "PT10M"},
    }
    await pair.a.ask("POST", "/v1/tasks", document)
    await pair.plan()
    clock.advance(5 * MINUTE)
    (loser,) = await booked(pair)
    then = clock.now()
    clock.advance(MINUTE)
    schedule = {"start": format_instant(START + 2 * HOUR), "slip": "PT0S"}
    urgent = {**document, "priority": 10, "schedule": schedule}
    await pair.a.ask("POST", "/v1/tasks", urgent)
    await pair.plan()
    between = await changed(pair, then)
    assert between[loser]["change"] == "displaced"
    assert "displaced by a run of higher priority" in between[loser]["reason"]
    winner = between.pop(between[loser]["displaced_by"])
    assert (winner["change"], set(between)) == ("added", {loser})
    assert await booked(pair, then) == {loser: "scheduled"}

    await pair.a.node.outbox.run_once()
    await pair.lead.outbox.run_once()
    clock.advance(5 * MINUTE)
    await pair.plan()
    after = await changed(pair, then)
    assert after.pop(winner["run"])["change"] == "added"
    (moved,) = after.values()
    assert moved["change"] == "moved", moved
    assert moved["was_starts_at"] == format_instant(START + 2 * HOUR)
    assert times.parse_instant(moved["starts_at"]) >= START + 2 * HOUR + MINUTE
    assert "displaced by a run of higher priority" in moved["reason"]
