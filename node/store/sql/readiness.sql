-- keep_lead --
-- A process that plans says that it is there; those that said so long ago are forgotten, and old absences. If none was heard
-- for a while, since before $4, that was an absence.
WITH forgotten AS (
    DELETE FROM lead_process WHERE seen_at < $3 AND owner <> $1
),

past AS (
    DELETE FROM lead_absence WHERE until < $3
),

absent AS (
    INSERT INTO lead_absence (since, until)
    SELECT max(seen_at), $2 FROM lead_process HAVING max(seen_at) < $4
    ON CONFLICT DO NOTHING
)

INSERT INTO lead_process (owner, seen_at, started_at, version, workers, figures) VALUES ($1, $2, $5, $6, $7, $8)
ON CONFLICT (owner) DO UPDATE SET
    seen_at = excluded.seen_at, started_at = excluded.started_at, version = excluded.version, workers = excluded.workers,
    figures = excluded.figures, stopped_at = NULL;

-- stop_lead --
UPDATE lead_process SET stopped_at = $2 WHERE owner = $1;

-- lead_processes --
-- The processes that plan here, with the leases that they have, up to $1: those that end later are of a clock that was ahead.
SELECT
    lead_process.owner, lead_process.seen_at, lead_process.started_at, lead_process.stopped_at, lead_process.version,
    lead_process.workers, lead_process.takeovers, lead_process.took_over_at, coalesce(leased.tasks, 0) AS leases,
    leased.first_until
FROM lead_process
LEFT JOIN
    (
        SELECT lease_owner, count(*) AS tasks, min(lease_until) AS first_until
        FROM planning
        WHERE plan_at IS NOT NULL AND greatest(plan_at, lease_until) <= $1 AND lease_owner IS NOT NULL
        GROUP BY lease_owner
    ) AS leased
    ON lead_process.owner = leased.lease_owner
ORDER BY lead_process.seen_at DESC, lead_process.owner
LIMIT 200;

-- lead_figures --
SELECT owner, figures FROM lead_process WHERE figures IS NOT NULL AND stopped_at IS NULL AND seen_at > $1 ORDER BY owner;

-- server --
-- Transaction ids are given to all databases of a server, and it stops when those of the oldest one are used up. Indexes of texts
-- have the order of the library with which they were made, which another version may see otherwise.
SELECT
    current_setting('server_version') AS server_version,
    pg_database_size(current_database()) AS size_bytes,
    (SELECT max(version) FROM schema_version) AS schema_version,
    (SELECT max(greatest(age(datfrozenxid), mxid_age(datminmxid))) FROM pg_database) AS oldest_id_age,
    (
        SELECT coalesce(datcollversion <> pg_database_collation_actual_version(oid), false)
        FROM pg_database
        WHERE datname = current_database()
    ) AS sorts_otherwise;

-- planned --
-- The latest decision is that of the thousand newest rows.
SELECT
    (SELECT max(latest.decided_at) FROM (SELECT decided_at FROM decision ORDER BY id DESC LIMIT 1000) AS latest) AS planned_at,
    (
        SELECT count(*)
        FROM (
            SELECT FROM planning
            WHERE
                plan_at IS NOT NULL AND greatest(plan_at, lease_until) <= $1 AND next_run_at < $2 AND waits_for IS NULL
            LIMIT 100000
        ) AS due
    ) AS due,
    (SELECT count(*) FROM planning WHERE waits_for IS NOT NULL) AS waiting_for_nodes;

-- measured --
SELECT
    (SELECT count(*) FROM run WHERE state = 'running') AS running,
    (SELECT min(starts_at) FROM run WHERE state = 'booked' AND starts_at > $1) AS next_start;

-- facts --
-- The task that has been due longest, unless it waits for a participant.
SELECT
    (SELECT max(seen_at) FROM lead_process) AS lead_seen_at,
    (SELECT count(*) FROM lead_process WHERE seen_at > $1) AS leads,
    (
        SELECT greatest(plan_at, lease_until)
        FROM planning
        WHERE plan_at IS NOT NULL AND next_run_at < $2 AND waits_for IS NULL
        ORDER BY greatest(plan_at, lease_until)
        LIMIT 1
    ) AS due_at;

-- leads --
-- Whether someone plans what is led here, if anything is.
SELECT EXISTS (SELECT FROM lead_process WHERE seen_at > $1) OR NOT EXISTS (SELECT FROM planning);
