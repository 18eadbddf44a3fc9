-- lead_shares --
SELECT lead, share FROM lead_share ORDER BY lead;

-- lock_lead_shares --
-- Holds take turns while shares are set: two that are booked at once would not count each other's runs.
SELECT lead, share FROM lead_share ORDER BY lead FOR UPDATE;

-- begin_lead_shares --
-- Changes take turns: of two at once both would insert the same leads.
LOCK TABLE lead_share IN SHARE ROW EXCLUSIVE MODE;

-- drop_lead_shares --
DELETE FROM lead_share;

-- keep_lead_shares --
INSERT INTO lead_share (lead, share)
SELECT given.lead, given.share FROM unnest($1::text [], $2::integer []) AS given (lead, share);

-- lead_use --
-- By lead, class, and hour of the start, how long the runs are that take, took, or will take time of this node.
SELECT
    task.lead, run.scheduling_class::text, date_bin('1 hour', run.starts_at, 'epoch'::timestamptz) AS hour,
    sum(run.ends_at - run.starts_at) AS lasts
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE
    run.starts_at >= $1 AND run.starts_at < $2
    AND run.lane IS NOT NULL
    AND run.state IN ('booked', 'running', 'merging', 'finished', 'failed')
GROUP BY task.lead, run.scheduling_class, hour
ORDER BY task.lead, run.scheduling_class, hour;

-- runs_to_come --
SELECT run.scheduling_class::text, date_bin('1 hour', run.starts_at, 'epoch'::timestamptz) AS hour, run.ends_at - run.starts_at AS lasts
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE task.lead = $1 AND task.id = $2 AND run.starts_at >= $3 AND run.lane IS NOT NULL AND run.state = 'booked'
ORDER BY run.starts_at;

-- lead_questions --
SELECT lead, hour, asked_at FROM lead_question WHERE asked_at > $1 ORDER BY lead, hour;

-- note_questions --
INSERT INTO lead_question (lead, hour, asked_at)
SELECT DISTINCT $1::text, asked.hour, $3::timestamptz FROM unnest($2::timestamptz []) AS asked (hour)
ON CONFLICT (lead, hour) DO UPDATE SET asked_at = excluded.asked_at;

-- purge_questions --
DELETE FROM lead_question WHERE asked_at <= $1;
