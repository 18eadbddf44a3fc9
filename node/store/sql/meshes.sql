-- meshes --
-- Every mesh led here, by name: number of tasks by state, campaigns, and dates. The last parameter of each query of this file is
-- the user whose tasks alone count; null: those of all.
SELECT
    counted.mesh,
    jsonb_object_agg(counted.state, counted.tasks) AS tasks,
    (SELECT array_agg(DISTINCT each.name ORDER BY each.name)
        FROM unnest(string_to_array(string_agg(counted.campaigns, ','), ',')) AS each (name)) AS campaigns,
    min(counted.created_at) AS created_at,
    max(counted.changed_at) AS changed_at
FROM (
    SELECT
        mesh, state,
        count(*) AS tasks,
        string_agg(DISTINCT coalesce(campaign, 'default'), ',') AS campaigns,
        min(created_at) AS created_at,
        max(created_at) AS changed_at
    FROM mesh_task
    WHERE
        ($1::text IS NULL OR mesh = $1) AND mesh ~ '^[a-z][a-z0-9-]{0,62}$'
        AND ($2::text IS NULL OR requester = $2)
    GROUP BY mesh, state
) AS counted
GROUP BY counted.mesh
ORDER BY counted.mesh COLLATE "C";

-- has_mesh --
SELECT EXISTS (SELECT FROM mesh_task WHERE mesh = $1 AND ($2::text IS NULL OR requester = $2));

-- mesh_tasks --
-- The tasks to compare with a mesh file: for each key those that are not over, and the newest one; the newest first.
SELECT
    task.id, mesh_task.key, mesh_task.state, task.revision, task.test, task.spec, task.tools, task.schedule,
    task.priority, task.campaign, task.reference, task.scheduling_class::text, task.duration, task.participants, task.created_at
FROM mesh_task
INNER JOIN task ON mesh_task.task_id = task.id
WHERE
    mesh_task.mesh = $1
    AND mesh_task.key >= coalesce($2::text, '')
    AND ($2 IS NULL OR mesh_task.key > $2 OR (mesh_task.created_at, mesh_task.task_id) < ($3::timestamptz, $4::uuid))
    AND (
        mesh_task.state IN ('active', 'paused')
        OR NOT EXISTS (
            SELECT FROM mesh_task AS later
            WHERE
                later.mesh = mesh_task.mesh
                AND later.key = mesh_task.key
                AND ($6::text IS NULL OR later.requester = $6)
                AND (later.created_at, later.task_id) > (mesh_task.created_at, mesh_task.task_id)
        )
    )
    AND ($6 IS NULL OR mesh_task.requester = $6)
ORDER BY mesh_task.key, mesh_task.created_at DESC, mesh_task.task_id DESC
LIMIT $5;

-- mesh_keys --
-- The keys of a mesh in their order, each with its newest task.
SELECT DISTINCT ON (mesh_task.key)
    mesh_task.key, mesh_task.source, mesh_task.dest, mesh_task.test, mesh_task.state, task.reference -> 'thresholds' AS thresholds,
    task.reason
FROM mesh_task
INNER JOIN task ON mesh_task.task_id = task.id
WHERE
    mesh_task.mesh = $1 AND mesh_task.key >= coalesce($2::text, '') AND ($2 IS NULL OR mesh_task.key > $2)
    AND ($4::text IS NULL OR mesh_task.requester = $4)
ORDER BY mesh_task.key, mesh_task.created_at DESC, mesh_task.task_id DESC
LIMIT $3;

-- refused_pairs --
-- The pairs whose keys lie behind one and not behind another (null: no bound) that were refused after their newest task.
SELECT mesh_refusal.key, mesh_refusal.source, mesh_refusal.dest, mesh_refusal.test, 'refused' AS state, NULL::jsonb AS thresholds,
    mesh_refusal.reason
FROM mesh_refusal
WHERE
    mesh_refusal.mesh = $1 AND mesh_refusal.key > coalesce($2::text, '') AND ($3::text IS NULL OR mesh_refusal.key <= $3)
    AND ($4::text IS NULL OR mesh_refusal.requester = $4)
    AND ($6::text [] IS NULL OR mesh_refusal.key = ANY($6))
    AND NOT EXISTS (
        SELECT FROM mesh_task
        WHERE
            mesh_task.mesh = mesh_refusal.mesh AND mesh_task.key = mesh_refusal.key
            AND mesh_task.created_at > mesh_refusal.told_at
    )
ORDER BY mesh_refusal.key
LIMIT $5;

