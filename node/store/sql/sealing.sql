-- sealed_by --
SELECT sealed_by FROM generation;

-- note_sealed_by --
UPDATE generation SET sealed_by = $1 WHERE sealed_by IS DISTINCT FROM $1;

-- destination_specs --
SELECT id, archiver, spec FROM destination ORDER BY id;

-- seal_destination --
-- Another process may have stored the same one sealed in the meantime; its digest stays its own.
UPDATE destination
SET
    spec = $2,
    digest = CASE
        WHEN EXISTS (SELECT FROM destination AS other WHERE other.digest = $3 AND other.id <> $1) THEN $3 || '/' || $1::text
        ELSE $3
    END
WHERE id = $1;

-- clear_webhooks --
SELECT name, secret FROM webhook WHERE NOT starts_with(secret, 'parley1:');

-- seal_webhook --
UPDATE webhook SET secret = $3 WHERE name = $1 AND secret = $2;

-- clear_posted --
SELECT posted.task_id, posted.document::text, posted.secret::text, posted.key, posted.detail -> 'cli' AS words
FROM pscheduler_task AS posted
WHERE
    NOT starts_with(posted.key, 'parley1:')
    OR NOT posted.secret ? 'sealed'
    OR posted.document -> 'test' ->> 'type' = ANY($1::text []) AND EXISTS (
        SELECT FROM jsonb_each(posted.document -> 'test' -> 'spec') AS field
        WHERE field.key = ANY($2::text []) AND jsonb_path_exists(field.value, '$.* ? (@.type() == "string")')
    )
ORDER BY posted.task_id;

-- seal_posted --
UPDATE pscheduler_task SET
    document = $2::text::jsonb,
    secret = $3::text::jsonb,
    key = $4,
    detail = CASE WHEN $5::jsonb IS NULL THEN detail ELSE jsonb_set(detail, '{cli}', $5::jsonb) END
WHERE task_id = $1;

-- clear_memberships --
SELECT task_there, key FROM pscheduler_membership WHERE NOT starts_with(key, 'parley1:');

-- seal_membership --
UPDATE pscheduler_membership SET key = $2 WHERE task_there = $1;

-- posted_texts --
SELECT document, secret FROM pscheduler_task WHERE task_id = $1;

-- keep_posted_texts --
UPDATE pscheduler_task SET document = $2, secret = $3 WHERE task_id = $1;

-- clear_tasks --
-- Tasks with a literal in one of these fields: those led here, and those of others that are over. A task that another node
-- leads changes when that node introduces it again.
SELECT task.id, task.test, task.spec, task.lead
FROM task
WHERE
    task.test = ANY($2::text [])
    AND (task.lead = $1 OR task.state NOT IN ('active', 'paused'))
    AND EXISTS (
        SELECT FROM jsonb_each(task.spec) AS field
        WHERE
            field.key = ANY($3::text [])
            AND (jsonb_typeof(field.value) = 'string' OR jsonb_path_exists(field.value, '$.* ? (@.type() == "string")'))
    );

-- seal_task --
-- Unless it was edited in the meantime.
UPDATE task SET spec = $3 WHERE id = $1 AND spec = $2;

-- clear_runs --
-- Runs that were booked with a spec of their own, with a literal in one of these fields.
SELECT run.id, task.test, run.spec, task.lead
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE
    run.spec IS NOT NULL AND task.test = ANY($1::text [])
    AND EXISTS (
        SELECT FROM jsonb_each(run.spec) AS field
        WHERE
            field.key = ANY($2::text [])
            AND (jsonb_typeof(field.value) = 'string' OR jsonb_path_exists(field.value, '$.* ? (@.type() == "string")'))
    );

-- seal_run --
UPDATE run SET spec = $2 WHERE id = $1;
