"""Sums of meshes are those of their slots, whatever happens to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest

from node.model import times
from node.store import meshes
from node.store.database import PostgresDatabase
from tests.conftest import NewDatabase
from tests.support.clocks import START

DAYS = 3
MINUTE = times.MINUTE
OPEN = ("waiting", "booked", "set-aside", "running", "merging")
OVER = ("finished", "failed", "missed", "cancelled", "displaced", "unplaced")
ACTS = (
    *["runs"] * 6, *["change"] * 6, *["gap"] * 2,
    "purge", "no gap", "end", "finish", "reopen", "edit", "delete", "new",
)  # fmt: skip
USERS = ("ann", "bob", None)

_NODE = """
INSERT INTO node (identity, name, url, address, is_self, added_at)
VALUES ('ed25519:a', 'a', NULL, '192.0.2.1', true, now())
"""
_TASK = """
INSERT INTO task (
    id, lead, test, spec, scheduling_class, duration, participants, reference, requester, created_at
)
VALUES (
    $1, 'ed25519:a', 'idle', '{}', 'background', interval '1 s', '[]',
    jsonb_build_object('mesh', $2::text, 'key', $3::text), $4, now()
)
"""
_RUN = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, reason,
    freed, created_at, changed_at
)
SELECT
    gen_random_uuid(), task_id, slot, attempt, 'background', 0, slot, slot + interval '1 s', state,
    reason, freed, slot, changed_at
FROM unnest($1::uuid [], $2::timestamptz [], $3::integer [], $4::run_state [], $5::text [],
    $6::boolean [], $7::timestamptz [])
AS given (task_id, slot, attempt, state, reason, freed, changed_at)
ON CONFLICT (task_id, slot, attempt) DO NOTHING
"""
_CHANGE = """
UPDATE run SET state = $3::run_state, reason = $4, freed = $5, changed_at = $6
WHERE id IN (SELECT id FROM run WHERE task_id = $1 AND slot >= $2 ORDER BY slot LIMIT $7)
"""
_PURGE = """
DELETE FROM run WHERE id IN (SELECT id FROM run WHERE slot < $1 ORDER BY starts_at, id LIMIT $2)
"""
_EDIT = """
UPDATE task SET
    requester = $2,
    reference = jsonb_build_object('mesh', $3::text, 'key', reference -> 'key')
WHERE id = $1
"""
_STATE = "UPDATE task SET state = $2::task_state, ended_at = $3 WHERE id = $1"
_GAP = """
INSERT INTO gap (id, task_id, first_slot, last_slot, slots, reason, told_at)
VALUES (gen_random_uuid(), $1, $2, $3, $4, $5, now())
"""
_DIRECTLY = """
SELECT
    key, outcome,
    CASE WHEN outcome = 'missing' THEN state END,
    CASE WHEN outcome <> 'open' THEN cause END,
    sum(slots)::bigint
FROM (
    SELECT key, outcome, state, cause, 1 AS slots
    FROM mesh_delivery
    WHERE mesh = $1 AND slot >= $2 AND slot < $3 AND ($4::text IS NULL OR requester = $4)
    UNION ALL
    SELECT
        key, 'missing', 'unplaced', cause,
        slots_before($3, first_slot, last_slot, slots)
        - slots_before($2, first_slot, last_slot, slots)
    FROM mesh_gap
    WHERE mesh = $1 AND last_slot >= $2 AND first_slot < $3 AND ($4 IS NULL OR requester = $4)
) AS told
WHERE slots > 0
GROUP BY 1, 2, 3, 4
"""
_EXAMPLES = """
SELECT reason FROM mesh_delivery
WHERE mesh = $1 AND slot >= $2 AND slot < $3 AND state = $4 AND cause = $5
UNION ALL
SELECT reason FROM mesh_gap
WHERE mesh = $1 AND last_slot >= $2 AND first_slot < $3 AND $4 = 'unplaced' AND cause = $5
"""

Outcomes = dict[tuple[str, str, str | None, str | None], int]


@pytest.fixture
async def database(new_database: NewDatabase) -> AsyncIterator[PostgresDatabase]:
    """A database that knows its own node."""
    made = PostgresDatabase(await new_database())
    await made.open()
    async with made.connection() as connection:
        await connection.execute(_NODE)
    yield made
    await made.close()