-- keep_refusals --
INSERT INTO mesh_refusal (mesh, key, source, dest, test, reason, requester, told_at)
SELECT given.mesh, given.key, given.source, given.dest, given.test, given.reason, $7, $8
FROM unnest($1::text [], $2::text [], $3::text [], $4::text [], $5::text [], $6::text [])
    AS given (mesh, key, source, dest, test, reason)
ORDER BY given.mesh, given.key
ON CONFLICT (mesh, key) DO UPDATE SET
    source = excluded.source,
    dest = excluded.dest,
    test = excluded.test,
    reason = excluded.reason,
    requester = excluded.requester,
    told_at = excluded.told_at;

-- purge_refusals --
WITH gone AS (
    DELETE FROM mesh_refusal
    WHERE (mesh, key) IN (SELECT mesh, key FROM mesh_refusal WHERE told_at < $1 ORDER BY told_at LIMIT $2)
    RETURNING key
)

SELECT count(*) FROM gone;

-- mesh_outcomes --
-- How often each outcome occurred, over the whole mesh. Of gaps, only the slots in the span count.
SELECT
    counted.outcome, counted.state, counted.cause, counted.slots,
    CASE WHEN counted.outcome = 'missing' THEN coalesce(example.reason, counted.cause) END AS example
FROM (
    SELECT
        each.outcome, each.state, each.cause,
        sum(each.slots)::bigint AS slots,
        (max(ARRAY[each.latest::text, each.task_id::text]) FILTER (WHERE each.outcome = 'missing' AND each.slots > 0))[2]::uuid AS task_id,
        row_number() OVER (PARTITION BY each.outcome ORDER BY sum(each.slots) DESC) AS place
    FROM (
        SELECT
            slot_outcome(state) AS outcome, CASE WHEN slot_outcome(state) = 'missing' THEN state END AS state,
            cause, task_id, slots, latest
        FROM mesh_slots($1, $2, $3, NULL, NULL, $4)
    ) AS each
    GROUP BY each.outcome, each.state, each.cause
    HAVING sum(each.slots) > 0
) AS counted
LEFT JOIN LATERAL (
    SELECT told.reason
    FROM (
        SELECT mesh_delivery.reason, mesh_delivery.slot
        FROM mesh_delivery
        WHERE
            mesh_delivery.task_id = counted.task_id AND mesh_delivery.mesh = $1 AND ($4 IS NULL OR mesh_delivery.requester = $4)
            AND mesh_delivery.slot >= $2 AND mesh_delivery.slot < $3
            AND mesh_delivery.state = counted.state AND mesh_delivery.cause = counted.cause
        UNION ALL
        SELECT mesh_gap.reason, mesh_gap.first_slot
        FROM mesh_gap
        WHERE
            mesh_gap.task_id = counted.task_id AND mesh_gap.mesh = $1 AND ($4 IS NULL OR mesh_gap.requester = $4)
            AND mesh_gap.last_slot >= $2 AND mesh_gap.first_slot < $3
            AND counted.state = 'unplaced' AND mesh_gap.cause = counted.cause
    ) AS told
    ORDER BY told.slot DESC
    LIMIT 1
) AS example ON counted.outcome = 'missing' AND counted.place <= 20
ORDER BY counted.slots DESC, counted.outcome, counted.state, counted.cause;

-- mesh_outcomes_of --
-- The same for each key from one to another. Other keys are not read, whatever the planner's estimates are: read page by
-- page, a large mesh is read once.
SELECT
    counted.key, counted.outcome, counted.state, counted.cause, counted.slots,
    CASE WHEN counted.outcome = 'missing' THEN coalesce(example.reason, counted.cause) END AS example
