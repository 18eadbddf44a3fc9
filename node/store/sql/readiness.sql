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

INSERT INTO lead_process (owner, seen_at) VALUES ($1, $2)
ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at;

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
