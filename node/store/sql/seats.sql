-- keep_pool_task --
-- The request to its pool, and the slot from which terms continue ($4 false: as they would have). Nothing is stored if the
-- pool does not exist (any more).
INSERT INTO pool_task (task_id, pool_id, request, next_slot, due_at, rounds_left)
SELECT $1, pool.id, $3, $5, $6, $7
FROM pool
WHERE pool.name = $2
ON CONFLICT (task_id) DO UPDATE SET
    pool_id = excluded.pool_id,
    request = excluded.request,
    next_slot = CASE WHEN $4::boolean THEN excluded.next_slot ELSE pool_task.next_slot END,
    due_at = CASE WHEN $4 THEN excluded.due_at ELSE pool_task.due_at END,
    rounds_left = CASE WHEN $4 THEN excluded.rounds_left ELSE pool_task.rounds_left END,
    reason = NULL
RETURNING task_id;

-- release --
-- Ends what the policies remember against the terms of a pool task: its deferrals. All its terms are tried now. The new
-- revision makes an episode that is under way begin again.
WITH forgiven AS (
    UPDATE policy_state
    SET
        state = jsonb_set(
            policy_state.state, '{deferrals}',
            (
                SELECT coalesce(jsonb_agg(entry.value), '[]')
                FROM jsonb_array_elements(policy_state.state -> 'deferrals') AS entry
                WHERE NOT starts_with(entry.value ->> 0, $1::uuid::text)
            )
        ),
        revision = policy_state.revision + 1, changed_at = $2
    FROM pool_task
    WHERE
        pool_task.task_id = $1 AND policy_state.pool_id = pool_task.pool_id
        AND jsonb_array_length(policy_state.state -> 'deferrals') > 0
)

UPDATE term SET try_at = $2, tries = 0 WHERE pool_task = $1 AND try_at > $2;

-- stop_seating --
-- Until the transaction ends, no task is added to this pool and none of its seats is assigned.
SELECT id FROM pool WHERE name = $1 FOR UPDATE;

-- request_of --
SELECT request FROM pool_task WHERE task_id = $1;

-- plan_anew --
-- The reservations of a pool have changed. A worker that is planning a task of its seats loses its lease, unless it has
-- already decided; these tasks, and those that wait for time, are planned now. The epochs of all others are raised too:
-- this locks them, so that no worker that cannot see the new reservations yet claims them.
WITH seated AS (
    SELECT task.id
    FROM task
    INNER JOIN pool_task ON task.parent = pool_task.task_id
    INNER JOIN pool ON pool_task.pool_id = pool.id
    WHERE pool.name = $1 AND task.state IN ('active', 'paused')
    ORDER BY task.id
    FOR UPDATE OF task
),

fenced AS (
    UPDATE planning
    SET
        plan_at = CASE
            WHEN
                planning.plan_at IS NOT NULL
                AND (
                    planning.lease_until IS NOT NULL
                    OR EXISTS (SELECT FROM run WHERE run.task_id = seated.id AND run.state = 'waiting')
                )
                THEN $2
            ELSE planning.plan_at
        END,
        lease_epoch = planning.lease_epoch + 1, lease_owner = NULL, lease_until = NULL
    FROM seated
    WHERE planning.task_id = seated.id
    RETURNING planning.task_id, planning.plan_at
)

SELECT task_id FROM fenced WHERE plan_at = $2;

-- goes_on --
-- Resumed: its next term begins with the first future slot that is in no term.
UPDATE pool_task
SET
    next_slot = CASE WHEN next_slot IS NOT NULL AND given.slot IS NOT NULL THEN greatest(next_slot, given.slot) END,
    due_at = CASE WHEN next_slot IS NOT NULL AND given.slot IS NOT NULL THEN $3::timestamptz END
FROM unnest($1::uuid [], $2::timestamptz []) AS given (task, slot)
WHERE pool_task.task_id = given.task
RETURNING pool_task.task_id;

-- wake_refused_seats --
-- Time that a node refused has become free: it may now have time for a seat.
WITH woken AS (
    UPDATE term SET try_at = $2
    WHERE pool_task = ANY($1::uuid []) AND try_at > $2
    RETURNING pool_task
)