FROM (
    SELECT
        each.key, each.outcome, each.state, each.cause,
        sum(each.slots)::bigint AS slots,
        (max(ARRAY[each.latest::text, each.task_id::text]) FILTER (WHERE each.outcome = 'missing' AND each.slots > 0))[2]::uuid AS task_id,
        row_number() OVER (PARTITION BY each.key, each.outcome ORDER BY sum(each.slots) DESC) AS place
    FROM (
        SELECT
            key, slot_outcome(state) AS outcome, CASE WHEN slot_outcome(state) = 'missing' THEN state END AS state,
            cause, task_id, slots, latest
        FROM mesh_slots($1, $2, $3, $4, $5, $6)
    ) AS each
    GROUP BY each.key, each.outcome, each.state, each.cause
    HAVING sum(each.slots) > 0
) AS counted
LEFT JOIN LATERAL (
    SELECT told.reason
    FROM (
        SELECT mesh_delivery.reason, mesh_delivery.slot
        FROM mesh_delivery
        WHERE
            mesh_delivery.task_id = counted.task_id AND mesh_delivery.mesh = $1 AND mesh_delivery.key = counted.key
            AND ($6 IS NULL OR mesh_delivery.requester = $6)
            AND mesh_delivery.slot >= $2 AND mesh_delivery.slot < $3
            AND mesh_delivery.state = counted.state AND mesh_delivery.cause = counted.cause
        UNION ALL
        SELECT mesh_gap.reason, mesh_gap.first_slot
        FROM mesh_gap
        WHERE
            mesh_gap.task_id = counted.task_id AND mesh_gap.mesh = $1 AND mesh_gap.key = counted.key
            AND ($6 IS NULL OR mesh_gap.requester = $6)
            AND mesh_gap.last_slot >= $2 AND mesh_gap.first_slot < $3
            AND counted.state = 'unplaced' AND mesh_gap.cause = counted.cause
    ) AS told
    ORDER BY told.slot DESC
    LIMIT 1
) AS example ON counted.outcome = 'missing' AND counted.place <= 20
ORDER BY counted.slots DESC, counted.outcome, counted.state, counted.cause;

-- worst_keys --
-- The keys with the smallest share of delivered slots that are not bad, but for those without others.
SELECT key
FROM mesh_slots($1, $2, $3, NULL, NULL, $5)
WHERE slot_outcome(state) <> 'open'
GROUP BY key
HAVING sum(slots) FILTER (WHERE state <> 'finished' OR cause IS NOT NULL) > 0
ORDER BY
    coalesce(sum(slots) FILTER (WHERE state = 'finished' AND cause IS NULL), 0)::double precision / sum(slots), key COLLATE "C"
LIMIT $4;

-- newest_of_keys --
SELECT DISTINCT ON (mesh_task.key)
    mesh_task.key, mesh_task.source, mesh_task.dest, mesh_task.test, mesh_task.state, task.reference -> 'thresholds' AS thresholds,
    task.reason
FROM mesh_task
INNER JOIN task ON mesh_task.task_id = task.id
WHERE mesh_task.mesh = $1 AND mesh_task.key = ANY($2::text []) AND ($3::text IS NULL OR mesh_task.requester = $3)
ORDER BY mesh_task.key, mesh_task.created_at DESC, mesh_task.task_id DESC;

-- latest_of_keys --
-- The latest result of each key before an instant, among the last runs of each of its tasks: a task that has failed for weeks
-- is not read back to its beginning.
SELECT DISTINCT ON (wanted.key)
    wanted.key, own.test, latest.id, latest.ends_at, latest.summary, latest.verdict, latest.result,
    judgement_at('good', latest.ends_at, task_interval(own.task_id, own.repeat, latest.every, $3), $3) = 'stale' AS is_stale
FROM unnest($2::text []) AS wanted (key)
CROSS JOIN LATERAL (
    SELECT mesh_task.task_id, mesh_task.test, task.schedule ->> 'repeat' AS repeat
    FROM mesh_task
    INNER JOIN task ON mesh_task.task_id = task.id
    WHERE mesh_task.mesh = $1 AND mesh_task.key = wanted.key AND ($4::text IS NULL OR mesh_task.requester = $4)
    OFFSET 0
) AS own
CROSS JOIN LATERAL (
    SELECT newest.*
    FROM (
        SELECT run.id, run.slot, run.ends_at, run.every, run.state, run.summary, run.verdict, run.result
        FROM run
        WHERE run.task_id = own.task_id AND run.slot < $3::timestamptz
        ORDER BY run.slot DESC, run.attempt DESC
        LIMIT 300
    ) AS newest
    WHERE newest.state = 'finished' AND newest.result IS NOT NULL
    ORDER BY newest.slot DESC
    LIMIT 1
) AS latest
ORDER BY wanted.key, latest.ends_at DESC;

-- newest_outcomes_of_keys --
-- What is to be thought of these keys at an instant: the judgement of the newest slot of any of their tasks.
SELECT DISTINCT ON (mesh_task.key) mesh_task.key, newest.judgement, newest.code, newest.reason, newest.ended_at
FROM mesh_task
INNER JOIN task ON mesh_task.task_id = task.id
CROSS JOIN LATERAL newest_outcome(task.id, task.schedule ->> 'repeat', $3) AS newest
WHERE mesh_task.mesh = $1 AND mesh_task.key = ANY($2::text []) AND ($4::text IS NULL OR mesh_task.requester = $4)
ORDER BY mesh_task.key, newest.slot DESC;

