-- destination --
-- There is one destination per archiver and spec.
INSERT INTO destination (digest, archiver, spec, label, ordered) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (digest) DO UPDATE SET label = excluded.label, ordered = excluded.ordered
RETURNING id;

-- add_archive --
INSERT INTO archive (id, task_id, place, name, destination_id, runs, transform, created_at, changed_at, form)
VALUES ($1, $2, $3, $4, $5, $6::archived_runs, $7, $8, $8, $9)
ON CONFLICT DO NOTHING
RETURNING id;

-- archives --
-- The archives of a task, or the node's own by name.
SELECT
    archive.id, archive.name, archive.place, archive.destination_id, destination.archiver, destination.spec,
    destination.label, archive.runs::text, archive.transform, archive.revision, archive.created_at, archive.changed_at,
    archive.form
FROM archive
INNER JOIN destination ON archive.destination_id = destination.id
WHERE archive.task_id IS NOT DISTINCT FROM $1 AND archive.removed_at IS NULL
ORDER BY archive.place, archive.name;

-- lock_archive --
SELECT id FROM archive WHERE name = $1 AND removed_at IS NULL FOR UPDATE;

-- change_archive --
UPDATE archive
SET destination_id = $2, runs = $3::archived_runs, transform = $4, revision = revision + 1, changed_at = $5, form = $6
WHERE id = $1;

-- move_waiting --
-- Waiting and parked deliveries move to the archive's new destination.
UPDATE archiving
SET
    destination_id = destination.id,
    series = CASE WHEN destination.ordered THEN (SELECT run.task_id FROM run WHERE run.id = archiving.run_id) END
FROM destination
WHERE
    archiving.archive_id = $1 AND archiving.state <> 'delivered' AND destination.id = $2
    AND archiving.destination_id <> $2;

-- remove_archive --
UPDATE archive SET removed_at = $2, changed_at = $2 WHERE id = $1;

-- drop_waiting --
-- The archive was removed, so these deliveries are not needed any more.
DELETE FROM archiving WHERE archive_id = $1 AND state <> 'delivered' RETURNING number;

-- next_due --
-- Destinations with pending deliveries, and when the first of them is due.
SELECT destination.id, due.next_at
FROM destination
CROSS JOIN LATERAL (
    SELECT archiving.next_at FROM archiving
    WHERE archiving.destination_id = destination.id AND archiving.state = 'waiting'
    ORDER BY archiving.next_at, archiving.number
    LIMIT 1
) AS due
WHERE destination.id <> ALL($1::integer []);

-- destination_spec --
SELECT archiver, spec, label, ordered FROM destination WHERE id = $1;

-- release --
-- Deliveries that a dead process of this node had taken.
UPDATE archiving SET taken = false, next_at = $1 WHERE state = 'waiting' AND taken;

-- claim --
-- Taken for a limited time: after a crash they become due again.
-- The limit holds because the rows are chosen once: the subquery of an IN may be evaluated for each row, and skips
-- each time what it has locked before.
WITH due AS MATERIALIZED (
    SELECT number FROM archiving
    WHERE destination_id = $1 AND state = 'waiting' AND next_at <= $2
    ORDER BY next_at, number
    LIMIT $4
    FOR UPDATE SKIP LOCKED
)
UPDATE archiving
SET next_at = $3, taken = true
FROM due
WHERE archiving.number = due.number
RETURNING archiving.number;

-- claim_in_order --
-- The same for ordered destinations: nothing of a series before its earlier waiting deliveries.
WITH due AS MATERIALIZED (
    SELECT number FROM archiving
    WHERE
        destination_id = $1 AND state = 'waiting' AND next_at <= $2
        AND NOT EXISTS (
            SELECT FROM archiving AS earlier
            WHERE
                earlier.destination_id = $1 AND earlier.series = archiving.series AND earlier.state = 'waiting'
                AND earlier.series IS NOT NULL AND earlier.number < archiving.number AND earlier.next_at > $2
        )
    ORDER BY number
    LIMIT $4
    FOR UPDATE SKIP LOCKED
)
UPDATE archiving
SET next_at = $3, taken = true
FROM due
WHERE archiving.number = due.number
RETURNING archiving.number;

