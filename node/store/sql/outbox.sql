-- post --
-- The notification names the kind, so that only its deliverers wake up.
INSERT INTO outbox (node, kind, message, created_at, next_at)
SELECT posted.node, posted.kind, posted.message, $4::timestamptz, $4::timestamptz + $5::interval
FROM unnest($1::text [], $2::text [], $3::jsonb []) WITH ORDINALITY AS posted (node, kind, message, number)
ORDER BY posted.number
RETURNING id, pg_notify('parley', 'message ' || kind);

-- due --
-- Taken for a limited time: another process, or this one after a crash, takes them again later.
-- They are chosen once, as in "claim" of archives.sql, so that the limit holds. What happened to a task is told in its order:
-- a participant that heard of the end first would take the change for a new task.
WITH due AS MATERIALIZED (
    SELECT id FROM outbox
    WHERE
        next_at <= $1 AND kind = ANY($3::text []) AND node <> ALL($4::text [])
        AND NOT (
            kind IN ('task-change', 'task-end')
            AND EXISTS (
                SELECT FROM outbox AS earlier
                WHERE
                    earlier.kind IN ('task-change', 'task-end') AND earlier.node = outbox.node
                    AND earlier.message ->> 'task' = outbox.message ->> 'task'
                    AND earlier.id < outbox.id AND earlier.next_at > $1
            )
        )
    ORDER BY next_at
    LIMIT 100
    FOR UPDATE SKIP LOCKED
)
UPDATE outbox
SET next_at = $2
FROM due
WHERE outbox.id = due.id
RETURNING outbox.id, outbox.node, outbox.kind, outbox.message, outbox.attempts, outbox.created_at;

-- ends_under_way --
SELECT (message ->> 'task')::uuid AS task FROM outbox
WHERE kind = 'task-end' AND node = $1 AND message ->> 'task' = ANY($2::uuid []::text []);

-- recall --
-- Deletes those of these messages that nobody has taken for delivery since they were written.
DELETE FROM outbox
USING unnest($1::bigint [], $2::timestamptz []) AS given (id, due_at)
WHERE outbox.id = given.id AND outbox.next_at = given.due_at
RETURNING outbox.id;

-- delivered --
DELETE FROM outbox WHERE id = ANY($1::bigint []);

-- failed --
-- A receiver that answers others is asked again sooner: nothing hastens its messages when it is back, since it was not away.
UPDATE outbox
SET
    attempts = attempts + 1,
    next_at = CASE
        WHEN EXISTS (SELECT FROM node WHERE node.identity = outbox.node AND node.unreachable_since IS NOT NULL)
            THEN $2::timestamptz
        ELSE least($2::timestamptz, $4::timestamptz)
    END,
    last_error = $3
WHERE id = ANY($1::bigint []);

-- purge_messages --
-- Messages that nobody has acknowledged for so long: their receivers compare what they have when they are back.
WITH gone AS (
    DELETE FROM outbox
    WHERE id IN (SELECT old.id FROM outbox AS old WHERE old.created_at < $1 ORDER BY old.id LIMIT $2)
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_surplus_messages --
-- Of the messages with what was measured here, the latest ones to each lead stay: one that takes none cannot have them pile up.
WITH gone AS (
    DELETE FROM outbox
    WHERE id IN (
        SELECT numbered.id
        FROM (
            SELECT id, row_number() OVER (PARTITION BY node ORDER BY id DESC) AS place
            FROM outbox
            WHERE kind IN ('part', 'intervals')
        ) AS numbered
        WHERE numbered.place > $1
        ORDER BY numbered.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- hasten --
-- These nodes answer again: their messages need not wait out the pause.
UPDATE outbox SET next_at = $2 WHERE node = ANY($1::text []) AND attempts > 0 AND next_at > $2;

-- waiting_by_node --
SELECT node, count(*) FROM outbox GROUP BY node;

-- next_due --
-- A message that must not overtake another one is not due before that.
SELECT min(next_at) FROM outbox
WHERE
    kind = ANY($1::text []) AND node <> ALL($2::text [])
    AND NOT (
        kind IN ('task-change', 'task-end')
        AND EXISTS (
            SELECT FROM outbox AS earlier
            WHERE
                earlier.kind IN ('task-change', 'task-end') AND earlier.node = outbox.node
                AND earlier.message ->> 'task' = outbox.message ->> 'task'
                AND earlier.id < outbox.id AND earlier.next_at > outbox.next_at
        )
    );

-- backlog --
SELECT count(*) FROM outbox;
