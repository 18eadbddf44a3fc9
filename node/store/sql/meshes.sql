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
SELECT DISTINCT ON (key) key, source, dest, test, state
FROM mesh_task
WHERE
    mesh = $1 AND key >= coalesce($2::text, '') AND ($2 IS NULL OR key > $2)
    AND ($4::text IS NULL OR requester = $4)
ORDER BY key, created_at DESC, task_id DESC
LIMIT $3;

-- mesh_outcomes --
-- How often each outcome occurred, over the whole mesh. Of gaps, only the slots in the span count.
SELECT
    outcome,
    CASE WHEN outcome = 'missing' THEN state END AS state,
    CASE WHEN outcome = 'missing' THEN cause END AS cause,
    sum(slots)::bigint AS slots,
    (array_agg(reason ORDER BY slot DESC) FILTER (WHERE outcome = 'missing'))[1] AS example
FROM (
    SELECT outcome, state, cause, 1 AS slots, reason, slot
    FROM mesh_delivery
    WHERE mesh = $1 AND slot >= $2 AND slot < $3 AND ($4::text IS NULL OR requester = $4)
    UNION ALL
    SELECT
        'missing', 'unplaced', cause,
        slots_before($3, first_slot, last_slot, slots) - slots_before($2, first_slot, last_slot, slots), reason, first_slot
    FROM mesh_gap
    WHERE mesh = $1 AND last_slot >= $2 AND first_slot < $3 AND ($4 IS NULL OR requester = $4)
) AS told
WHERE slots > 0
GROUP BY 1, 2, 3
ORDER BY slots DESC, outcome, state, cause;

-- mesh_outcomes_of --
-- The same for each key from one to another. Other keys are not read, whatever the planner's estimates are: read page by
-- page, a large mesh is read once.
SELECT
    key,
    outcome,
    CASE WHEN outcome = 'missing' THEN state END AS state,
    CASE WHEN outcome = 'missing' THEN cause END AS cause,
    sum(slots)::bigint AS slots,
    (array_agg(reason ORDER BY slot DESC) FILTER (WHERE outcome = 'missing'))[1] AS example
FROM (
    SELECT key, outcome, state, cause, 1 AS slots, reason, slot
    FROM mesh_delivery
    WHERE
        mesh = $1 AND key >= $4 AND key <= $5 AND slot >= $2 AND slot < $3
        AND ($6::text IS NULL OR requester = $6)
    UNION ALL
    SELECT
        key, 'missing', 'unplaced', cause,
        slots_before($3, first_slot, last_slot, slots) - slots_before($2, first_slot, last_slot, slots), reason, first_slot
    FROM mesh_gap
    WHERE
        mesh = $1 AND key >= $4 AND key <= $5 AND last_slot >= $2 AND first_slot < $3
        AND ($6 IS NULL OR requester = $6)
) AS told
WHERE slots > 0
GROUP BY 1, 2, 3, 4
ORDER BY slots DESC, outcome, state, cause;