class Meshes:
    """The tasks of two meshes, and what happens to them at random."""

    def __init__(self, database: PostgresDatabase, rng: Random) -> None:
        """Begin without tasks."""
        self._database = database
        self._rng = rng
        self.tasks: list[UUID] = []
        self.did: Counter[str] = Counter()

    def instant(self) -> int:
        """Return a whole ten minutes of the days in which the slots are."""
        return START + self._rng.randrange(DAYS * 144) * 10 * MINUTE

    def span(self) -> tuple[int, int]:
        """Return two instants, often of whole hours, sometimes between the slots."""
        grain = self._rng.choice((times.HOUR, times.HOUR, 10 * MINUTE, 7 * MINUTE, times.DAY))
        ends = sorted(self.instant() // grain * grain for _ in range(2))
        return ends[0], ends[1] + grain

    def _drawn(self) -> tuple[str, str, bool, int]:
        rng = self._rng
        reason = f"{rng.choice('bc')}: no PT{rng.randrange(9)}S free, {rng.randrange(3)} times"
        freed = rng.random() < 0.2
        return rng.choice(OPEN + OVER + OVER + ("finished",) * 9), reason, freed, self.instant()

    async def happen(self, connection: Any) -> None:
        """Let something happen."""
        rng = self._rng
        task = rng.choice(self.tasks)
        act = rng.choice(ACTS)
        self.did[act] += 1
        if act == "runs":
            await self._add_runs(connection)
        elif act == "change":
            state, reason, freed, changed = self._drawn()
            many = rng.choice((1, 5))
            await connection.execute(
                _CHANGE, task, self.instant(), state, reason, freed, changed, many
            )
        elif act == "purge":
            await connection.execute(_PURGE, START + rng.randrange(40) * times.HOUR, 3)
        elif act == "gap":
            await self._add_gap(connection, task)
        elif act == "no gap":
            await connection.execute("DELETE FROM gap WHERE first_slot < $1", self.instant())
        elif act == "delete" and len(self.tasks) > 4:
            self.tasks.remove(task)
            await connection.execute("DELETE FROM task WHERE id = $1", task)
        elif act in {"delete", "new"}:
            await self.add_task(connection)
        else:
            await self._change_task(connection, task, act)

    async def _change_task(self, connection: Any, task: UUID, act: str) -> None:
        if act == "edit":
            user, mesh = self._rng.choice(USERS), self._rng.choice(("lab", "lab", "other"))
            await connection.execute(_EDIT, task, user, mesh)
            return
        state = {"end": "cancelled", "finish": "finished", "reopen": "active"}[act]
        ended = None if act == "reopen" else self.instant()
        await connection.execute(_STATE, task, state, ended)

    async def add_task(self, connection: Any) -> None:
        """Create a task with one of a few keys."""
        rng = self._rng
        self.tasks.append(uuid4())
        mesh, key = rng.choice(("lab", "lab", "other")), f"x/a/n{rng.randrange(6)}"
        await connection.execute(_TASK, self.tasks[-1], mesh, key, rng.choice(USERS))

    async def _add_runs(self, connection: Any) -> None:
        rows = []
        for _ in range(self._rng.choice((1, 12))):
            state, reason, freed, changed = self._drawn()
            attempt = self._rng.choice((1, 1, 1, 2, 3))
            task = self._rng.choice(self.tasks)
            rows.append((task, self.instant(), attempt, state, reason, freed, changed))
        await connection.execute(_RUN, *map(list, zip(*rows, strict=True)))

    async def _add_gap(self, connection: Any, task: UUID) -> None:
        first, last = self.span()
        known = "SELECT EXISTS (SELECT FROM gap WHERE task_id = $1)"
        if not await connection.fetchval(known, task):
            slots = (last - first) // (10 * MINUTE) + 1
            await connection.execute(_GAP, task, first, last, slots, "no lead for 5 min")

    async def check(self) -> None:
        """Compare what is read with the slots themselves, in any span and for any user."""
        mesh, user, (since, until) = "lab", self._rng.choice(USERS), self.span()
        async with self._database.connection() as connection:
            direct = await connection.fetch(_DIRECTLY, mesh, since, until, user)
            by_key: Outcomes = {tuple(row)[:4]: row[4] for row in direct}
            totals: Counter[tuple[str, str | None, str | None]] = Counter()
            for (_, *what), slots in by_key.items():
                totals[tuple(what)] += slots  # type: ignore[index]
            read = await meshes.outcomes(connection, mesh, since, until, user)
            assert {(o.outcome, o.state, o.cause): o.slots for o in read} == totals
            keys = "x/a/n1", "x/a/n4"
            pages = await meshes.outcomes_by_key(connection, mesh, since, until, *keys, user)
            assert {
                (key, o.outcome, o.state, o.cause): o.slots for key, of in pages.items() for o in of
            } == {what: slots for what, slots in by_key.items() if keys[0] <= what[0] <= keys[1]}
            for o in read:
                if o.outcome == "missing" and user is None:
                    told = await connection.fetch(_EXAMPLES, mesh, since, until, o.state, o.cause)
                    assert o.example in {row[0] for row in told} | {o.cause}
            worst = await meshes.worst_keys(connection, mesh, since, until, 2, user)
        assert worst == _worst(by_key)[:2]


def _worst(by_key: Outcomes) -> list[str]:
    due: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for (key, outcome, _, _), slots in by_key.items():
        due[key] += slots * (outcome != "open")
        missing[key] += slots * (outcome == "missing")
    bad = [key for key in due if missing[key]]
    return sorted(bad, key=lambda key: ((due[key] - missing[key]) / due[key], key))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.nightly
async def test_sums_are_those_of_the_slots(database: PostgresDatabase, seed: int) -> None:
    """After anything, summed up or not, all counts are those of the slots one by one."""
    rng = Random(seed)
    world = Meshes(database, rng)
    async with database.connection() as connection:
        for _ in range(6):
            await world.add_task(connection)
    for _ in range(60):
        async with database.transaction() as connection:
            for _ in range(rng.randrange(1, 6)):
                await world.happen(connection)
        if rng.random() < 0.5:
            await meshes.sum_up_all(database)
        await world.check()
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM mesh_day") > 20
        await meshes.sum_up_all(database)
        assert not await connection.fetchval("SELECT count(*) FROM mesh_recount")
    assert len(world.did) == 11


async def test_what_is_not_committed_yet_is_summed_up_later(database: PostgresDatabase) -> None:
    """An outcome of a transaction that ends after the summing is counted, and waits for nobody."""
    task = uuid4()
    async with database.connection() as connection:
        await connection.execute(_TASK, task, "lab", "x/a/b", None)
    span = START, START + times.DAY

    async def counted() -> dict[str, int]:
        async with database.connection() as connection:
            read = await meshes.outcomes(connection, "lab", *span, None)
        return {outcome.outcome: outcome.slots for outcome in read}

    def run(minute: int, attempt: int, state: str) -> list[list[object]]:
        slot = START + minute * MINUTE
        return [[it] for it in (task, slot, attempt, state, "because", False, slot)]

    async with database.transaction() as early:
        await early.execute(_RUN, *run(0, 1, "failed"))
        async with database.transaction() as late:
            await late.execute(_RUN, *run(0, 2, "finished"))
            await meshes.sum_up_all(database)
            async with database.connection() as connection:
                await connection.execute(_RUN, *run(1, 1, "missed"))
            await meshes.sum_up_all(database)
            assert await counted() == {"missing": 1}
        await meshes.sum_up_all(database)
        assert await counted() == {"missing": 1, "delivered": 1}
    assert await counted() == {"missing": 1, "delivered": 1}
    await meshes.sum_up_all(database)
    assert await counted() == {"missing": 1, "delivered": 1}


async def test_one_sums_up_at_a_time(database: PostgresDatabase) -> None:
    """While one process sums up, another one does nothing; a locked task is left for later."""
    tasks = [uuid4(), uuid4()]
    async with database.connection() as connection:
        for task in tasks:
            await connection.execute(_TASK, task, "lab", f"x/a/{task}", None)
            slot = START
            await connection.execute(
                _RUN, [task], [slot], [1], ["finished"], [None], [False], [slot]
            )
    left = "SELECT count(*) FROM mesh_recount"
    async with database.transaction() as first:
        assert await meshes.sum_up(first, 1) == 1
        await meshes.sum_up_all(database)
        async with database.connection() as connection:
            assert await connection.fetchval(left) == 2
    async with database.transaction() as other:
        await other.execute("SELECT FROM task WHERE id = $1 FOR UPDATE", tasks[1])
        await meshes.sum_up_all(database)
        async with database.connection() as connection:
            assert await connection.fetchval(left) == 1
            read = await meshes.outcomes(connection, "lab", START, START + times.DAY, None)
            assert [outcome.slots for outcome in read] == [2]
    await meshes.sum_up_all(database)
    async with database.connection() as connection:
        assert await connection.fetchval(left) == 0
