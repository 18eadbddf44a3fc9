"""Tasks that ended long ago, for tests of retention."""

from __future__ import annotations

ENDED_TASKS = """
WITH ended AS (
    SELECT
        gen_random_uuid() AS id, gen_random_uuid() AS run, gen_random_uuid() AS exchange,
        CASE WHEN number % 2 = 0 THEN $1 ELSE 'else' END AS lead,
        $2::timestamptz + number * $4::interval AS at, number
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
    SELECT id::text, 'x', id, at FROM ended
)
INSERT INTO outbox (node, kind, message, created_at, next_at)
SELECT 'gone', 'task-end', jsonb_build_object('task', id), at, at FROM ended
"""
"""Tasks with one run each, every other one led here, and what belongs to them.

The parameters: this node's identity, the instant before the first, their number, their distance.
"""
