-- due --
-- Pool tasks with empty seats that are due for a search: per pool first the urgent ones, then those
-- with something to begin in the nearest hours, then those that have waited longest. Each is looked up by its key (LIMIT 1):
-- a plan from when there were few of them would read all for each one.
WITH waiting AS (
    SELECT pool_task, min(starts_at) AS starts_at, min(try_at) AS try_at FROM term WHERE try_at <= $1 GROUP BY pool_task
),

placed AS (
    SELECT
        asking.*, waiting.try_at,
        row_number() OVER (
            PARTITION BY asking.pool
            ORDER BY
                coalesce(asking.level = 10 AND waiting.starts_at < $3, false) DESC,
                floor(extract(EPOCH FROM waiting.starts_at) / 3600), waiting.try_at, asking.created_at, asking.id
        ) AS place
    FROM waiting
    CROSS JOIN LATERAL (
        SELECT task.id, task.created_at, pool.name AS pool, campaign.level
        FROM pool_task
        INNER JOIN task ON pool_task.task_id = task.id
        INNER JOIN pool ON pool_task.pool_id = pool.id
        LEFT JOIN campaign ON task.campaign = campaign.name
        WHERE pool_task.task_id = waiting.pool_task AND task.state = 'active'
        LIMIT 1
    ) AS asking
)

SELECT id
FROM placed
WHERE place <= $2
ORDER BY try_at, created_at, id;

-- blocked --
-- Pool tasks of a pool with terms that found no time before and are not due again yet.
SELECT task.id
FROM pool_task
INNER JOIN task ON pool_task.task_id = task.id
INNER JOIN pool ON pool_task.pool_id = pool.id
WHERE
    pool.name = $1 AND task.state = 'active'
    AND EXISTS (SELECT FROM term WHERE term.pool_task = task.id AND term.try_at > $2 AND term.tries > 0)
ORDER BY task.created_at, task.id
LIMIT $3;

-- terms_to_open --
-- Pool tasks whose next term is due.
SELECT task.id
FROM pool_task
INNER JOIN task ON pool_task.task_id = task.id
WHERE task.state = 'active' AND pool_task.due_at <= $1
ORDER BY task.created_at, task.id
LIMIT $2;

-- of_pool --
-- The active pool tasks of a pool.
SELECT task.id
FROM pool_task
INNER JOIN task ON pool_task.task_id = task.id
INNER JOIN pool ON pool_task.pool_id = pool.id
WHERE task.state = 'active' AND pool.name = $1
ORDER BY task.created_at, task.id;

-- pool_tasks --
-- These pool tasks, in this order.
SELECT
    task.id, task.test, task.spec, task.tools, task.scheduling_class::text, task.duration, task.priority, task.schedule,
    coalesce(task.campaign, 'default') AS campaign, task.reference, task.created_at, task.revision, pool.name AS pool,
    pool_task.request, pool_task.next_slot, pool_task.due_at, pool_task.rounds_left,
    task.limit_rule, task.limit_refusal, task.run_bytes, task.limit_user
FROM unnest($1::uuid []) WITH ORDINALITY AS wanted (id, place)
INNER JOIN pool_task ON wanted.id = pool_task.task_id
INNER JOIN task ON wanted.id = task.id
INNER JOIN pool ON pool_task.pool_id = pool.id
ORDER BY wanted.place;

-- terms_ahead --
-- The terms of these tasks that are not over, and begin before an instant.
SELECT pool_task, starts_at, ends_at, over_at, seats, tries, reason, try_at
FROM term
WHERE pool_task = ANY($1::uuid []) AND over_at > $2 AND starts_at < $3
ORDER BY starts_at, pool_task;

-- seats_of_terms --
-- The ordinary tasks that hold the seats of these tasks in terms that are not over, with the term and the number.
SELECT seat.task_id, seat.pool_task, seat.term, seat.place
FROM seat
INNER JOIN term ON seat.pool_task = term.pool_task AND seat.term = term.starts_at
WHERE seat.pool_task = ANY($1::uuid []) AND seat.lost_at IS NULL AND term.over_at > $2
ORDER BY seat.task_id, seat.place;

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
-- A term that an edit gave up may begin again.
INSERT INTO term (pool_task, starts_at, ends_at, over_at, seats, try_at)
SELECT * FROM unnest(
    $1::uuid [], $2::timestamptz [], $3::timestamptz [], $4::timestamptz [], $5::smallint [], $6::timestamptz []
)
ON CONFLICT (pool_task, starts_at) DO UPDATE SET
    ends_at = excluded.ends_at, over_at = excluded.over_at, seats = excluded.seats, tries = 0, try_at = excluded.try_at,
    reason = NULL;