-- documents --
-- All facts about the runs of these deliveries, or about one interval of them, in the order of the deliveries. A delivery is
-- current unless the run or the interval has had another outcome since.
SELECT
    archiving.number, archiving.archive_id, archiving.edition, archiving.attempts, archiving.first_tried_at,
    archiving.interval_number AS interval, archive.transform, archive.form,
    CASE
        WHEN archiving.interval_number IS NULL THEN archiving.outcome = run.state
        ELSE (archiving.outcome = 'finished') = (run_interval.result IS NOT NULL) AND NOT EXISTS (
            SELECT FROM archiving AS later
            WHERE
                later.run_id = run.id AND later.archive_id = archiving.archive_id
                AND later.interval_number = archiving.interval_number AND later.edition > archiving.edition
        )
    END AS current,
    run.id AS run_id, run.task_id, run.attempt, run.slot, run.started_at, run.scheduling_class::text, run.priority,
    run.changed_at, archiving.outcome::text AS state,
    CASE WHEN archiving.interval_number IS NULL THEN run.starts_at ELSE run_interval.starts_at END AS starts_at,
    CASE WHEN archiving.interval_number IS NULL THEN run.ends_at ELSE run_interval.ends_at END AS ends_at,
    CASE WHEN archiving.interval_number IS NULL THEN run.finished_at ELSE run_interval.merged_at END AS finished_at,
    CASE WHEN archiving.interval_number IS NULL THEN run.reason ELSE run_interval.reason END AS reason,
    CASE WHEN archiving.interval_number IS NULL THEN run.summary ELSE run_interval.summary END AS summary,
    CASE WHEN archiving.interval_number IS NULL THEN run.result ELSE run_interval.result END AS result,
    CASE WHEN archiving.interval_number IS NULL THEN run.verdict END AS verdict,
    CASE WHEN archiving.interval_number IS NULL THEN run.verdict_reasons ELSE '{}' END AS verdict_reasons,
    CASE
        WHEN archiving.interval_number IS NULL
            THEN judgement_of(archiving.outcome::text, run.judgement, run.result IS NOT NULL)
    END AS judgement,
    run.judgement_code, coalesce(run.judgement_reason, run.reason) AS judgement_reason,
    task.parent, task.test, coalesce(run.spec, task.spec) AS spec, coalesce(run.tool, task.tool) AS tool,
    task.participants, coalesce(task.campaign, 'default') AS campaign, task.reference, node.name AS lead
FROM archiving
INNER JOIN archive ON archiving.archive_id = archive.id
INNER JOIN run ON archiving.run_id = run.id
INNER JOIN task ON run.task_id = task.id
LEFT JOIN node ON task.lead = node.identity
LEFT JOIN run_interval
    ON archiving.run_id = run_interval.run_id AND archiving.interval_number = run_interval.number
WHERE archiving.number = ANY($1::bigint [])
ORDER BY archiving.number;

-- parts --
SELECT run_id, participant, reason, started_at, finished_at, command, circumstances
FROM part WHERE run_id = ANY($1::uuid []);

-- settle --
-- Records the outcomes of deliveries; those that were dropped meanwhile no longer exist.
UPDATE archiving
SET
    state = said.state::archiving_state,
    taken = false,
    given_up = said.given_up,
    attempts = archiving.attempts + said.failed::integer,
    next_at = said.next_at,
    first_tried_at = coalesce(archiving.first_tried_at, $2),
    tried_at = $2,
    last_error = coalesce(said.error, archiving.last_error)
FROM unnest($1::bigint [], $3::text [], $4::timestamptz [], $5::text [], $6::boolean [], $7::boolean [])
    AS said (number, state, next_at, error, failed, given_up)
WHERE archiving.number = said.number AND archiving.state = 'waiting';

-- unclaim --
-- Taken in excess of a batch's size, or stopped before an attempt.
UPDATE archiving SET taken = false, next_at = $2 WHERE number = ANY($1::bigint []) AND state = 'waiting';

-- supersede --
-- Their outcome is not the run's latest; a delivery of the latest exists.
DELETE FROM archiving WHERE number = ANY($1::bigint []);

-- hasten --
-- The destination accepts results again: failed deliveries need not wait out their pause, and those that were given up have
-- a new day of attempts.
UPDATE archiving
SET
    state = 'waiting', next_at = $2, given_up = false,
    first_tried_at = CASE WHEN state = 'waiting' THEN first_tried_at END
WHERE
    destination_id = $1
    AND (given_up OR (state = 'waiting' AND attempts > 0 AND NOT taken AND next_at > $2));

-- probe --
-- The oldest delivery that was given up, where nothing waits: whether its destination accepts anything again. It is given up
-- again after one attempt.
UPDATE archiving
SET state = 'waiting', next_at = $1, given_up = false
FROM destination
CROSS JOIN LATERAL (
    SELECT given_up.number FROM archiving AS given_up
    WHERE given_up.destination_id = destination.id AND given_up.given_up
    ORDER BY given_up.number
    LIMIT 1
) AS oldest
WHERE
    archiving.number = oldest.number
    AND NOT EXISTS (
        SELECT FROM archiving AS waits WHERE waits.destination_id = destination.id AND waits.state = 'waiting'
    );

