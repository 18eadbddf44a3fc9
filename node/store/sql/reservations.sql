-- reserved_between --
-- The spans of this node that touch this period, each with its reservation.
SELECT
    reservation.id, reservation.kind::text, reservation.name, reservation.owner, reservation.access,
    reserved.starts_at, reserved.ends_at
FROM reserved
INNER JOIN reservation ON reserved.reservation_id = reservation.id
WHERE reservation.pool IS NULL AND reserved.during && tstzrange($1, $2)
ORDER BY reserved.starts_at, reservation.id;

-- reserved_for --
-- The same for pools of this lead, each with its pool.
SELECT
    reservation.pool, reservation.id, reservation.kind::text, reservation.name, reservation.owner, reservation.access,
    reserved.starts_at, reserved.ends_at
FROM reserved
INNER JOIN reservation ON reserved.reservation_id = reservation.id
WHERE reservation.pool = ANY($1::text []) AND reserved.during && tstzrange($2, $3)
ORDER BY reserved.starts_at, reservation.id;

-- keep_reservation --
INSERT INTO reservation (
    id, pool, kind, name, owner, description, schedule, duration, access, reserved_to, created_at, changed_at
)
VALUES ($1, $2, $3::text::reservation_kind, $4, $5, $6, $7, $8, $9, $10, $10, $10);

-- change_reservation --
-- Only in the revision that was read.
UPDATE reservation
SET
    kind = $3::text::reservation_kind, name = $4, owner = $5, description = $6, schedule = $7, duration = $8, access = $9,
    reserved_to = $10, changed_at = $10, revision = revision + 1
WHERE id = $1 AND revision = $2
RETURNING id;

-- remove_reservation --
DELETE FROM reservation WHERE id = $1 RETURNING revision;

-- put_spans --
INSERT INTO reserved (reservation_id, starts_at, ends_at)
SELECT $1, span.starts_at, span.ends_at
FROM unnest($2::timestamptz [], $3::timestamptz []) AS span (starts_at, ends_at)
ON CONFLICT DO NOTHING;

-- drop_spans --
-- Past spans stay as they are.
DELETE FROM reserved WHERE reservation_id = $1 AND ends_at > $2;

-- reserved_to --
UPDATE reservation SET reserved_to = $2 WHERE id = $1;

-- to_extend --
-- Reservations whose spans do not reach that far, locked for the extension.
SELECT id, schedule, duration, reserved_to, created_at FROM reservation WHERE reserved_to < $1 FOR UPDATE;

-- purge_spans --
WITH gone AS (
    DELETE FROM reserved
    WHERE (reservation_id, starts_at) IN (
        SELECT old.reservation_id, old.starts_at FROM reserved AS old
        WHERE old.ends_at < $1
        ORDER BY old.starts_at, old.reservation_id
        LIMIT $2
    )
    RETURNING starts_at
)

SELECT count(*) FROM gone;

-- purge_reservations --
-- Reservations that will not take place any more and whose last span has been purged.
WITH gone AS (
    DELETE FROM reservation
    WHERE id IN (
        SELECT old.id FROM reservation AS old
        WHERE old.reserved_to >= $1 AND NOT EXISTS (SELECT FROM reserved WHERE reserved.reservation_id = old.id)
        ORDER BY old.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- reservations --
-- For people: one by id, or a page, newest first; with the next span of each.
SELECT
    reservation.id, reservation.pool, reservation.kind::text, reservation.name, reservation.owner,
    reservation.description, reservation.schedule, reservation.duration, reservation.access, reservation.revision, reservation.created_at,
    reservation.changed_at, following.starts_at AS next_starts_at, following.ends_at AS next_ends_at
FROM reservation
LEFT JOIN LATERAL (
    SELECT reserved.starts_at, reserved.ends_at
    FROM reserved
    WHERE reserved.reservation_id = reservation.id AND reserved.ends_at > $1
    ORDER BY reserved.starts_at
    LIMIT 1
) AS following ON true
WHERE
    ($2::uuid IS NULL OR reservation.id = $2)
    AND ($3::text IS NULL OR reservation.id::text LIKE $3 || '%')
    AND ($4::timestamptz IS NULL OR (reservation.created_at, reservation.id) < ($4, $5::uuid))
ORDER BY reservation.created_at DESC, reservation.id DESC
LIMIT $6;

-- inside --
-- Runs booked in the future time of a reservation that does not admit them: on this node, or in seats of the pool. Runs
-- that have begun or start before $3 cannot be displaced.
SELECT
    run.id, run.task_id, task.test, run.scheduling_class::text, run.priority, run.starts_at, run.ends_at,
    run.state <> 'running' AND run.starts_at >= $3 AS gives_way
FROM run
INNER JOIN task ON run.task_id = task.id
INNER JOIN reservation ON reservation.id = $1
WHERE
    run.state IN ('booked', 'running', 'set-aside')
    AND run.ends_at > $2
    AND EXISTS (
        SELECT FROM reserved WHERE reserved.reservation_id = reservation.id AND reserved.during && run.during AND reserved.ends_at > $2
    )
    AND CASE
        WHEN reservation.pool IS NULL THEN run.participant IS NOT NULL
        ELSE
            EXISTS (
                SELECT FROM pool_task
                INNER JOIN pool ON pool_task.pool_id = pool.id
                WHERE pool_task.task_id = task.parent AND pool.name = reservation.pool
            )
    END
    AND NOT admits(
        reservation.access, CASE WHEN reservation.pool IS NULL THEN task.id ELSE task.parent END, task.lead,
        task.lead = (SELECT node.identity FROM node WHERE node.is_self), task.campaign, task.test,
        run.scheduling_class, run.priority, coalesce(task.parent, task.pool_task)
    )
ORDER BY run.starts_at, run.id;
