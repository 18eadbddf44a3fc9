-- keep_posted --
INSERT INTO pscheduler_task (task_id, document, secret, detail, participant, key, requester)
VALUES ($1, $2::text::jsonb, $3::text::jsonb, $4, $5, $6, $7);

-- posted --
SELECT task_id AS task, document::text AS document, secret::text AS secret, detail, participant, key, requester
FROM pscheduler_task
WHERE task_id = ANY($1::uuid []);

-- list_posted --
-- For thousands of tasks at once: the psConfig agent compares all that it has posted, in each of its passes. Those whose
-- document is gone are listed whatever it was to contain. The intervals of long runs count as runs: the agent posts a
-- stream anew that has no more than two of them after 15 minutes.
SELECT
    posted.task_id AS task, posted.document::text AS document, posted.detail::text AS detail, task.state = 'active' AS enabled,
    task.tool, posted.requester, coalesce(counted.runs, 0) AS runs, coalesce(counted.started, 0) AS started
FROM pscheduler_task AS posted
INNER JOIN task ON posted.task_id = task.id
LEFT JOIN (
    SELECT
        run.task_id,
        count(*) FILTER (WHERE run.state NOT IN ('waiting', 'unplaced', 'cancelled')) + coalesce(sum(
            CASE WHEN run.scheduling_class = 'background-multi' AND run.started_at IS NOT NULL THEN
                (SELECT max(number) + 1 FROM run_interval WHERE run_id = run.id AND merged_at IS NOT NULL)
            END
        ), 0) AS runs,
        count(*) FILTER (WHERE run.started_at IS NOT NULL) AS started
    FROM run
    INNER JOIN pscheduler_task ON run.task_id = pscheduler_task.task_id
    GROUP BY run.task_id
) AS counted ON posted.task_id = counted.task_id
WHERE
    ($1::text IS NULL OR posted.document IS NULL OR posted.document @> $1::text::jsonb)
    AND ($2::text IS NULL OR posted.detail @> $2::text::jsonb)
    AND ($3::boolean IS NULL OR (task.state = 'active') = $3)
    AND ($4::text IS NULL OR posted.requester = $4)
ORDER BY task.created_at, task.id;

-- count_runs --
SELECT
    count(*) FILTER (WHERE state NOT IN ('waiting', 'unplaced', 'cancelled')) + coalesce(sum(
        CASE WHEN scheduling_class = 'background-multi' AND started_at IS NOT NULL THEN
            (SELECT max(number) + 1 FROM run_interval WHERE run_id = run.id AND merged_at IS NOT NULL)
        END
    ), 0) AS runs,
    count(*) FILTER (WHERE started_at IS NOT NULL) AS started
FROM run
WHERE task_id = $1;

-- count_by_state --
-- As pScheduler counts: a gap is slots that never had time.
SELECT run_known.state, count(*)
FROM run_known
WHERE ($1::timestamptz IS NULL OR run_known.ends_at > $1) AND ($2::timestamptz IS NULL OR run_known.starts_at < $2)
GROUP BY run_known.state
UNION ALL
SELECT 'gap', coalesce(sum(run_gap.slots), 0)::bigint
FROM run_gap
WHERE ($1::timestamptz IS NULL OR run_gap.ends_at > $1) AND ($2::timestamptz IS NULL OR run_gap.starts_at < $2);

-- last_runs --
SELECT
    (SELECT max(finished_at) FROM run WHERE state = 'finished') AS finished,
    (SELECT max(created_at) FROM run WHERE state <> 'waiting') AS scheduled;

-- told_run --
SELECT
    run_known.run_id AS id, run_known.task_id AS task, run_known.state, run_known.reason, run_known.starts_at,
    run_known.ends_at, run_known.started_at, run_known.priority, run_known.participant, run_known.tool, run_known.result,
    run.created_at
FROM run_known
INNER JOIN run ON run_known.run_id = run.id
WHERE run_known.run_id = $1 AND run_known.task_id = $2;

-- told_runs --
-- Without those that are still being arranged, and those that were taken back before they began. With $7, also those that
-- have no time yet.
SELECT
    run_known.run_id AS id, run_known.task_id AS task, run_known.state, run_known.reason, run_known.starts_at,
    run_known.ends_at, run_known.started_at, run_known.priority, run_known.participant, run_known.tool, NULL::jsonb AS result,
    run.created_at
FROM run_known
INNER JOIN run ON run_known.run_id = run.id
WHERE
    ($1::uuid IS NULL OR run_known.task_id = $1)
    AND ($2::timestamptz IS NULL OR run_known.ends_at > $2)
    AND ($3::timestamptz IS NULL OR run_known.ends_at <= $3)
    AND ($4::timestamptz IS NULL OR run_known.starts_at > $4)
    AND ($5::timestamptz IS NULL OR run_known.starts_at < $5)
    AND run_known.state <> 'held'
    AND (run_known.state <> 'waiting' OR $7::boolean)
    AND (run_known.state <> 'cancelled' OR run_known.started_at IS NOT NULL)
    AND ($8::text IS NULL OR run_known.task_id IN (SELECT task_id FROM pscheduler_task WHERE requester = $8))
ORDER BY run_known.starts_at, run_known.run_id
LIMIT $6;

-- told_runs_backward --
-- The same, the latest first.
SELECT
    run_known.run_id AS id, run_known.task_id AS task, run_known.state, run_known.reason, run_known.starts_at,
    run_known.ends_at, run_known.started_at, run_known.priority, run_known.participant, run_known.tool, NULL::jsonb AS result,
    run.created_at
FROM run_known
INNER JOIN run ON run_known.run_id = run.id
WHERE
    ($1::uuid IS NULL OR run_known.task_id = $1)
    AND ($2::timestamptz IS NULL OR run_known.ends_at > $2)
    AND ($3::timestamptz IS NULL OR run_known.ends_at <= $3)
    AND ($4::timestamptz IS NULL OR run_known.starts_at > $4)
    AND ($5::timestamptz IS NULL OR run_known.starts_at < $5)
    AND run_known.state <> 'held'
    AND (run_known.state <> 'waiting' OR $7::boolean)
    AND (run_known.state <> 'cancelled' OR run_known.started_at IS NOT NULL)
    AND ($8::text IS NULL OR run_known.task_id IN (SELECT task_id FROM pscheduler_task WHERE requester = $8))
ORDER BY run_known.starts_at DESC, run_known.run_id DESC
LIMIT $6;

-- told_intervals --
-- The intervals of the long runs of a task, by time: each is a run in the eyes of pScheduler.
SELECT
    run_interval.run_id AS run, run_interval.number, run_interval.starts_at, run_interval.ends_at, run_interval.result,
    run_interval.reason, run_interval.merged_at, run.priority, run.participant, coalesce(run.tool, task.tool) AS tool
FROM run_interval
INNER JOIN run ON run_interval.run_id = run.id
INNER JOIN task ON run.task_id = task.id
WHERE
    run.task_id = $1 AND run_interval.merged_at IS NOT NULL
    AND ($2::timestamptz IS NULL OR run_interval.ends_at > $2)
    AND ($3::timestamptz IS NULL OR run_interval.ends_at <= $3)
ORDER BY run_interval.starts_at, run_interval.run_id
LIMIT $4;