-- go_on --
-- Unless an edit has changed it meanwhile.
UPDATE pool_task
SET next_slot = $3, due_at = $4, rounds_left = $5
WHERE task_id = $1 AND next_slot = $2
RETURNING task_id;

-- terms_due --
-- The terms that an episode decides on: an urgent, near term gets an episode of its own. Otherwise whole hours: the nearest
-- one, and the next ones while there are not too many terms. Also the number of all due terms. With $6, also the blocked
-- terms of these hours and earlier ones, and of those up to the hour $6 since the epoch: they found no time before and are
-- not due again yet, but others may have to wait for them.
WITH waiting AS (
    SELECT
        term.*,
        CASE
            WHEN campaign.level = 10 AND term.starts_at < $3 THEN -1
            ELSE floor(extract(EPOCH FROM term.starts_at) / 3600)
        END AS hour
    FROM term
    INNER JOIN task ON term.pool_task = task.id
    LEFT JOIN campaign ON task.campaign = campaign.name
    WHERE term.pool_task = ANY($1::uuid []) AND term.try_at <= $2
),

placed AS (
    SELECT
        *, min(hour) OVER () AS first, count(*) OVER () AS waiting, count(*) OVER (ORDER BY hour) AS through,
        row_number() OVER (ORDER BY hour, starts_at, pool_task) AS place
    FROM waiting
),

chosen AS (
    SELECT pool_task, starts_at, ends_at, over_at, seats, tries, reason, try_at, waiting, hour
    FROM placed
    WHERE (hour = first OR first >= 0 AND through <= $4) AND place <= $5
)

SELECT pool_task, starts_at, ends_at, over_at, seats, tries, reason, try_at, waiting, false AS blocked FROM chosen
UNION ALL
SELECT * FROM (
    SELECT
        term.pool_task, term.starts_at, term.ends_at, term.over_at, term.seats, term.tries, term.reason, term.try_at,
        last.waiting, true
    FROM (SELECT greatest(max(hour), $6::integer) AS hour, coalesce(max(waiting), 0) AS waiting FROM chosen) AS last
    INNER JOIN term ON floor(extract(EPOCH FROM term.starts_at) / 3600) <= last.hour
    WHERE term.pool_task = ANY($1::uuid []) AND term.try_at > $2 AND term.tries > 0 AND $6 IS NOT NULL
    ORDER BY term.starts_at, term.pool_task
    LIMIT $5
) AS blocked
ORDER BY starts_at, pool_task;

-- taken --
-- The current holders of the seats of these terms.
SELECT seat.pool_task, seat.term, seat.place, seat.node
FROM unnest($1::uuid [], $2::timestamptz []) AS due (pool_task, term)
INNER JOIN seat ON due.pool_task = seat.pool_task AND due.term = seat.term AND seat.lost_at IS NULL
ORDER BY seat.pool_task, seat.term, seat.place;

-- last_holders --
-- The last holder of each seat.
SELECT DISTINCT ON (pool_task, place) pool_task, place, node
FROM seat
WHERE pool_task = ANY($1::uuid []) AND lost_at IS NULL
ORDER BY pool_task, place, term DESC;

-- used_at --
SELECT pool_task, node, max(term) AS used_at
FROM seat
WHERE pool_task = ANY($1::uuid [])
GROUP BY pool_task, node;

-- turned_down --
-- How often each node refused seats of these pool tasks as they are now since a time, or since it was pardoned, when last, and
-- why. The spec of a seat has
-- the nodes where that of the pool task has an empty list or nothing. Of seats that are taken together, only the nodes that
-- refused count, if it is known which did.
SELECT
    seat.pool_task, seat.node, count(*)::integer AS times, max(seat.lost_at) AS last_at,
    (array_agg(seat.reason ORDER BY seat.lost_at DESC, seat.term, seat.place))[1] AS reason
FROM seat
INNER JOIN task ON seat.task_id = task.id AND task.state = 'refused'
INNER JOIN task AS whole ON seat.pool_task = whole.id
LEFT JOIN node ON seat.node = node.identity
WHERE
    seat.pool_task = ANY($1::uuid []) AND seat.lost_at > greatest($2, node.pardoned_at)
    AND task.test = whole.test AND task.tools = whole.tools
    AND NOT EXISTS (
        SELECT FROM jsonb_each(whole.spec) AS stated
        WHERE jsonb_typeof(stated.value) NOT IN ('null', 'array') AND task.spec -> stated.key IS DISTINCT FROM stated.value
    )
    AND (
        task.participants @> jsonb_build_array(jsonb_build_object('node', seat.node, 'accepted', false))
        OR NOT task.participants @> '[{"accepted": false}]'
    )
