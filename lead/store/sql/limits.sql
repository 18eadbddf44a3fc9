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
SELECT EXISTS (
    SELECT FROM run
    INNER JOIN planning ON run.task_id = planning.task_id
    INNER JOIN campaign ON planning.campaign_id = campaign.id
    INNER JOIN task ON planning.task_id = task.id
    WHERE
        run.state = 'waiting' AND run.starts_at < $3 AND campaign.name <> $1 AND campaign.level > 0
        AND EXISTS (
            SELECT FROM jsonb_array_elements(task.participants) AS place WHERE place.value ->> 'node' = ANY($2::text [])
        )
);

-- lock_campaigns --
-- Decisions of one campaign are made one after the other, so that each counts what the others have booked.
SELECT id FROM campaign WHERE name = ANY($1::text []) ORDER BY id FOR NO KEY UPDATE;