-- archivings --
-- For people: newest first; each filter may be null.
SELECT
    archiving.number, archiving.run_id AS run, archiving.interval_number AS interval, run.task_id AS task,
    archiving.edition, archive.name AS archive,
    destination.archiver, archiving.destination_id AS destination, destination.label, archiving.state::text,
    archiving.attempts, archiving.created_at, archiving.next_at, archiving.tried_at, archiving.last_error
FROM archiving
INNER JOIN archive ON archiving.archive_id = archive.id
INNER JOIN destination ON archiving.destination_id = destination.id
INNER JOIN run ON archiving.run_id = run.id
WHERE
    ($1::bigint IS NULL OR archiving.number < $1)
    AND ($2::uuid IS NULL OR archiving.run_id = $2)
    AND ($3::uuid IS NULL OR archiving.run_id = ANY(ARRAY(
        SELECT of_task.id FROM run AS of_task
        INNER JOIN task ON of_task.task_id = task.id
        WHERE task.id = $3 OR task.parent = $3
    )))
    AND ($4::text IS NULL OR archive.name = $4)
    AND ($5::integer IS NULL OR archiving.destination_id = $5)
    AND ($6::text [] IS NULL OR archiving.state::text = ANY($6))
    AND (archiving.interval_number IS NULL OR NOT $8::boolean)
ORDER BY archiving.number DESC
LIMIT $7;

-- retry --
-- Due now, with a new day of attempts.
WITH due AS (
    UPDATE archiving
    SET state = 'waiting', taken = false, attempts = 0, first_tried_at = NULL, next_at = $5, given_up = false
    WHERE
        state IN ('parked', 'waiting') AND NOT taken
        AND ($1::text IS NULL OR archive_id IN (SELECT id FROM archive WHERE name = $1 AND removed_at IS NULL))
        AND ($2::integer IS NULL OR destination_id = $2)
        AND ($3::uuid IS NULL OR run_id = $3)
        AND ($4::bigint IS NULL OR number = $4)
    RETURNING destination_id
)

SELECT count(*), array_agg(DISTINCT destination_id) FROM due;

-- backlog --
-- Pending deliveries by destination.
SELECT
    destination.id AS destination, destination.archiver, destination.label,
    ARRAY(
        SELECT archive.name FROM archive
        WHERE archive.destination_id = destination.id AND archive.name IS NOT NULL AND archive.removed_at IS NULL
        ORDER BY archive.name
    ) AS archives,
    (SELECT count(DISTINCT archive.task_id) FROM archive
        WHERE archive.destination_id = destination.id AND archive.removed_at IS NULL) AS tasks,
    waiting.number AS waiting, parked.number AS parked, oldest.created_at AS oldest_at, waiting.next_at,
    destination.last_error, destination.last_error_at
FROM destination
CROSS JOIN LATERAL (
    SELECT count(*) AS number, min(archiving.next_at) AS next_at, min(archiving.number) AS first FROM archiving
    WHERE archiving.destination_id = destination.id AND archiving.state = 'waiting'
) AS waiting
CROSS JOIN LATERAL (
    SELECT coalesce(sum(parked_count.change), 0) AS number FROM parked_count
    WHERE parked_count.destination_id = destination.id
) AS parked
CROSS JOIN LATERAL (
    SELECT min(archiving.number) AS first FROM archiving
    WHERE archiving.destination_id = destination.id AND archiving.state = 'parked'
) AS parks
LEFT JOIN archiving AS oldest ON oldest.number = least(parks.first, waiting.first)
WHERE
    waiting.number > 0 OR parked.number > 0
    OR EXISTS (SELECT FROM archive WHERE archive.destination_id = destination.id AND archive.removed_at IS NULL)
ORDER BY destination.id;

-- keep_error --
-- The last error of a destination.
UPDATE destination SET last_error = $2, last_error_at = $3 WHERE id = $1;

-- purge_archives --
-- Removed archives to which no delivery of a stored run refers.
WITH gone AS (
    DELETE FROM archive
    WHERE id IN (
        SELECT old.id FROM archive AS old
        WHERE old.removed_at IS NOT NULL AND NOT EXISTS (SELECT FROM archiving WHERE archiving.archive_id = old.id)
        LIMIT $1
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_destinations --
-- Destinations without archives and without deliveries.
WITH gone AS (
    DELETE FROM destination
    WHERE id IN (
        SELECT old.id FROM destination AS old
        WHERE
            NOT EXISTS (SELECT FROM archive WHERE archive.destination_id = old.id)
            AND NOT EXISTS (SELECT FROM archiving WHERE archiving.destination_id = old.id)
        LIMIT $1
    )
    RETURNING id
)

SELECT count(*) FROM gone;
