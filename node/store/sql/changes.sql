-- fence --
-- At the lead: workers that plan these tasks now lose their leases; the new epoch makes their late messages harmless.
WITH fenced AS (
    SELECT task_id FROM planning
    WHERE task_id = ANY($1::uuid [])
    ORDER BY task_id -- all transactions lock in the same order
    FOR NO KEY UPDATE
)

UPDATE planning
SET lease_epoch = lease_epoch + 1, lease_owner = NULL, lease_until = NULL, waits_for = NULL, waits_until = NULL
FROM fenced
WHERE planning.task_id = fenced.task_id
RETURNING planning.task_id, planning.lease_epoch;

-- raise_epoch --
UPDATE task
SET lease_epoch = greatest(task.lease_epoch, given.epoch)
FROM unnest($1::uuid [], $2::bigint []) AS given (id, epoch)
WHERE task.id = given.id;

-- abort_open --
UPDATE negotiation SET state = 'aborted', decided_at = $2 WHERE task_id = ANY($1::uuid []) AND state = 'open';

-- free_led --
-- At the lead: the future runs of these slots, including waiting ones, and all runs that are held without a decision, since
-- their exchange has just been aborted.
UPDATE run
SET state = 'cancelled', freed = true, reason = $4, changed_at = $5, finished_at = $5
WHERE
    task_id = ANY($1::uuid [])
    AND (
        (state = 'waiting' AND slot >= $2)
        OR (state IN ('booked', 'set-aside') AND slot >= $2 AND starts_at >= $3)
        OR (
            state IN ('booked', 'set-aside')
            AND EXISTS (
                SELECT FROM exchange INNER JOIN negotiation ON exchange.id = negotiation.id
                WHERE exchange.id = run.exchange_id AND exchange.state = 'held' AND negotiation.state = 'aborted'
            )
        )
    )
RETURNING id, task_id, slot;

-- free_part --
-- At a participant, by order of the lead: runs booked before the change. Runs that were never committed are deleted; runs
-- that have begun meanwhile, because the message was late, are stopped.
WITH meant AS (
    SELECT run.id, run.state, exchange.state = 'held' AS held
    FROM run
    INNER JOIN exchange ON run.exchange_id = exchange.id
    WHERE
        run.task_id = $1
        AND run.slot >= $2
        AND run.starts_at >= $3
        AND exchange.lease_epoch < $4
        AND (
            run.state IN ('booked', 'set-aside', 'running', 'merging') OR (run.state = 'failed' AND run.ends_at > $6)
        )
    ORDER BY run.id
    FOR UPDATE OF run
),

dropped AS (
    DELETE FROM run USING meant WHERE run.id = meant.id AND meant.held RETURNING run.id, meant.state
),

freed AS (
    UPDATE run
    SET state = 'cancelled', freed = true, reason = $5, changed_at = $6, finished_at = coalesce(run.finished_at, $6)
    FROM meant
    WHERE run.id = meant.id AND NOT meant.held
    RETURNING run.id, meant.state
)

SELECT id, state = 'running' AS stopped FROM dropped
UNION ALL
SELECT id, state = 'running' AS stopped FROM freed;

-- keep_freeing --
UPDATE task
SET freeing = given.freeing
FROM unnest($1::uuid [], $2::jsonb []) AS given (id, freeing)
WHERE task.id = given.id;

-- keep_measured --
-- Runs keep what they were booked with, whatever the task says from now on, and the rates for which they count. So do those
-- that are freed: a participant that has not heard of it measures them.
WITH kept AS (
    UPDATE run
    SET spec = task.spec, tool = task.tool
    FROM task
    WHERE task.id = $1 AND run.task_id = $1 AND run.spec IS NULL
    RETURNING run.starts_at, run.ends_at, run.state, task.limit_caps
)

INSERT INTO limit_rate (cap, network, bps, starts_at, ends_at)
SELECT account.value ->> 0, account.value ->> 1, (account.value -> 2)::bigint, kept.starts_at, kept.ends_at
FROM kept CROSS JOIN LATERAL jsonb_path_query(kept.limit_caps, 'strict $[*] ? (@[2] > 0)', '{}', TRUE) AS account (value)
WHERE kept.state IN ('booked', 'set-aside', 'running');

-- reprioritise --
UPDATE run SET priority = $2, changed_at = $3
WHERE task_id = $1 AND priority <> $2 AND state IN ('waiting', 'booked', 'set-aside');

-- stand --
-- Active or paused, by the newest message of the lead.
UPDATE task
SET
    revision = given.revision,
    paused_at = $3::timestamptz,
    state = CASE WHEN $3::timestamptz IS NULL THEN 'active' ELSE 'paused' END::task_state
FROM unnest($1::uuid [], $2::integer []) AS given (id, revision)
WHERE task.id = given.id AND task.state IN ('active', 'paused') AND task.revision <= given.revision
RETURNING task.id;

-- standing --
SELECT task_id, planned_to, next_run_at FROM planning WHERE task_id = ANY($1::uuid []);

-- plan_on --
UPDATE planning
SET planned_to = given.planned_to, next_run_at = given.next_run_at, plan_at = $4, failures = 0
FROM unnest($1::uuid [], $2::timestamptz [], $3::timestamptz []) AS given (task, planned_to, next_run_at)
WHERE planning.task_id = given.task;

-- surplus --
-- The first slot beyond this number of runs.
SELECT slot FROM run
WHERE task_id = $1 AND NOT (state = ANY($2::run_state []))
ORDER BY slot
OFFSET $3
LIMIT 1;

-- kept_between --
SELECT given.task, count(DISTINCT run.slot)
FROM unnest($1::uuid [], $2::timestamptz [], $3::timestamptz []) AS given (task, since, until)
INNER JOIN run
    ON given.task = run.task_id AND run.slot >= given.since AND run.slot < given.until AND NOT run.freed
GROUP BY given.task;

-- keep_change --
INSERT INTO decision (task_id, first_at, decided_at, outcome, sentence, asked, placed, first_slot, last_slot, trace)
SELECT given.task, $2, $2, given.outcome, given.sentence, 0, 0, given.first_slot, given.last_slot, given.trace
FROM
    unnest($1::uuid [], $3::text [], $4::text [], $5::timestamptz [], $6::timestamptz [], $7::jsonb [])
        WITH ORDINALITY AS given (task, outcome, sentence, first_slot, last_slot, trace, number)
ORDER BY given.number;

-- pending_for --
-- Whether a participant has not acknowledged the task's change yet.
SELECT EXISTS (SELECT FROM outbox WHERE kind = $1 AND message ->> 'task' = $2 AND node = $3);

-- others_pending --
-- Whether other participants have not acknowledged the task's change yet.
SELECT EXISTS (SELECT FROM outbox WHERE kind = $1 AND message ->> 'task' = $2 AND id <> $3);

-- note_answer --
-- At the lead: what a participant that has not refused the task answered to a change, by the revision that it was asked about:
-- why it refused, null if it did not.
UPDATE task
SET
    participants = (
        SELECT
            jsonb_agg(
                CASE
                    WHEN place.value ->> 'node' = $2 THEN place.value || jsonb_build_object('reason', $4::text)
                    ELSE place.value
                END
                ORDER BY place.ordinality
            )
        FROM jsonb_array_elements(task.participants) WITH ORDINALITY AS place
    )
WHERE
    id = $1 AND revision = $3
    AND NOT participants @> jsonb_build_array(jsonb_build_object('node', $2::text, 'accepted', false))
    AND NOT participants @> jsonb_build_array(jsonb_build_object('node', $2::text, 'reason', $4::text));
