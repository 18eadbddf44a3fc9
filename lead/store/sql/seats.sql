-- due --
-- Pool tasks with a term that is due, or with empty seats that are to be tried; with what they ask for.
SELECT
    task.id, task.test, task.spec, task.tools, task.scheduling_class::text, task.duration, task.priority, task.schedule,
    task.campaign, task.reference, task.created_at, task.revision, pool.name AS pool, pool_task.request,
    pool_task.next_slot, pool_task.due_at, pool_task.rounds_left
FROM pool_task
INNER JOIN task ON pool_task.task_id = task.id
INNER JOIN pool ON pool_task.pool_id = pool.id
WHERE
    task.state = 'active'
    AND (
        pool_task.due_at <= $1
        OR EXISTS (SELECT FROM term WHERE term.pool_task = pool_task.task_id AND term.try_at <= $1)
    )
ORDER BY task.created_at, task.id
LIMIT $2;

-- next_due --
SELECT least(
    (
        SELECT min(pool_task.due_at) FROM pool_task
        INNER JOIN task ON pool_task.task_id = task.id
        WHERE task.state = 'active'
    ),
    (
        SELECT min(term.try_at) FROM term
        INNER JOIN task ON term.pool_task = task.id
        WHERE task.state = 'active' AND term.try_at IS NOT NULL
    )
);

-- open_terms --
INSERT INTO term (pool_task, starts_at, ends_at, over_at, seats, try_at)
SELECT * FROM unnest(
    $1::uuid [], $2::timestamptz [], $3::timestamptz [], $4::timestamptz [], $5::smallint [], $6::timestamptz []
)
ON CONFLICT (pool_task, starts_at) DO NOTHING;

-- go_on --
-- Not if an edit has said otherwise meanwhile.
UPDATE pool_task
SET next_slot = $3, due_at = $4, rounds_left = $5
WHERE task_id = $1 AND next_slot = $2
RETURNING task_id;

-- terms_due --
SELECT pool_task, starts_at, ends_at, over_at, seats, tries
FROM term
WHERE pool_task = ANY($1::uuid []) AND try_at <= $2
ORDER BY starts_at, pool_task;

-- taken --
-- Who sits in these terms.
SELECT seat.pool_task, seat.term, seat.number, seat.node
FROM unnest($1::uuid [], $2::timestamptz []) AS due (pool_task, term)
INNER JOIN seat ON due.pool_task = seat.pool_task AND due.term = seat.term AND seat.lost_at IS NULL
ORDER BY seat.pool_task, seat.term, seat.number;

-- last_holders --
-- Who had each seat last, and when each node had one last.
SELECT DISTINCT ON (pool_task, number) pool_task, number, node
FROM seat
WHERE pool_task = ANY($1::uuid []) AND lost_at IS NULL
ORDER BY pool_task, number, term DESC;

-- used_at --
SELECT pool_task, node, max(term) AS used_at
FROM seat
WHERE pool_task = ANY($1::uuid [])
GROUP BY pool_task, node;

-- measured_to --
-- Of lost seats: the last slot that has been measured, or is being measured; who takes over goes on behind it.
SELECT seat.pool_task, seat.term, seat.number, max(run.slot) AS slot
FROM unnest($1::uuid [], $2::timestamptz []) AS due (pool_task, term)
INNER JOIN seat ON due.pool_task = seat.pool_task AND due.term = seat.term AND seat.lost_at IS NOT NULL
INNER JOIN run ON seat.task_id = run.task_id AND run.state IN ('running', 'merging', 'finished', 'failed')
GROUP BY seat.pool_task, seat.term, seat.number;

-- revision_of --
-- Nothing is given to a task that is changed meanwhile; whoever changes it waits, or has come first.
SELECT revision FROM task WHERE id = $1 AND state = 'active' FOR SHARE;

-- take --
-- One node to a seat, and one seat to a node: what is taken meanwhile is not given again.
INSERT INTO seat (pool_task, term, number, node, task_id, taken_at)
SELECT $1, $2, given.number, given.node, given.task_id, $3
FROM unnest($4::smallint [], $5::text [], $6::uuid []) AS given (number, node, task_id)
ON CONFLICT DO NOTHING
RETURNING number;

-- adopt --
UPDATE task SET parent = $1 WHERE id = ANY($2::uuid []);

-- tried --
-- When the empty seats of a term are tried again, and why they are empty.
UPDATE term SET tries = $3, try_at = $4, reason = $5 WHERE pool_task = $1 AND starts_at = $2;

-- lacks --
-- What the pool of a task lacks, said on the task; null when it lacks nothing.
UPDATE pool_task SET reason = $2 WHERE task_id = $1 AND reason IS DISTINCT FROM $2;

-- lost_with_their_tasks --
-- Seats whose task has ended before its time: somebody withdrew, refused or cancelled it. They are to be given anew.
WITH ended AS (
    UPDATE seat
    SET lost_at = $1, reason = task.reason
    FROM task, term, task AS whole
    WHERE
        seat.task_id = task.id
        AND seat.lost_at IS NULL
        AND task.state IN ('refused', 'cancelled')
        AND seat.pool_task = term.pool_task AND seat.term = term.starts_at
        AND seat.pool_task = whole.id AND whole.state IN ('active', 'paused')
    RETURNING seat.pool_task, seat.term
)

UPDATE term
SET try_at = CASE WHEN term.over_at > $1 THEN $1 END, tries = 0
FROM (SELECT DISTINCT pool_task, term FROM ended) AS lost
WHERE term.pool_task = lost.pool_task AND term.starts_at = lost.term
RETURNING term.pool_task, term.starts_at;

-- sitting --
-- The seats that are held and not over, with what their tasks ask of a node.
SELECT
    seat.pool_task, seat.term, seat.number, seat.node, seat.task_id, pool.name AS pool, task.test, task.spec, task.tools,
    pool_task.request
FROM seat
INNER JOIN term ON seat.pool_task = term.pool_task AND seat.term = term.starts_at
INNER JOIN pool_task ON seat.pool_task = pool_task.task_id
INNER JOIN pool ON pool_task.pool_id = pool.id
INNER JOIN task ON seat.pool_task = task.id
WHERE seat.lost_at IS NULL AND term.over_at > $1 AND task.state = 'active'
ORDER BY seat.pool_task, seat.term, seat.number;

-- policy_state --
SELECT policy_state.state, policy_state.revision
FROM policy_state
INNER JOIN pool ON policy_state.pool_id = pool.id
WHERE pool.name = $1;

-- keep_policy_state --
-- Only as it was read: another episode of the pool has come first.
INSERT INTO policy_state (pool_id, state, revision, changed_at)
SELECT pool.id, $2, $3::bigint + 1, $4 FROM pool WHERE pool.name = $1
ON CONFLICT (pool_id) DO UPDATE
SET state = excluded.state, revision = excluded.revision, changed_at = excluded.changed_at
WHERE policy_state.revision = $3
RETURNING revision;

-- used_by_hour --
-- What each campaign was charged for on these nodes, hour by hour; thousandths of a seat times microseconds.
SELECT campaign.name, charge_hour.hour, sum(charge_hour.amount)::bigint AS amount
FROM charge_hour
INNER JOIN campaign ON charge_hour.campaign_id = campaign.id
WHERE charge_hour.hour >= $1 AND charge_hour.hour < $2 AND charge_hour.node = ANY($3::text [])
GROUP BY campaign.name, charge_hour.hour
ORDER BY campaign.name, charge_hour.hour;
