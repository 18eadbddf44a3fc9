"""The ledger never keeps less than nothing of a run, whatever becomes of it: the real trigger."""

from __future__ import annotations

import random
from uuid import UUID

from node.model import times
from node.store.database import Connection
from tests.support.clocks import START

MANY = 150
TOOK_PLACE = ("finished", "failed", "cancelled")
ENDS = (*TOOK_PLACE, "missed", "displaced")

_TASK = """
INSERT INTO task (
    id, lead, test, spec, scheduling_class, duration, participants, created_at
) VALUES ($1, 'x', 'throughput', '{}', 'exclusive', interval '1 hour', '[]', now())
"""
_RUNS = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, created_at,
    changed_at
)
SELECT id, $2, starts_at, 1, 'exclusive', 0, starts_at, ends_at, 'running', starts_at, starts_at
FROM unnest($1::uuid [], $3::timestamptz [], $4::timestamptz []) AS r (id, starts_at, ends_at)
"""
_CHARGES = """
INSERT INTO charge (
    campaign_id, run_id, participant, node, starts_at, ends_at, weight, bytes, cause, made_at
)
SELECT 1, id, 0, 'x', starts_at, ends_at, weight, bytes, 'booked', starts_at
FROM
    unnest($1::uuid [], $2::timestamptz [], $3::timestamptz [], $4::integer [], $5::bigint [])
    AS c (id, starts_at, ends_at, weight, bytes)
WHERE weight > 0 OR bytes > 0
"""
_PARTS = """
INSERT INTO part (run_id, participant, name, reason, moved_bytes)
SELECT id, 0, 'x', 'so', moved FROM unnest($1::uuid [], $2::bigint []) AS p (id, moved)
WHERE moved >= 0
"""
_END = """
UPDATE run SET state = e.state::run_state, reason = 'so', finished_at = e.at, changed_at = e.at
FROM unnest($1::uuid [], $2::text [], $3::timestamptz []) AS e (id, state, at)
WHERE run.id = e.id
"""
_NET = """
SELECT
    sum(bytes)::bigint AS bytes,
    sum(weight * extract(EPOCH FROM ends_at - starts_at) * 1000000)::bigint AS time
FROM charge WHERE run_id = $1
"""
_LOWEST_HOUR = "SELECT min(bytes), min(amount) FROM charge_hour"


async def test_no_correction_takes_more_than_was_charged(rolled_back: Connection) -> None:
    """Expected, less given back, plus measured: never below zero, and the measured if there is."""
    rng = random.Random(5)
    task, runs = UUID(int=1), [UUID(int=number) for number in range(1, MANY + 1)]
    starts = [START + number * 7 * times.MINUTE for number in range(MANY)]
    ends = [start + rng.randint(1, 7 * 3600) * times.SECOND for start in starts]
    expected = [rng.choice((0, 1, 3, 10**6, 10**14)) for _ in runs]
    measured = [rng.choice((-1, -1, 0, 2, 10**6, 10**14)) for _ in runs]
    weights = [rng.choice((0, 125, 1000) if it < 0 else (125, 1000)) for it in measured]
    states = [rng.choice(ENDS) for _ in runs]
    ended = [rng.randint(s - times.HOUR, e + times.HOUR) for s, e in zip(starts, ends, strict=True)]
    await rolled_back.execute(_TASK, task)
    await rolled_back.execute(_RUNS, runs, task, starts, ends)
    await rolled_back.execute(_CHARGES, runs, starts, ends, weights, expected)
    early = [run for run in runs if rng.random() < 0.5]
    of = dict(zip(runs, measured, strict=True))
    await rolled_back.execute(_PARTS, early, [of[run] for run in early])
    await rolled_back.execute(_END, runs, states, ended)
    late = [run for run, state in zip(runs, states, strict=True) if state == "failed"]
    await rolled_back.execute(
        _PARTS, [r for r in late if r not in early], [of[run] for run in late if run not in early]
    )
    await rolled_back.execute(_END, late, ["finished"] * len(late), [START] * len(late))
    known = {*early, *late}
    for run, weight, most, state in zip(runs, weights, expected, states, strict=True):
        [(net, seats)] = await rolled_back.fetch(_NET, run)
        if not weight and not most:
            assert net is None
        elif state in TOOK_PLACE and run in known and of[run] >= 0:
            assert net == of[run]
        else:
            assert 0 <= net <= most
            assert net == 0 or state in TOOK_PLACE
        assert seats is None or seats >= 0
    lowest = (await rolled_back.fetch(_LOWEST_HOUR))[0]
    assert min(lowest) >= 0
