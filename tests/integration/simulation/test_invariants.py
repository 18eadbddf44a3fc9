"""The checks of a simulated world find tampered tables."""

from __future__ import annotations

from typing import Any

import pytest

from lead.simulation import invariants
from lead.simulation.invariants import NAMES
from lead.simulation.scenario import Scenario, named_scenario
from lead.simulation.world import simulate
from node.model import times

QUIET = {"days": 0.02, "faults": {}, "settle": 20 * times.MINUTE}
TWICE = """
WITH twice AS (
    SELECT pool_task, term, min(node) AS node FROM seat WHERE lost_at IS NULL
    GROUP BY pool_task, term HAVING count(*) > 1 LIMIT 1
)
UPDATE seat SET node = twice.node FROM twice
WHERE seat.pool_task = twice.pool_task AND seat.term = twice.term
"""
BEYOND = """
UPDATE seat SET place = 99 WHERE (task_id, place) = (SELECT task_id, place FROM seat LIMIT 1)
"""
WITHOUT_A_REASON = "WITH gone AS (DELETE FROM seat) UPDATE term SET reason = NULL"
IN_NO_TERM = "DELETE FROM term"
AT_ONCE = """
UPDATE run
SET
    state = 'running', lane = NULL, participant = 0, scheduling_class = 'exclusive',
    starts_at = latest.at, ends_at = latest.at + interval '1 minute'
FROM (SELECT max(ends_at) AS at FROM run) AS latest
WHERE id IN (SELECT id FROM run ORDER BY id LIMIT 2)
"""
TOO_EARLY = """
UPDATE run
SET starts_at = starts_at + interval '2 days', ends_at = ends_at + interval '2 days', lane = NULL
WHERE id = (SELECT id FROM run WHERE state = 'finished' LIMIT 1)
"""
STUCK = """
UPDATE run SET state = 'booked', lane = NULL
WHERE id = (SELECT id FROM run WHERE state = 'finished' LIMIT 1)
"""
LETTER = """
INSERT INTO outbox (node, kind, message, created_at, next_at)
VALUES ('a', 'part', '{}', '2026-01-05', '2036-01-01')
"""
STILL_SEARCHED = "UPDATE term SET try_at = over_at"
MEASURED_TWICE = "UPDATE seat SET node = (SELECT min(node) FROM seat)"
GAP = """
INSERT INTO gap (id, task_id, first_slot, last_slot, slots, reason, told_at)
SELECT id, task_id, slot, slot, 1, 'it was away', slot FROM run WHERE state = 'finished' LIMIT 1
"""
PLANTED_IN_WORLDS = {
    "seated_twice",
    "terms",
    "measured_too_often",
    "in_no_term",
    "in_a_gap",
    "delivered",
}
"""The invariants that are planted here, and not among those of chaos."""
HELD = "UPDATE exchange SET state = 'held' WHERE id = (SELECT id FROM exchange LIMIT 1)"


def _pools() -> Scenario:
    """Return the scenario of pools without faults, for half an hour."""
    return Scenario.model_validate(named_scenario("pools").model_dump(by_alias=True) | QUIET)


def _small() -> Scenario:
    """Return the small scenario without faults, for a quarter of an hour."""
    changes = QUIET | {"days": 0.012}
    return Scenario.model_validate(named_scenario("small").model_dump(by_alias=True) | changes)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (TWICE, "seated_twice"),
        (BEYOND, "seated_twice"),
        (WITHOUT_A_REASON, "is empty without a reason"),
        (STILL_SEARCHED, "its node search still runs"),
        (MEASURED_TWICE, "measured_too_often"),
        (IN_NO_TERM, "is in no term"),
    ],
)
@pytest.mark.nightly
def test_wrong_seats_are_found(monkeypatch: pytest.MonkeyPatch, statement: str, words: str) -> None:
    """Each way of tampering with seats before the last check gives its violation."""
    _found(monkeypatch, _pools(), statement, words)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (AT_ONCE, "booked for the same time"),
        (TOO_EARLY, "before its start"),
        (STUCK, "(due "),
        (GAP, "in_a_gap"),
        (LETTER, "could not deliver message"),
        (HELD, "still holds exchange"),
    ],
)
@pytest.mark.nightly
def test_wrong_runs_are_found(monkeypatch: pytest.MonkeyPatch, statement: str, words: str) -> None:
    """Each way of tampering with runs before the last check gives its violation."""
    _found(monkeypatch, _small(), statement, words)


def _found(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, statement: str, words: str) -> None:
    check = invariants.check

    async def tampered(world: Any) -> None:
        for host in world.hosts:
            host.store.write("SET session_replication_role = replica")
            host.store.spoil("ALTER TABLE seat DROP CONSTRAINT IF EXISTS seat_pkey CASCADE")
            for index in host.store.read(
                "SELECT indexname AS name FROM pg_indexes WHERE tablename = 'seat'"
            ):
                host.store.write(f"DROP INDEX {index['name']}")
            host.store.write(statement)
        await check(world)

    monkeypatch.setattr(invariants, "check", tampered)
    violations = simulate(scenario).violations
    assert any(words in violation for violation in violations), violations


@pytest.mark.nightly
def test_a_quiet_world_gives_all_seats() -> None:
    """A world without faults has no violations and delivers every promised run."""
    report = simulate(_pools())
    assert report.violations == ()
    assert report.invariants == NAMES
    assert report.promised > 40
    assert report.delivered == report.promised
