-- claim --
-- The tasks whose next run comes soonest, among those due to be planned. The lease keeps other
-- workers away; its epoch makes a worker that lost it harmless.
WITH due AS (
    SELECT task_id
    FROM planning
    WHERE plan_at <= $1 AND next_run_at < $2 AND (lease_until IS NULL OR lease_until <= $1)
    ORDER BY next_run_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)

UPDATE planning
SET lease_owner = $4, lease_until = $5, lease_epoch = planning.lease_epoch + 1
FROM due, task
WHERE planning.task_id = due.task_id AND task.id = due.task_id
RETURNING
    planning.task_id, planning.next_run_at, planning.planned_to, planning.failures, planning.lease_epoch,
    task.state::text, task.test, task.spec, task.tool, task.tools, task.scheduling_class::text, task.duration,
    task.priority, task.participants, task.participant, task.addresses, task.schedule, task.campaign,
    task.reference, task.created_at;

-- next_due --
SELECT min(greatest(plan_at, lease_until)) FROM planning WHERE plan_at IS NOT NULL AND next_run_at < $1;

-- next_to_come --
-- The first slot beyond those that are near enough to be planned.
SELECT min(next_run_at) FROM planning WHERE plan_at IS NOT NULL AND next_run_at >= $1;

-- waiting --
SELECT slot, attempt FROM run WHERE task_id = $1 AND state = 'waiting' ORDER BY slot LIMIT $2;

-- counted_runs --
-- Runs that use up the task's max_runs.
SELECT count(*) FROM run
WHERE task_id = $1 AND NOT (state = ANY($2::run_state []));

-- open_negotiation --
INSERT INTO negotiation (id, task_id, lease_epoch, run_ids, opened_at, expires_at)
SELECT $1, task_id, $3, $4, $5, $6
FROM planning WHERE task_id = $2 AND lease_epoch = $3
RETURNING id;

-- decide_commit --
-- The commit point. Refused if the lease was lost, the time is over or the task has ended.
UPDATE negotiation
SET state = 'committed', commit_message = $3, decided_at = $2
FROM task, planning
WHERE
    negotiation.id = $1
    AND negotiation.state = 'open'
    AND negotiation.expires_at > $2
    AND task.id = negotiation.task_id
    AND task.state = 'active'
    AND planning.task_id = negotiation.task_id
    AND planning.lease_epoch = negotiation.lease_epoch
RETURNING negotiation.id;

-- lock_task --
-- A cancel that is under way comes before or after the decision, never in its middle.
SELECT id FROM task WHERE id = $1 FOR SHARE;

-- ended --
-- Of these runs, those that are over at the lead.
SELECT id FROM run WHERE id = ANY($1::uuid []) AND state = ANY($2::run_state []);

-- decide_abort --
UPDATE negotiation SET state = 'aborted', decided_at = $2 WHERE id = $1 AND state = 'open' RETURNING id;

-- keep_led_exchange --
-- Where the lead takes no part itself: its record of the exchange and of the runs.
INSERT INTO exchange (id, task_id, state, lease_epoch, data, held_at, expires_at, decided_at)
VALUES ($1, $2, 'committed', $3, $4, $5, $5, $5)
ON CONFLICT (id) DO NOTHING;

-- keep_led_runs --
INSERT INTO run (
    id, task_id, exchange_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state,
    created_at, changed_at
)
SELECT wanted.id, $1, $2, wanted.slot, wanted.attempt, $3::scheduling_class, $4, wanted.starts_at, wanted.ends_at, 'booked', $5, $5
FROM unnest($6::uuid [], $7::timestamptz [], $8::smallint [], $9::timestamptz [], $10::timestamptz [])
    AS wanted (id, slot, attempt, starts_at, ends_at)
ON CONFLICT (id) DO UPDATE SET
    exchange_id = excluded.exchange_id, starts_at = excluded.starts_at, ends_at = excluded.ends_at,
    state = 'booked', reason = NULL, changed_at = excluded.changed_at
WHERE run.state = 'waiting';

-- keep_waiting --
-- Slots that found no time, each with what stood in the way. One that is still held here, because others refused
-- it, keeps the reason for when its hold is dropped.
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at
)
SELECT
    wanted.id, $1, wanted.slot, wanted.attempt, $2, $3::scheduling_class, $4, wanted.slot, wanted.slot + $5::interval,
    wanted.state::run_state, wanted.reason, $6, $6
