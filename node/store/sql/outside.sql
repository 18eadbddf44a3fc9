-- outside_run --
-- A run of a task that is led from outside, with the hold that it belongs to.
SELECT
    run.id AS run, run.task_id AS task, run.state::text, run.reason, run.starts_at, run.ends_at, run.created_at AS added_at,
    run.priority, run.participant, exchange.id AS exchange, exchange.state::text AS exchange_state, exchange.lease_epoch,
    exchange.answer -> 'data' AS held, pscheduler_run.part_data
FROM run
INNER JOIN exchange ON run.exchange_id = exchange.id
LEFT JOIN pscheduler_run ON run.id = pscheduler_run.run_id
WHERE run.task_id = $1 AND run.id = $2;

-- attempts --
-- The runs of a task at one start: how many there were, and whether one of them is not over.
SELECT coalesce(max(attempt), 0)::smallint, coalesce(bool_or(state IN ('booked', 'set-aside', 'running', 'merging')), false)
FROM run
WHERE task_id = $1 AND slot = $2;

-- dropped_hold --
-- When the hold of a run was given up that is not there any more, and when its life was over.
SELECT decided_at, expires_at FROM exchange
WHERE task_id = $1 AND state = 'released' AND answer -> 'held' ? $2::text
ORDER BY decided_at DESC
LIMIT 1;

-- keep_part_data --
INSERT INTO pscheduler_run (run_id, part_data) SELECT run.id, $2::text::jsonb FROM run WHERE run.id = $1
ON CONFLICT (run_id) DO UPDATE SET part_data = excluded.part_data;

-- over --
-- Tasks that are led from outside, and have nothing to come: a single run that took place or was lost before $1, or nothing
-- that was asked for since $2.
SELECT task.id, task.lead FROM task
WHERE
    task.lead LIKE 'pscheduler:%' AND task.lead NOT LIKE 'pscheduler://%' AND task.state IN ('active', 'paused') AND task.created_at < $1
    AND NOT EXISTS (
        SELECT FROM run WHERE run.task_id = task.id AND run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
    )
    AND (
        (
            jsonb_typeof(task.schedule -> 'repeat') IS DISTINCT FROM 'string'
            AND EXISTS (SELECT FROM run WHERE run.task_id = task.id AND run.ends_at < $1)
        )
        OR (task.created_at < $2 AND NOT EXISTS (SELECT FROM run WHERE run.task_id = task.id AND run.created_at >= $2))
    )
ORDER BY task.id
LIMIT $3;
