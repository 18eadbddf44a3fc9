-- counted --
-- The booked runs that count toward the limits of these campaigns and lie in this period. What is only held does not count:
-- it is counted when it is decided, in the same transaction, which locks the campaigns.
SELECT
    run.task_id, campaign.name AS campaign, run.starts_at, run.ends_at, run.scheduling_class::text,
    (SELECT array_agg(place.value ->> 'node') FROM jsonb_array_elements(task.participants) AS place) AS nodes
FROM campaign
INNER JOIN planning ON campaign.id = planning.campaign_id
INNER JOIN task ON planning.task_id = task.id
INNER JOIN run ON task.id = run.task_id
WHERE
    campaign.name = ANY($1::text [])
    AND run.state IN ('booked', 'set-aside', 'running', 'merging')
    AND run.starts_at < $3 AND run.ends_at > $2
    AND (
        EXISTS (SELECT FROM negotiation WHERE negotiation.id = run.exchange_id AND negotiation.state = 'committed')
        OR EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
    )
ORDER BY run.starts_at, run.id;

-- is_contested --
-- Whether a task of another campaign has a run that waits for time on one of these nodes: then soft limits apply.
WITH RECURSIVE suspended AS (
    SELECT id FROM campaign WHERE level = 0
    UNION
    SELECT campaign.id FROM campaign INNER JOIN suspended ON campaign.parent_id = suspended.id
)

SELECT EXISTS (
    SELECT FROM run
    INNER JOIN planning ON run.task_id = planning.task_id
    INNER JOIN campaign ON planning.campaign_id = campaign.id
    INNER JOIN task ON planning.task_id = task.id
    WHERE
        run.state = 'waiting' AND run.starts_at < $3 AND campaign.name <> $1
        AND campaign.id NOT IN (SELECT id FROM suspended)
        AND EXISTS (
            SELECT FROM jsonb_array_elements(task.participants) AS place WHERE place.value ->> 'node' = ANY($2::text [])
        )
);

-- lock_campaigns --
-- Decisions of one campaign are made one after the other, so that each counts what the others have booked.
SELECT id FROM campaign WHERE name = ANY($1::text []) ORDER BY id FOR NO KEY UPDATE;

-- wake_tasks --
-- A campaign has room again: of the tasks on named nodes that it or its descendants keep waiting, those whose runs come
-- soonest are planned now. A task that is being planned may be about to wait.
WITH RECURSIVE below AS (
    SELECT id FROM campaign WHERE name = ANY($1::text [])
    UNION
    SELECT campaign.id FROM campaign INNER JOIN below ON campaign.parent_id = below.id
),

soonest AS (
    SELECT planning.task_id
    FROM planning
    INNER JOIN below ON planning.campaign_id = below.id
    WHERE (planning.wants_room OR planning.lease_until IS NOT NULL) AND planning.plan_at > $2
    ORDER BY planning.next_run_at, planning.added_at, planning.task_id
    LIMIT $3
    FOR UPDATE OF planning SKIP LOCKED
)

UPDATE planning SET plan_at = $2
FROM soonest
WHERE planning.task_id = soonest.task_id
RETURNING planning.task_id;

-- wake_terms --
-- The same for terms of pool tasks. All of them: policies choose among them.
WITH RECURSIVE below AS (
    SELECT id FROM campaign WHERE name = ANY($1::text [])
    UNION
    SELECT campaign.id FROM campaign INNER JOIN below ON campaign.parent_id = below.id
),

woken AS (
    UPDATE term SET try_at = $2
    FROM planning
    INNER JOIN below ON planning.campaign_id = below.id
    WHERE term.pool_task = planning.task_id AND term.wants_room AND term.try_at > $2
    RETURNING term.pool_task
)

SELECT DISTINCT pool_task FROM woken;