FROM unnest($7::uuid [], $8::timestamptz [], $9::smallint [], $10::text [], $11::text [])
    AS wanted (id, slot, attempt, state, reason)
ON CONFLICT (id) DO UPDATE SET
    state = CASE WHEN run.state = 'waiting' THEN excluded.state ELSE run.state END,
    reason = CASE WHEN excluded.state = 'unplaced' AND run.reason <> '' THEN run.reason ELSE excluded.reason END,
    changed_at = excluded.changed_at,
    finished_at = CASE WHEN excluded.state = 'unplaced' THEN excluded.changed_at END
WHERE
    run.state = 'waiting'
    OR (
        run.state IN ('booked', 'set-aside')
        AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'held')
    );

-- keep_decision --
INSERT INTO decision (
    task_id, exchange_id, decided_at, outcome, sentence, asked, placed, first_slot, last_slot, trace
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- finish_claim --
-- Give the task back. What woke it meanwhile (a displaced run, an edit) is kept: its plan_at is then earlier.
UPDATE planning
SET
    planned_to = $3, next_run_at = $4, plan_at = $5::timestamptz, failures = $6, lease_owner = NULL, lease_until = NULL
FROM task
WHERE
    planning.task_id = $1 AND planning.lease_epoch = $2
    AND task.id = $1 AND (task.state = 'active' OR $5::timestamptz IS NULL)
RETURNING planning.task_id;

-- wake_if_waiting --
-- A slot that came to wait while the task was being planned must not be forgotten; nor one that comes to wait as soon
-- as the release of an aborted exchange, still on its way, reaches this node.
UPDATE planning
SET plan_at = least(planning.plan_at, waiting.wake_at), next_run_at = least(planning.next_run_at, waiting.slot)
FROM (
    SELECT
        min(run.slot) AS slot,
        min(CASE WHEN run.state = 'waiting' THEN $2::timestamptz ELSE $2::timestamptz + interval '5 seconds' END) AS wake_at
    FROM run
    WHERE
        run.task_id = $1
        AND (
            run.state = 'waiting'
            OR (
                run.state IN ('booked', 'set-aside')
                AND EXISTS (
                    SELECT FROM exchange INNER JOIN negotiation ON exchange.id = negotiation.id
                    WHERE exchange.id = run.exchange_id AND exchange.state = 'held' AND negotiation.state = 'aborted'
                )
            )
        )
        AND NOT EXISTS (
            SELECT FROM unnest($3::timestamptz [], $4::smallint []) AS asked (slot, attempt)
            WHERE asked.slot = run.slot AND asked.attempt = run.attempt
        )
) AS waiting
WHERE planning.task_id = $1 AND waiting.slot IS NOT NULL;

-- give_back --
-- A worker that is stopped lets others have the task at once.
UPDATE planning SET lease_owner = NULL, lease_until = NULL WHERE task_id = $1 AND lease_epoch = $2;

-- abort_stale --
-- Negotiations of workers that are gone.
UPDATE negotiation SET state = 'aborted', decided_at = $1 WHERE state = 'open' AND expires_at <= $1;

-- set_participants --
UPDATE task SET participants = $2, tool = $3, duration = $4 WHERE id = $1;

-- digests --
-- Runs to come of the tasks led here, for comparison with one participant. A task whose last decision may still be
-- on its way to the participants is left for the next time.
SELECT task.id, task.state::text, array_agg(run.id ORDER BY run.id) FILTER (WHERE run.id IS NOT NULL) AS runs
FROM task
LEFT JOIN run
    ON
        run.task_id = task.id AND run.state IN ('booked', 'set-aside', 'running', 'merging')
        AND run.starts_at >= $2 AND run.starts_at < $3
        AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
WHERE
    task.lead = (SELECT identity FROM node WHERE is_self)
    AND task.state = 'active'
    AND task.participants @> jsonb_build_array(jsonb_build_object('node', $1::text))
    AND NOT EXISTS (
        SELECT FROM negotiation
        WHERE negotiation.task_id = task.id AND (negotiation.state = 'open' OR negotiation.decided_at > $4)
    )
GROUP BY task.id
ORDER BY task.id
LIMIT 1000;

-- notify_planned --
SELECT pg_notify('parley', $1);
