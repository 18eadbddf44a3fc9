-- pools --
-- With what its policies did not see at their last decision.
SELECT
    pool.name, pool.match, pool.policy_set, pool.overrides, pool.choice, pool.term, pool.patience, pool.description,
    pool.revision, pool.created_at, pool.changed_at, policy_state.state ->> 'unseen' AS unseen,
    pool.options
FROM pool
LEFT JOIN policy_state ON pool.id = policy_state.pool_id
ORDER BY pool.name;

-- expected_misses --
-- By pool and campaign, how many runs are expected to miss their latest start, and the first of these starts.
SELECT
    pool.name AS pool, coalesce(task.campaign, 'default') AS campaign, count(*) AS runs, min(missed.start_by) AS first_at
FROM term
INNER JOIN pool_task ON term.pool_task = pool_task.task_id
INNER JOIN pool ON pool_task.pool_id = pool.id
INNER JOIN task ON term.pool_task = task.id
CROSS JOIN LATERAL unnest(term.misses) AS missed (start_by)
WHERE term.misses <> '{}' AND missed.start_by > $1 AND term.try_at IS NOT NULL AND task.state = 'active'
GROUP BY pool.name, coalesce(task.campaign, 'default')
ORDER BY pool.name, campaign;

-- keep_pool --
INSERT INTO pool (name, match, policy_set, overrides, choice, term, patience, description, options, created_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)
ON CONFLICT (name) DO NOTHING
RETURNING id;

-- change_pool --
-- Only in the revision that was read: otherwise another change has come first.
UPDATE pool
SET
    match = $2, policy_set = $3, overrides = $4, choice = $5, term = $6, patience = $7, description = $8,
    options = $9, changed_at = $10, revision = revision + 1
WHERE name = $1 AND revision = $11
RETURNING id;

-- asking --
-- The oldest tasks that want nodes of it now or later, and how many there are.
SELECT task.id, count(*) OVER () AS tasks
FROM pool_task
INNER JOIN pool ON pool_task.pool_id = pool.id
INNER JOIN task ON pool_task.task_id = task.id
WHERE pool.name = $1 AND task.state IN ('active', 'paused')
ORDER BY task.created_at, task.id
LIMIT $2;

-- remove_pool --
-- Tasks that are over release the pool, and their requests keep its name; any other task prevents the removal.
WITH let_go AS (
    UPDATE pool_task SET pool_id = NULL
    FROM task, pool
    WHERE
        pool_task.task_id = task.id AND pool_task.pool_id = pool.id
        AND pool.name = $1 AND task.state NOT IN ('active', 'paused')
)

DELETE FROM pool WHERE name = $1 RETURNING revision;