SELECT DISTINCT pool_task FROM woken;

-- finish_pool_tasks --
-- Not before every term has recorded why seats stayed empty: the last one says why no seat was ever taken. A term that was
-- given up without a seat does not delay this.
UPDATE task
SET
    state = CASE WHEN ended.reason IS NULL THEN 'finished' ELSE 'unplaced' END::task_state,
    reason = coalesce(ended.reason, task.reason),
    ended_at = $1
FROM (
    SELECT
        pool_task.task_id,
        CASE WHEN NOT EXISTS (SELECT FROM seat WHERE seat.pool_task = pool_task.task_id) THEN (
            SELECT lost.reason
            FROM (
                SELECT term.starts_at, term.reason FROM term WHERE term.pool_task = pool_task.task_id
                UNION ALL
                SELECT gap.first_slot, gap.reason FROM gap WHERE gap.task_id = pool_task.task_id
            ) AS lost
            ORDER BY lost.starts_at DESC, lost.reason
            LIMIT 1
        ) END AS reason
    FROM pool_task
    INNER JOIN task AS whole ON pool_task.task_id = whole.id
    WHERE
        pool_task.next_slot IS NULL
        AND whole.state = 'active'
        AND NOT EXISTS (
            SELECT FROM term
            WHERE
                term.pool_task = pool_task.task_id
                AND (
                    term.try_at IS NOT NULL
                    OR (
                        term.over_at > $1
                        AND EXISTS (SELECT FROM seat WHERE seat.pool_task = term.pool_task AND seat.term = term.starts_at)
                    )
                )
        )
        AND NOT EXISTS (
            SELECT FROM task AS part WHERE part.parent = pool_task.task_id AND part.state IN ('active', 'paused')
        )
) AS ended
WHERE task.id = ended.task_id AND task.state = 'active'
RETURNING task.id, task.state::text;

-- seat_tasks --
-- The ordinary tasks that have its seats and are not over.
SELECT id FROM task WHERE parent = $1 AND state IN ('active', 'paused') ORDER BY id;

-- lock_seat_tasks --
-- The same, locked: none of them ends or is changed by others until the transaction ends.
SELECT id FROM task WHERE parent = $1 AND state IN ('active', 'paused') ORDER BY id FOR UPDATE;

-- nodes_of --
SELECT seat.task_id, seat.place, seat.node
FROM seat
INNER JOIN task ON seat.task_id = task.id
WHERE task.parent = $1 AND task.state IN ('active', 'paused')
ORDER BY seat.task_id, seat.place;

-- look_again --
-- Its terms have this number of seats from now on, with a search for nodes at once; or ($4) they are over.
UPDATE term
SET
    seats = $2, tries = 0, over_at = CASE WHEN $4::boolean THEN $3::timestamptz ELSE over_at END,
    try_at = CASE WHEN NOT $4 THEN $3 END
WHERE pool_task = $1 AND over_at > $3;

-- purge_terms --
-- Old terms with their seats, and the ordinary tasks of these, once no runs and gaps of theirs are left. While the pool task
-- goes on, the last seat of each node and the last holder of each seat (which cannot be lost any more) are kept, because the choice of
-- nodes depends on them. A term is deleted as a whole; otherwise seats of it would seem to have stayed empty.
WITH old AS (
    SELECT term.pool_task, term.starts_at
    FROM term
    INNER JOIN task AS whole ON term.pool_task = whole.id
    WHERE
        term.over_at < $1
        AND (term.try_at IS NULL OR whole.state NOT IN ('active', 'paused'))
        AND NOT EXISTS (
            SELECT
            FROM seat
            INNER JOIN task AS part ON seat.task_id = part.id
            WHERE
                seat.pool_task = term.pool_task AND seat.term = term.starts_at
                AND (
                    part.state IN ('active', 'paused')
                    OR EXISTS (SELECT FROM run WHERE run.task_id = part.id)
                    OR EXISTS (SELECT FROM gap WHERE gap.task_id = part.id)
                    OR (
                        whole.state IN ('active', 'paused')
                        AND (
                            NOT EXISTS (
                                SELECT FROM seat AS later
                                WHERE later.pool_task = seat.pool_task AND later.node = seat.node AND later.term > seat.term
                            )
                            OR (
                                seat.lost_at IS NULL
                                AND NOT EXISTS (
                                    SELECT FROM seat AS later
                                    INNER JOIN task AS following ON later.task_id = following.id
                                    WHERE
                                        later.pool_task = seat.pool_task AND later.place = seat.place
                                        AND later.term > seat.term AND later.lost_at IS NULL
                                        AND following.state = 'finished'
                                )
                            )
                        )
                    )
                )
        )
    ORDER BY term.over_at, term.pool_task, term.starts_at
    LIMIT $2
),