-- matrix --
-- Each pair of a mesh at $2 in few words: the state of the newest task with its key, the judgement of the newest slot of any of
-- them, and how far its figures can be trusted. Pairs whose tasks have ended, and that have had no slot since $4, are left out.
SELECT known.key, known.test, known.state, known.judgement, known.verdict
FROM (
    SELECT DISTINCT ON (mesh_task.key)
        mesh_task.key, mesh_task.test, newest.judgement, newest.slot, run.verdict,
        first_value(mesh_task.state)
            OVER (PARTITION BY mesh_task.key ORDER BY mesh_task.created_at DESC, mesh_task.task_id DESC) AS state
    FROM mesh_task
    INNER JOIN task ON mesh_task.task_id = task.id
    LEFT JOIN LATERAL newest_outcome(task.id, task.schedule ->> 'repeat', $2) AS newest ON TRUE
    LEFT JOIN run ON newest.run_id = run.id
    WHERE mesh_task.mesh = $1 AND ($3::text IS NULL OR mesh_task.requester = $3)
    ORDER BY mesh_task.key, newest.slot DESC NULLS LAST
) AS known
WHERE known.state IN ('active', 'paused', 'refused') OR known.slot >= $4
ORDER BY known.key;

-- sum_up_hours --
-- Sums up the hours of tasks whose slots have changed, and returns how many changes that were. One process at a time does
-- so (see "lock_sums"), and all of it reads one snapshot: what is committed meanwhile has a mark of its own. Tasks that somebody
-- changes are left for the next time, so that nothing is waited for.
WITH chosen AS (
    SELECT id, task_id, hour FROM mesh_recount ORDER BY id LIMIT $1
),
known AS (
    SELECT id FROM task WHERE id IN (SELECT task_id FROM chosen) ORDER BY id FOR KEY SHARE SKIP LOCKED
),
taken AS (
    DELETE FROM mesh_recount
    WHERE id IN (
        SELECT chosen.id FROM chosen
        WHERE
            chosen.task_id IN (SELECT known.id FROM known)
            OR NOT EXISTS (SELECT FROM task WHERE task.id = chosen.task_id)
    )
    RETURNING id
),
hours AS (
    SELECT DISTINCT chosen.task_id, chosen.hour, date_bin('1 day', chosen.hour, 'epoch') AS day
    FROM chosen INNER JOIN known ON chosen.task_id = known.id
),
gone AS (
    DELETE FROM mesh_day USING (SELECT DISTINCT task_id, day FROM hours) AS changed
    WHERE mesh_day.task_id = changed.task_id AND mesh_day.day = changed.day
    RETURNING mesh_day.*
),
counted AS (
    SELECT
        gone.task_id, gone.day, gone.state, gone.cause, every.hour,
        slots_within(gone.sums, every.hour, every.hour + 1)::bigint AS slots, gone.last_slot
    FROM gone CROSS JOIN generate_series(0, 23) AS every (hour)
    WHERE
        slots_within(gone.sums, every.hour, every.hour + 1) > 0
        AND NOT EXISTS (
            SELECT FROM hours
            WHERE hours.task_id = gone.task_id AND hours.hour = gone.day + every.hour * interval '1 hour'
        )
    UNION ALL
    SELECT
        hours.task_id, hours.day, slot.state::run_state, slot.cause,
        (extract(EPOCH FROM hours.hour - hours.day) / 3600)::integer, count(*), max(slot.slot)
    FROM hours
    CROSS JOIN LATERAL (
        SELECT mesh_delivery.*
        FROM mesh_delivery
        WHERE
            mesh_delivery.task_id = hours.task_id
            AND mesh_delivery.slot >= hours.hour AND mesh_delivery.slot < hours.hour + interval '1 hour'
        OFFSET 0
    ) AS slot
    WHERE slot.outcome <> 'open'
    GROUP BY 1, 2, 3, 4, 5
),
added AS (
    INSERT INTO mesh_day (task_id, day, mesh, key, requester, state, cause, sums, last_slot)
    SELECT
        counted.task_id, counted.day, mesh_task.mesh, mesh_task.key, mesh_task.requester, counted.state, counted.cause,
        running_sums(array_agg(counted.hour), array_agg(counted.slots)), max(counted.last_slot)
    FROM counted INNER JOIN mesh_task ON counted.task_id = mesh_task.task_id
    GROUP BY counted.task_id, counted.day, mesh_task.mesh, mesh_task.key, mesh_task.requester, counted.state, counted.cause
)

SELECT count(*) FROM taken;

-- lock_sums --
SELECT pg_try_advisory_xact_lock(6427018315);