GROUP BY seat.pool_task, seat.node;

-- measured_to --
-- For lost seats: the last slot that was or is being measured; the next holder continues after it.
SELECT seat.pool_task, seat.term, seat.place, max(run.slot) AS slot
FROM unnest($1::uuid [], $2::timestamptz []) AS due (pool_task, term)
INNER JOIN seat ON due.pool_task = seat.pool_task AND due.term = seat.term AND seat.lost_at IS NOT NULL
INNER JOIN run ON seat.task_id = run.task_id AND run.state IN ('running', 'merging', 'finished', 'failed')
GROUP BY seat.pool_task, seat.term, seat.place;

-- revision_of --
-- Locks the tasks and the pool: a task that is being changed, or whose pool is being reserved, gets no seats. The change
-- waits for this transaction, or has come first.
SELECT task.revision
FROM task
INNER JOIN pool_task ON task.id = pool_task.task_id
INNER JOIN pool ON pool_task.pool_id = pool.id
WHERE task.id = $1 AND task.state = 'active'
FOR SHARE OF task, pool;

-- take --
-- One node per seat and one seat per node: what was taken meanwhile is not assigned again.
INSERT INTO seat (pool_task, term, place, node, task_id, taken_at)
SELECT $1, $2, given.place, given.node, given.task_id, $3
FROM unnest($4::smallint [], $5::text [], $6::uuid []) AS given (place, node, task_id)
ON CONFLICT DO NOTHING
RETURNING place;

-- adopt --
-- The runs that may give way to the runs of these tasks: any of lower priority, or only the listed ones. And their starts.
UPDATE task
SET
    parent = $1,
    requester = whole.requester,
    limit_user = whole.limit_user,
    limit_address = whole.limit_address,
    limit_bound = coalesce(whole.limit_bound, false),
    limit_rule = whole.limit_rule,
    limit_refusal = whole.limit_refusal,
    run_bytes = whole.run_bytes,
    yielding = CASE WHEN NOT given.any_run THEN ARRAY(
        SELECT named.yielding FROM unnest($4::uuid [], $5::uuid []) AS named (task_id, yielding)
        WHERE named.task_id = given.task_id ORDER BY named.yielding
    ) END,
    starts = ARRAY(
        SELECT found.starts_at FROM unnest($6::uuid [], $7::timestamptz []) AS found (task_id, starts_at)
        WHERE found.task_id = given.task_id ORDER BY found.starts_at
    )
FROM unnest($2::uuid [], $3::boolean []) AS given (task_id, any_run)
LEFT JOIN task AS whole ON whole.id = $1
WHERE task.id = given.task_id;

-- tried --
-- When the next search for the empty seats of a term is, and why they are empty. Not if the term has changed since it was
-- read, or fewer seats are held than there should be: then the search is repeated with the new state.
UPDATE term SET tries = $3, try_at = $4, reason = $5, wants_room = $10, misses = $11
WHERE
    pool_task = $1 AND starts_at = $2
    AND tries = $6 AND try_at = $7 AND seats = $8
    AND (
        SELECT count(*) FROM seat
        WHERE seat.pool_task = term.pool_task AND seat.term = term.starts_at AND seat.lost_at IS NULL
    ) >= $9
RETURNING pool_task;

-- lacks --
-- What the pools of these tasks lack, stored with each task; null if nothing. Returns the tasks for which it changed.
WITH changed AS (
    SELECT pool_task.task_id, said.reason
    FROM unnest($1::uuid [], $2::text []) AS said (task_id, reason)
    INNER JOIN pool_task ON said.task_id = pool_task.task_id
    WHERE pool_task.reason IS DISTINCT FROM said.reason
    ORDER BY pool_task.task_id
    FOR UPDATE OF pool_task
)

UPDATE pool_task
SET reason = changed.reason
FROM changed
WHERE pool_task.task_id = changed.task_id
RETURNING pool_task.task_id;

-- lost_with_their_tasks --
-- Seats whose task ended early, because it was withdrawn, refused or cancelled. They are assigned again.
WITH ended AS (
    UPDATE seat
    SET lost_at = $1, reason = coalesce(task.reason, '')
    FROM task, task AS whole
    WHERE
        seat.task_id = task.id
        AND seat.lost_at IS NULL
        AND task.state IN ('refused', 'cancelled')
        AND seat.pool_task = whole.id AND whole.state IN ('active', 'paused')
    RETURNING seat.pool_task, seat.term, seat.place, seat.node, seat.reason
),

