-- next_expiry --
SELECT min(exchange.expires_at) FROM exchange WHERE exchange.state = 'held';

-- booked_runs --
-- The runs that are committed and have not started, led here or not.
SELECT run.id, run.task_id
FROM run
INNER JOIN task ON run.task_id = task.id
INNER JOIN exchange ON run.exchange_id = exchange.id
WHERE
    run.state = 'booked' AND run.starts_at > $1::timestamptz AND exchange.state = 'committed'
    AND (task.lead = (SELECT node.identity FROM node WHERE node.is_self)) = $2::boolean
ORDER BY run.created_at, run.id;

-- forget_run --
-- As after a backup was restored that does not have it.
DELETE FROM run WHERE id = $1;

-- forget_task --
DELETE FROM task WHERE id = $1;

-- first_run --
-- The first run of a task that is in a state.
SELECT run.id FROM run WHERE run.task_id = $1 AND run.state::text = $2 ORDER BY run.starts_at LIMIT 1;

-- last_booked --
SELECT run.id FROM run WHERE run.task_id = $1 AND run.state = 'booked' ORDER BY run.starts_at DESC LIMIT 1;

-- first_seat --
SELECT task.id FROM task WHERE task.pool_task IS NOT NULL AND task.state = 'active' ORDER BY task.created_at, task.id LIMIT 1;

-- first_generation --
-- What a real database makes of its place and the server's clock.
INSERT INTO generation (id, place, made_at, marked_at) VALUES ($1, '', $2, $2) ON CONFLICT DO NOTHING;
