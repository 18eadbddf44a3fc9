-- keep_webhook --
INSERT INTO webhook (name, url, secret, events, failures, mesh, percent, span, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT DO NOTHING
RETURNING name;

-- webhooks --
-- All of them, or the one of that name.
SELECT
    webhook.name, webhook.url, webhook.secret, webhook.events, webhook.failures, webhook.mesh, webhook.percent, webhook.span,
    webhook.created_at, webhook.delivered_at, webhook.last_error,
    (SELECT count(*) FROM outbox WHERE outbox.kind = 'webhook' AND outbox.node = 'webhook:' || webhook.name) AS waiting
FROM webhook
WHERE $1::text IS NULL OR webhook.name = $1
ORDER BY webhook.name COLLATE "C";

-- remove_webhook --
-- With what it was not told yet.
WITH dropped AS (
    DELETE FROM outbox WHERE kind = 'webhook' AND node = 'webhook:' || $1
)

DELETE FROM webhook WHERE name = $1
RETURNING name;

-- told --
SELECT event, subject FROM webhook_told WHERE webhook = $1;

-- tell --
-- A condition that another process has told of in the meantime is not returned.
INSERT INTO webhook_told (webhook, event, subject, since)
SELECT $1, given.event, given.subject, $4
FROM unnest($2::text [], $3::text []) AS given (event, subject)
ON CONFLICT DO NOTHING
RETURNING event, subject;

-- tell_over --
DELETE FROM webhook_told
USING unnest($2::text [], $3::text []) AS given (event, subject)
WHERE webhook_told.webhook = $1 AND webhook_told.event = given.event AND webhook_told.subject = given.subject
RETURNING webhook_told.event, webhook_told.subject;

-- note_delivery --
-- The last attempt: accepted then, or failed with that error.
UPDATE webhook SET delivered_at = coalesce($2, delivered_at), last_error = $3 WHERE name = $1;

-- nodes_away --
SELECT name, unreachable_since, last_error FROM node WHERE unreachable_since IS NOT NULL AND NOT is_self ORDER BY name;

-- failing_tasks --
-- Tasks led here whose last runs, so many of them, all failed, were missed, or found that nothing arrives.
SELECT task.id, latest.reason
FROM task
INNER JOIN node ON task.lead = node.identity AND node.is_self
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE last.judgement IN ('failed', 'missed', 'no-answer')) AS failed,
        (array_agg(last.reason ORDER BY last.starts_at DESC))[1] AS reason
    FROM (
        SELECT
            judgement_of(run.state::text, run.judgement, run.result IS NOT NULL) AS judgement,
            coalesce(run.judgement_reason, run.reason) AS reason, run.starts_at
        FROM run
        WHERE
            run.task_id = task.id AND run.state IN ('finished', 'failed', 'missed')
            AND NOT is_tried_again(task.id, run.slot, run.attempt, run.state::text)
        ORDER BY run.starts_at DESC
        LIMIT $1
    ) AS last
) AS latest
WHERE task.state = 'active' AND latest.failed = $1
ORDER BY task.id;