ended AS (
    DELETE FROM task
    USING seat, old
    WHERE seat.pool_task = old.pool_task AND seat.term = old.starts_at AND task.id = seat.task_id
)

DELETE FROM term
USING old
WHERE term.pool_task = old.pool_task AND term.starts_at = old.starts_at
RETURNING term.pool_task, term.starts_at;

-- lose_ended --
UPDATE seat
SET lost_at = $2, reason = coalesce(task.reason, '')
FROM task
WHERE seat.task_id = task.id AND seat.pool_task = $1 AND seat.lost_at IS NULL AND task.state IN ('refused', 'cancelled');

-- seats --
-- For people: each seat of the terms that end after an instant, its node, empty seats, and the number of runs.
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
            SELECT known.state, sum(known.runs) AS runs FROM (
                SELECT run_known.state, 1 AS runs FROM run_known WHERE run_known.task_id = seat.task_id
                UNION ALL
                SELECT 'unplaced', gap.slots FROM gap WHERE gap.task_id = seat.task_id
            ) AS known GROUP BY known.state
        ) AS counted
    ), '{}') AS runs
FROM term
CROSS JOIN LATERAL generate_series(1, term.seats) AS number (number)
LEFT JOIN seat
    ON term.pool_task = seat.pool_task AND term.starts_at = seat.term AND number.number = seat.place
LEFT JOIN node ON seat.node = node.identity
WHERE term.pool_task = $1 AND term.over_at > $2
ORDER BY term.starts_at, number.number, seat.taken_at;

-- before_in_turn --
-- For people: the pool, and how many of its due terms begin before the first due term of this task, or in the same hour.
-- No row if none is due.
WITH own AS (
    SELECT pool_task.pool_id, min(term.starts_at) AS starts_at
    FROM pool_task
    INNER JOIN term ON pool_task.task_id = term.pool_task
    WHERE pool_task.task_id = $1 AND term.try_at <= $2
    GROUP BY pool_task.pool_id
)

SELECT pool.name, count(*) AS terms
FROM own
INNER JOIN pool ON own.pool_id = pool.id
INNER JOIN pool_task AS other ON own.pool_id = other.pool_id AND other.task_id <> $1
INNER JOIN task ON other.task_id = task.id AND task.state = 'active'
INNER JOIN term
    ON
        other.task_id = term.pool_task AND term.try_at <= $2
        AND floor(extract(EPOCH FROM term.starts_at) / 3600) <= floor(extract(EPOCH FROM own.starts_at) / 3600)
GROUP BY pool.name;

-- waiting_in_seats --
-- For people: what the runs of its seats wait for, the most frequent first.
SELECT
    run.reason,
    count(DISTINCT run.id) AS runs,
    min(run.slot) AS slot,
    array_agg(DISTINCT coalesce(node.name, seat.node) ORDER BY coalesce(node.name, seat.node)) AS nodes
FROM seat
INNER JOIN run ON seat.task_id = run.task_id
LEFT JOIN node ON seat.node = node.identity
WHERE seat.pool_task = $1 AND seat.lost_at IS NULL AND run.state = 'waiting'
GROUP BY run.reason
ORDER BY count(DISTINCT run.id) DESC, min(run.slot), run.reason
LIMIT $2;