emptied AS (
    UPDATE term SET try_at = CASE WHEN term.over_at > $1 THEN $1::timestamptz END, tries = 0
    FROM (SELECT DISTINCT pool_task, term FROM ended) AS lost
    WHERE term.pool_task = lost.pool_task AND term.starts_at = lost.term
)

SELECT ended.pool_task, ended.term, ended.place, coalesce(node.name, ended.node) AS name, ended.reason
FROM ended
LEFT JOIN node ON ended.node = node.identity
ORDER BY ended.pool_task, ended.term, ended.place;

-- times_lost --
-- How often each node that had a seat of this task in this term lost it.
SELECT coalesce(max(counted.times), 0)::integer
FROM (
    SELECT count(*) AS times
    FROM seat
    INNER JOIN seat AS before
        ON seat.pool_task = before.pool_task AND seat.term = before.term AND seat.place = before.place
    WHERE seat.task_id = $1 AND before.task_id <> $1 AND before.lost_at IS NOT NULL
    GROUP BY seat.place
) AS counted;

-- asking --
-- Every active pool task, with what its pool lacks.
SELECT task.id, task.test, task.spec, task.tools, pool.name AS pool, pool_task.request, pool_task.reason
FROM pool_task
INNER JOIN task ON pool_task.task_id = task.id
INNER JOIN pool ON pool_task.pool_id = pool.id
WHERE task.state = 'active'
ORDER BY task.id;

-- try_all --
-- Attributes of nodes, pools or campaigns have changed: search now for all that wait.
UPDATE term SET try_at = $1 WHERE try_at > $1;

-- try_during --
-- Runs led here no longer take these spans: search now for the seats that found no time in them.
WITH woken AS (
    UPDATE term SET try_at = $3
    FROM unnest($1::timestamptz [], $2::timestamptz []) AS freed (starts_at, ends_at)
    WHERE
        term.try_at > $3 AND term.tries > 0
        AND term.starts_at < freed.ends_at AND term.over_at > freed.starts_at
    RETURNING term.pool_task
)

SELECT DISTINCT pool_task FROM woken;

-- try_after --
-- These pool tasks do not want any more what they wanted, and found no nodes for: search now for the seats of the same pools
-- that may have waited for theirs.
WITH woken AS (
    UPDATE term SET try_at = $2
    FROM pool_task AS own
    INNER JOIN pool_task AS other ON own.pool_id = other.pool_id AND own.task_id <> other.task_id
    WHERE
        own.task_id = ANY($1::uuid []) AND term.pool_task = other.task_id
        AND term.try_at > $2 AND term.tries > 0
        AND EXISTS (SELECT FROM term AS empty WHERE empty.pool_task = own.task_id AND empty.try_at IS NOT NULL)
    RETURNING term.pool_task
)

SELECT DISTINCT pool_task FROM woken;

-- put_off --
-- Postpones searches that are due, with a reason or that of before.
UPDATE term SET try_at = $3, reason = coalesce($4, reason) WHERE pool_task = ANY($1::uuid []) AND try_at <= $2;

-- sitting --
-- The seats of active pool tasks that are held and not over.
SELECT DISTINCT seat.pool_task, seat.node, seat.task_id
FROM seat
INNER JOIN term ON seat.pool_task = term.pool_task AND seat.term = term.starts_at
INNER JOIN task ON seat.pool_task = task.id
WHERE seat.lost_at IS NULL AND term.over_at > $1 AND task.state = 'active'
ORDER BY seat.pool_task, seat.task_id, seat.node;

-- seats_ahead --
-- The ordinary tasks of a pool's seats in terms that begin in this period and are not over, the youngest first.
SELECT seat.task_id
FROM pool
INNER JOIN pool_task ON pool.id = pool_task.pool_id
INNER JOIN term ON pool_task.task_id = term.pool_task AND term.starts_at >= $2 AND term.starts_at < $3 AND term.over_at > $5
INNER JOIN seat ON term.pool_task = seat.pool_task AND term.starts_at = seat.term AND seat.lost_at IS NULL
WHERE pool.name = $1
GROUP BY seat.task_id
ORDER BY max(seat.taken_at) DESC, seat.task_id
LIMIT $4;

-- policy_state --
SELECT policy_state.state, policy_state.revision
FROM policy_state
INNER JOIN pool ON policy_state.pool_id = pool.id
WHERE pool.name = $1;

-- keep_policy_state --
-- Only in the revision that was read; otherwise another episode of the pool has come first.
INSERT INTO policy_state (pool_id, state, revision, changed_at)
SELECT pool.id, $2, $3::bigint + 1, $4 FROM pool WHERE pool.name = $1
ON CONFLICT (pool_id) DO UPDATE
SET state = excluded.state, revision = excluded.revision, changed_at = excluded.changed_at
WHERE policy_state.revision = $3
RETURNING revision;

