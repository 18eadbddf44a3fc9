-- keep_pool_task --
-- What it asks of its pool, and with which slot its terms begin. Of a pool that is not there (any more) nothing is kept.
INSERT INTO pool_task (task_id, pool_id, request, next_slot, due_at, rounds_left)
SELECT $1, pool.id, $3, $4, $5, $6
FROM pool
WHERE pool.name = $2
RETURNING task_id;

-- request_of --
SELECT request FROM pool_task WHERE task_id = $1;

-- change_pool_task --
-- Edited: what it asks for from now on, and where its terms go on. A term cut short is over for who plans.
UPDATE pool_task
SET pool_id = pool.id, request = $3, next_slot = $4, due_at = $5, rounds_left = $6, reason = NULL
FROM pool
WHERE pool_task.task_id = $1 AND pool.name = $2
RETURNING pool_task.task_id;

-- goes_on_at --
-- Paused or resumed: when its next term is due; the terms it has are looked at again.
UPDATE pool_task SET next_slot = $2, due_at = $3 WHERE task_id = $1;

-- seat_tasks --
-- The ordinary tasks that have its seats and are not over.
SELECT DISTINCT task.id
FROM task
WHERE task.parent = $1 AND task.state IN ('active', 'paused')
ORDER BY task.id;

-- seats --
-- For people: each seat of the terms that end after an instant, who has it, and the empty ones; and how many runs.
SELECT
    term.starts_at AS term,
    term.ends_at AS until,
    number.number::integer AS number,
    seat.node,
    node.name,
    seat.task_id AS task,
    seat.lost_at,
    coalesce(seat.reason, term.reason) AS reason,
    term.over_at,
    coalesce((
        SELECT jsonb_object_agg(counted.state, counted.runs)
        FROM (
            SELECT run_known.state, count(*) AS runs FROM run_known
            WHERE run_known.task_id = seat.task_id GROUP BY run_known.state
        ) AS counted
    ), '{}') AS runs
FROM term
CROSS JOIN LATERAL generate_series(1, term.seats) AS number (number)
LEFT JOIN seat
    ON term.pool_task = seat.pool_task AND term.starts_at = seat.term AND number.number = seat.number
LEFT JOIN node ON seat.node = node.identity
WHERE term.pool_task = $1 AND term.over_at > $2
ORDER BY term.starts_at, number.number, seat.taken_at;
