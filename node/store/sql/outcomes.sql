-- outcomes --
-- The newest outcome of each active task led here at $1, but for tasks none of whose slots is over. A run that went wrong has
-- the slot since which none of the last ones went well.
SELECT
    task.id, task.test, task.tool, task.spec, task.participants,
    newest.run_id AS run, newest.judgement, newest.code, newest.reason, newest.slot, trouble.since
FROM task
INNER JOIN node ON task.lead = node.identity AND node.is_self
CROSS JOIN LATERAL newest_outcome(task.id, task.schedule ->> 'repeat', $1) AS newest
LEFT JOIN LATERAL (
    SELECT min(last.slot) AS since
    FROM (
        SELECT
            run.slot,
            bool_or(judgement_of(run.state::text, run.judgement, run.result IS NOT NULL) IN ('good', 'fair'))
                OVER (ORDER BY run.slot DESC, run.attempt DESC) AS went_well
        FROM run
        WHERE run.task_id = task.id AND run.slot <= newest.slot AND run.state IN ('finished', 'failed', 'missed')
        ORDER BY run.slot DESC, run.attempt DESC
        LIMIT 300
    ) AS last
    WHERE NOT last.went_well
) AS trouble ON newest.judgement NOT IN ('good', 'fair', 'stale')
WHERE task.state = 'active'
ORDER BY task.id;