-- tell_misses --
-- Notes of which campaigns runs are expected to miss their latest start, as seen now, and returns what has changed since it
-- was last told.
WITH missing AS (
    SELECT pool_task.pool_id, array_agg(DISTINCT coalesce(task.campaign, 'default')) AS campaigns
    FROM term
    INNER JOIN pool_task ON term.pool_task = pool_task.task_id
    INNER JOIN task ON term.pool_task = task.id
    WHERE
        term.misses <> '{}' AND term.misses[cardinality(term.misses)] > $1
        AND term.try_at IS NOT NULL AND task.state = 'active'
    GROUP BY pool_task.pool_id
),

changed AS (
    SELECT policy_state.pool_id, policy_state.missing AS before, coalesce(missing.campaigns, '{}') AS after
    FROM policy_state
    LEFT JOIN missing ON policy_state.pool_id = missing.pool_id
    WHERE policy_state.missing <> coalesce(missing.campaigns, '{}')
    ORDER BY policy_state.pool_id
    FOR UPDATE OF policy_state
)

UPDATE policy_state
SET missing = changed.after
FROM changed, pool
WHERE policy_state.pool_id = changed.pool_id AND pool.id = changed.pool_id
RETURNING pool.name, changed.before, changed.after;

-- used_by_hour --
-- What each campaign was charged for on these nodes (null: on all, also those that another lead alone knows), hour by hour;
-- thousandths of a seat times microseconds.
SELECT campaign.name, charge_hour.hour, sum(charge_hour.amount)::bigint AS amount
FROM charge_hour
INNER JOIN campaign ON charge_hour.campaign_id = campaign.id
WHERE
    charge_hour.hour >= $1 AND charge_hour.hour < $2 AND ($3::text [] IS NULL OR charge_hour.node = ANY($3))
GROUP BY campaign.name, charge_hour.hour
ORDER BY campaign.name, charge_hour.hour;

-- booked --
-- The runs led here that lie in this period and involve one of these nodes, or are of one of these campaigns.
SELECT
    run.id, run.task_id, coalesce(task.campaign, 'default') AS campaign, run.starts_at, run.ends_at,
    run.scheduling_class::text, run.priority, run.state = 'running' AS running,
    (SELECT array_agg(place.value ->> 'node') FROM jsonb_array_elements(task.participants) AS place) AS nodes
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE
    run.state IN ('booked', 'running', 'merging')
    AND run.starts_at < $2 AND run.ends_at > $1
    AND task.lead = (SELECT identity FROM node WHERE is_self)
    AND (
        coalesce(task.campaign, 'default') = ANY($5::text [])
        OR EXISTS (
            SELECT FROM jsonb_array_elements(task.participants) AS place WHERE place.value ->> 'node' = ANY($3::text [])
        )
    )
ORDER BY run.starts_at, run.id
LIMIT $4;

-- to_come --
-- Tasks that were just created for seats: nothing is booked or charged for them yet.
SELECT
    task.id, coalesce(task.campaign, 'default') AS campaign, task.schedule, task.duration, task.created_at,
    task.scheduling_class::text, task.priority,
    (SELECT array_agg(place.value ->> 'node') FROM jsonb_array_elements(task.participants) AS place) AS nodes,
    coalesce(task.starts, '{}') AS starts
FROM planning
INNER JOIN task ON planning.task_id = task.id
WHERE
    planning.planned_to IS NULL AND planning.plan_at IS NOT NULL
    AND task.parent IS NOT NULL AND task.state = 'active'
    AND EXISTS (SELECT FROM jsonb_array_elements(task.participants) AS place WHERE place.value ->> 'node' = ANY($1::text []))
ORDER BY task.created_at, task.id;

-- tests_of --
-- The tests of these tasks.
SELECT id, test, spec FROM task WHERE id = ANY($1::uuid []) ORDER BY id;

-- failed --
-- By node and campaign, the number of failed runs of seats since then, or since the node was pardoned.
SELECT seat.node, coalesce(task.campaign, 'default') AS campaign, count(*) AS runs
FROM run
INNER JOIN seat ON run.task_id = seat.task_id
INNER JOIN task ON run.task_id = task.id
LEFT JOIN node ON seat.node = node.identity
WHERE
    run.state = 'failed' AND run.finished_at >= greatest($1, node.pardoned_at) AND seat.node = ANY($2::text [])
GROUP BY seat.node, coalesce(task.campaign, 'default')
ORDER BY seat.node, campaign;
