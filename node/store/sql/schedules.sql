-- as_of --
-- The timeline as it stood at $1, as far as the present rows tell: a page, earliest start first. A run ended when it was finished,
-- or else last changed. Runs without an exchange had no time.
SELECT
    run_known.run_id, run_known.task_id, run_known.test, run_known.scheduling_class::text, run_known.priority,
    run_known.starts_at, run_known.ends_at, run_known.participants,
    CASE
        WHEN past.is_over THEN run_known.state
        WHEN run.exchange_id IS NULL THEN 'waiting'
        WHEN run.state = 'set-aside' AND run.changed_at <= $1 THEN 'set-aside'
        WHEN past.has_begun AND run.ends_at > $1 THEN 'running'
        WHEN past.has_begun THEN 'merging'
        WHEN exchange.decided_at <= $1 THEN 'scheduled'
        ELSE 'held'
    END AS state,
    CASE WHEN past.is_over OR (run.state = 'waiting' AND run.changed_at <= $1) THEN run.reason END AS reason,
    CASE WHEN past.is_over THEN run.summary END AS summary,
    coalesce(run.spec, task.spec) AS spec
FROM run_known
INNER JOIN run ON run_known.run_id = run.id
INNER JOIN task ON run.task_id = task.id
LEFT JOIN exchange ON run.exchange_id = exchange.id
CROSS JOIN LATERAL (
    SELECT
        run.state IN ('finished', 'failed', 'missed', 'cancelled', 'displaced', 'unplaced')
        AND coalesce(run.finished_at, run.changed_at) <= $1 AS is_over,
        coalesce(run.started_at, CASE WHEN run.state IN ('merging', 'finished', 'failed') THEN run.starts_at END)
        <= $1 AS has_begun
) AS past
WHERE
    run.created_at <= $1
    AND run_known.ends_at > $2
    AND run_known.starts_at > $2 - (SELECT max(each.ends_at - each.starts_at) FROM run AS each)
    AND run_known.starts_at < $3
    AND ($4::timestamptz IS NULL OR (run_known.starts_at, run_known.run_id) > ($4, $5::uuid))
    AND ($6::text IS NULL OR run_known.requester = $6)
ORDER BY run_known.starts_at, run_known.run_id
LIMIT $7;

-- changes --
-- The slots whose booked run at $1 is not that at $2: added, moved (another attempt at another time), or lost. A run is booked once its
-- exchange is committed, until it is cancelled, displaced or missed.
WITH touched AS (
    SELECT DISTINCT run.task_id, run.slot
    FROM run
    WHERE
        run.starts_at < $4 AND run.ends_at > $3
        AND run.starts_at > $3 - (SELECT max(each.ends_at - each.starts_at) FROM run AS each)
        AND run.changed_at > $1 AND run.exchange_id IS NOT NULL
)

SELECT
    coalesce(later.id, earlier.id) AS run_id, touched.task_id, task.test,
    coalesce(later.scheduling_class, earlier.scheduling_class)::text AS scheduling_class,
    coalesce(later.priority, earlier.priority) AS priority,
    coalesce(later.starts_at, earlier.starts_at) AS starts_at, coalesce(later.ends_at, earlier.ends_at) AS ends_at,
    CASE
        WHEN earlier.id IS NULL THEN 'added'
        WHEN later.id IS NULL THEN earlier.state::text
        ELSE 'moved'
    END AS change,
    CASE WHEN later.id IS NULL THEN coalesce(earlier.finished_at, earlier.changed_at) ELSE later.created_at END AS changed_at,
    CASE WHEN later.id IS NOT NULL THEN earlier.starts_at END AS was_starts_at,
    earlier.reason, earlier.displaced_by,
    coalesce(CASE WHEN later.id IS NULL THEN earlier.spec ELSE later.spec END, task.spec) AS spec,
    (SELECT array_agg(participant.value ->> 'name' ORDER BY participant.ordinality)
        FROM jsonb_array_elements(task.participants) WITH ORDINALITY AS participant) AS participants
FROM touched
INNER JOIN task ON touched.task_id = task.id
LEFT JOIN LATERAL (
    SELECT run.*
    FROM run
    INNER JOIN exchange ON run.exchange_id = exchange.id
    WHERE
        run.task_id = touched.task_id AND run.slot = touched.slot AND exchange.state = 'committed' AND exchange.decided_at <= $1
        AND NOT (run.state IN ('cancelled', 'displaced', 'missed') AND coalesce(run.finished_at, run.changed_at) <= $1)
    ORDER BY run.attempt DESC
    LIMIT 1
) AS earlier ON true
LEFT JOIN LATERAL (
    SELECT run.*
    FROM run
    INNER JOIN exchange ON run.exchange_id = exchange.id
    WHERE
        run.task_id = touched.task_id AND run.slot = touched.slot AND exchange.state = 'committed' AND exchange.decided_at <= $2
        AND NOT (run.state IN ('cancelled', 'displaced', 'missed') AND coalesce(run.finished_at, run.changed_at) <= $2)
    ORDER BY run.attempt DESC
    LIMIT 1
) AS later ON true
WHERE
    earlier.id IS DISTINCT FROM later.id
    AND (earlier.starts_at, earlier.ends_at) IS DISTINCT FROM (later.starts_at, later.ends_at)
    AND ($5::text IS NULL OR task.requester = $5)
ORDER BY 6, 1
LIMIT $6;
