-- charge --
-- Charges committed runs to the campaigns of their tasks, for each participant. Weights are thousandths of a seat: $6 for
-- an exclusive run, $7 for a normal one (null means one lane of the node), and $8 for others. $10 has, by task, the bytes that a
-- run is expected to move on each participant.
INSERT INTO charge (campaign_id, run_id, participant, node, starts_at, ends_at, weight, bytes, cause, made_at)
SELECT
    seat.campaign_id, booked.run_id, seat.participant, seat.node, booked.starts_at, booked.ends_at, seat.weight,
    seat.bytes, 'booked', $9
FROM (
    SELECT
        committed.number,
        planning.campaign_id,
        (place.ordinality - 1)::smallint AS participant,
        place.value ->> 'node' AS node,
        CASE task.scheduling_class
            WHEN 'exclusive' THEN $6::integer
            WHEN 'normal' THEN coalesce($7::integer, $6 / coalesce(node.lanes, 8))
            ELSE $8::integer
        END AS weight,
        committed.bytes
    FROM unnest($1::uuid [], $10::bigint []) WITH ORDINALITY AS committed (task_id, bytes, number)
    INNER JOIN task ON committed.task_id = task.id
    INNER JOIN planning ON task.id = planning.task_id
    CROSS JOIN LATERAL jsonb_array_elements(task.participants) WITH ORDINALITY AS place
    LEFT JOIN node ON place.value ->> 'node' = node.identity
) AS seat
INNER JOIN unnest($2::integer [], $3::uuid [], $4::timestamptz [], $5::timestamptz [])
    AS booked (number, run_id, starts_at, ends_at)
    ON seat.number = booked.number
WHERE seat.weight > 0 OR seat.bytes > 0;

-- moved_by_hour --
-- The bytes charged to these campaigns, by the hour in which their runs start.
SELECT campaign.name, charge_hour.hour, sum(charge_hour.bytes)::bigint AS bytes
FROM campaign
INNER JOIN charge_hour ON campaign.id = charge_hour.campaign_id
WHERE
    campaign.name = ANY($1::text []) AND charge_hour.hour >= $2 AND charge_hour.hour < $3 AND charge_hour.bytes <> 0
GROUP BY campaign.name, charge_hour.hour
ORDER BY campaign.name, charge_hour.hour;

-- seat_time_spent --
-- What each of these campaigns was charged and has booked of the hours of a period, in the order given.
SELECT coalesce(sum(charge_hour.amount), 0)::bigint AS amount
FROM unnest($1::text [], $2::timestamptz [], $3::timestamptz [])
    WITH ORDINALITY AS asked (name, since, until, number)
LEFT JOIN campaign ON asked.name = campaign.name
LEFT JOIN charge_hour
    ON campaign.id = charge_hour.campaign_id AND charge_hour.hour >= asked.since AND charge_hour.hour < asked.until
GROUP BY asked.number
ORDER BY asked.number;

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
