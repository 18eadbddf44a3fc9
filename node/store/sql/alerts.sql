-- memory --
-- The memory of a task, locked: of two runs that end at once the second one sees what the first one left.
SELECT marks, raised, paths FROM alert_memory WHERE task_id = $1 FOR UPDATE;

-- keep_memory --
INSERT INTO alert_memory (task_id, marks, raised, paths) VALUES ($1, $2, $3, $4)
ON CONFLICT (task_id) DO UPDATE SET marks = excluded.marks, raised = excluded.raised, paths = excluded.paths;

-- usual --
SELECT figure, samples, last_at FROM alert_usual WHERE task_id = $1 AND hour = $2 AND figure = ANY($3::text []);

-- keep_usual --
INSERT INTO alert_usual (task_id, figure, hour, samples, last_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (task_id, figure, hour) DO UPDATE SET samples = excluded.samples, last_at = excluded.last_at;

-- raise --
-- An alert of a rule that is silent is silent from the beginning: as long as the one before it.
INSERT INTO alert (id, task_id, rule, run_id, raised_at, sentence, value, silent_until)
SELECT
    $1, $2, $3, $4, $5, $6, $7,
    (
        SELECT before.silent_until
        FROM alert AS before
        WHERE before.task_id = $2 AND before.rule = $3
        ORDER BY before.raised_at DESC, before.id DESC
        LIMIT 1
    )
ON CONFLICT DO NOTHING
RETURNING id;

-- end --
UPDATE alert SET over_at = $3 WHERE task_id = $1 AND rule = $2 AND over_at IS NULL RETURNING id;

-- alerts --
-- For people: a page of alerts, the latest first. Of a task that is over none is raised.
SELECT
    alert.id, alert.task_id, alert.rule, alert.run_id, alert.raised_at, alert.sentence, alert.value, alert.acknowledged_at,
    alert.acknowledged_by, alert.silent_until, coalesce(alert.over_at, task.ended_at) AS over_at,
    CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
FROM alert
INNER JOIN task ON alert.task_id = task.id
WHERE
    ($1::boolean IS NULL OR (alert.over_at IS NULL AND task.state IN ('active', 'paused')) = $1)
    AND ($2::uuid IS NULL OR alert.task_id = $2)
    AND ($3::text IS NULL OR task.reference ->> 'mesh' = $3)
    AND ($4::text IS NULL OR task.requester = $4)
    AND ($5::uuid IS NULL OR alert.id = $5)
    AND ($6::timestamptz IS NULL OR (alert.raised_at, alert.id) < ($6, $7::uuid))
ORDER BY alert.raised_at DESC, alert.id DESC
LIMIT $8;

-- requester --
SELECT task.requester FROM alert INNER JOIN task ON alert.task_id = task.id WHERE alert.id = $1;

-- change --
UPDATE alert
SET
    acknowledged_at = CASE WHEN $2::boolean IS NULL THEN acknowledged_at WHEN $2 THEN coalesce(acknowledged_at, $5) END,
    acknowledged_by = CASE WHEN $2 IS NULL THEN acknowledged_by WHEN $2 THEN coalesce(acknowledged_by, $3) END,
    silent_until = coalesce($4, silent_until)
WHERE id = $1
RETURNING id;

-- sentences --
-- Of these alerts.
SELECT alert.id, alert.task_id, alert.rule, alert.sentence FROM alert WHERE alert.id = ANY($1::uuid []);

-- to_tell --
-- The alerts that a webhook is told of, or was already: none that is silent.
SELECT alert.id, alert.task_id, alert.rule, alert.sentence
FROM alert
INNER JOIN task ON alert.task_id = task.id
WHERE
    alert.over_at IS NULL AND task.state IN ('active', 'paused')
    AND ($2::text IS NULL OR task.reference ->> 'mesh' = $2)
    AND (
        alert.silent_until IS NULL OR alert.silent_until <= $3
        OR EXISTS (SELECT FROM webhook_told WHERE webhook_told.webhook = $1 AND webhook_told.subject = alert.id::text)
    )
ORDER BY alert.raised_at
LIMIT 1000;

-- purge --
-- Alerts that were over before.
WITH gone AS (
    SELECT id FROM alert WHERE over_at < $1 ORDER BY over_at LIMIT $2
),

deleted AS (
    DELETE FROM alert USING gone WHERE alert.id = gone.id RETURNING alert.id
)

SELECT count(*) FROM deleted;
