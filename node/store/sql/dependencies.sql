-- followers --
-- The tasks led here that follow the tasks of these runs, with what they have already at the ends of these runs: the number
-- of the last attempt, and whether it was given up because of the run that it follows. Of those with a condition also whether
-- a run of theirs is to come or in progress, and when their latest runs were asked for.
SELECT
    run.id AS run, run.task_id AS followed, run.state::text, run.reason, run.ends_at AS slot,
    judgement_of(run.state::text, run.judgement, run.result IS NOT NULL) AS judgement,
    task.id AS task, task.state = 'paused' AS paused, task.schedule -> 'after' AS after, tried.attempt, tried.skipped,
    coalesce(alert_memory.raised, '{}') AS raised, coalesce(asking.busy, false) AS busy, asking.asked_at
FROM run
INNER JOIN task ON run.task_id = task.follows
LEFT JOIN alert_memory ON run.task_id = alert_memory.task_id
LEFT JOIN LATERAL (
    SELECT
        EXISTS (
            SELECT FROM run AS open
            WHERE open.task_id = task.id AND open.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
        ) AS busy,
        ARRAY(
            SELECT earlier.created_at FROM run AS earlier
            WHERE earlier.task_id = task.id AND earlier.attempt = 1
            ORDER BY earlier.slot DESC
            LIMIT $3
        ) AS asked_at
    WHERE task.schedule -> 'after' ? 'when'
) AS asking ON true
LEFT JOIN LATERAL (
    SELECT earlier.attempt, earlier.state = 'cancelled' AND earlier.exchange_id IS NULL AND NOT earlier.freed AS skipped
    FROM run AS earlier
    WHERE earlier.task_id = task.id AND earlier.slot = run.ends_at
    ORDER BY earlier.attempt DESC
    LIMIT 1
) AS tried ON true
WHERE
    run.id = ANY($1::uuid []) AND run.state = ANY($2::run_state []) AND NOT run.freed
    AND task.state IN ('active', 'paused')
    AND task.lead = (SELECT node.identity FROM node WHERE node.is_self)
ORDER BY task.id, run.id
FOR SHARE OF task;

-- follow --
-- Runs that follow others: they wait for a time, or are cancelled from the beginning.
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state, reason, created_at,
    changed_at, finished_at
)
SELECT
    given.id, task.id, given.slot, given.attempt, task.participant, task.scheduling_class, task.priority, given.slot,
    given.slot + task.duration, given.state::run_state, given.reason, $1::timestamptz, $1,
    CASE WHEN given.state = 'cancelled' THEN $1 END
FROM
    unnest($2::uuid [], $3::uuid [], $4::timestamptz [], $5::smallint [], $6::text [], $7::text [])
        WITH ORDINALITY AS given (id, task, slot, attempt, state, reason, number)
INNER JOIN task ON given.task = task.id
ORDER BY given.number
ON CONFLICT DO NOTHING
RETURNING id;

-- given_up --
-- Slots from an instant on whose last run was given up by a change of the task. They are where runs that it follows ended; at
-- others it was to run by earlier terms.
SELECT run.id, run.task_id AS task, run.slot, run.attempt
FROM unnest($1::uuid [], $2::timestamptz []) AS asked (task, since)
INNER JOIN task ON asked.task = task.id
INNER JOIN run ON asked.task = run.task_id AND run.slot >= asked.since
WHERE
    run.freed
    AND EXISTS (
        SELECT FROM run AS followed
        WHERE followed.task_id = task.follows AND followed.ends_at = run.slot
            AND followed.state IN ('finished', 'failed', 'missed')
    )
    AND NOT EXISTS (
        SELECT FROM run AS later
        WHERE later.task_id = run.task_id AND later.slot = run.slot AND later.attempt > run.attempt
    )
ORDER BY run.task_id, run.slot;

-- chain --
-- The tasks that a task follows, one after the other, as far as they are known here. It begins with the task itself, and ends
-- before one that comes again.
WITH RECURSIVE chain AS (
    SELECT id, follows, 1 AS place FROM task WHERE id = $1
    UNION
    SELECT task.id, task.follows, chain.place + 1 FROM chain INNER JOIN task ON chain.follows = task.id
) CYCLE id SET again USING path

SELECT
    task.id, task.test, task.lead, task.state::text, task.parent,
    EXISTS (SELECT FROM pool_task WHERE pool_task.task_id = task.id) AS pooled, task.reference
FROM chain
INNER JOIN task ON chain.id = task.id
WHERE NOT chain.again
ORDER BY chain.place;

-- lock_dependencies --
-- One transaction at a time changes what tasks follow; refuse_cycle takes the same lock.
SELECT pg_advisory_xact_lock(6427018313);

-- booked_ends --
SELECT ends_at FROM run WHERE task_id = $1 AND state IN ('booked', 'running', 'merging') ORDER BY ends_at;
