-- ended_runs --
-- The runs led here that are over and ended before an instant.
SELECT
    run.id, run.task_id, run.slot, run.attempt, run.state::text AS state, run.starts_at, run.ends_at, run.reason,
    coalesce(task.campaign, 'default') AS campaign, jsonb_array_length(task.participants) AS seats
FROM run INNER JOIN task ON run.task_id = task.id INNER JOIN node ON task.lead = node.identity AND node.is_self
WHERE
    run.state IN ('finished', 'failed', 'missed', 'cancelled', 'displaced', 'unplaced')
    AND run.ends_at < $1::timestamptz AND run.slot < $2::timestamptz
ORDER BY run.task_id, run.slot, run.attempt;

-- parties --
-- The participants of the tasks led here.
SELECT task.id, ARRAY(SELECT listed.value ->> 'node' FROM jsonb_array_elements(task.participants) AS listed) AS nodes
FROM task INNER JOIN node ON task.lead = node.identity AND node.is_self
ORDER BY task.id;

-- parties_of_seats --
-- Those of tasks of seats, wherever they are led.
SELECT task.id, ARRAY(SELECT listed.value ->> 'node' FROM jsonb_array_elements(task.participants) AS listed) AS nodes
FROM task
WHERE task.parent IS NOT NULL
ORDER BY task.id;
