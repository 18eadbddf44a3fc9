-- told_slots --
-- Unplanned slots that have a run which tells of them: one that is held by a worker that was killed, and
-- will wait, or one that a change of the task has left.
SELECT DISTINCT run.task_id, run.slot
FROM unnest($1::uuid [], $2::timestamptz []) AS behind (task_id, planned_to)
INNER JOIN run ON behind.task_id = run.task_id AND run.slot > behind.planned_to
WHERE NOT (run.freed OR run.state = 'displaced');

-- absences --
-- For ranges of slots, by their numbers, the longest absence of all leads in that time, also one that has not ended yet.
SELECT given.number, absence.since, absence.until
FROM unnest($1::timestamptz [], $2::timestamptz []) WITH ORDINALITY AS given (first_slot, last_slot, number)
CROSS JOIN LATERAL (
    SELECT away.since, away.until
    FROM (
        SELECT since, until FROM lead_absence
        UNION ALL
        SELECT max(seen_at), $3::timestamptz FROM lead_process HAVING max(seen_at) < $4
    ) AS away
    WHERE away.since <= given.last_slot AND away.until >= given.first_slot
    ORDER BY least(away.until, given.last_slot) - greatest(away.since, given.first_slot) DESC
    LIMIT 1
) AS absence
ORDER BY given.number;

-- keep_gaps --
-- Slots that were never planned, as ranges. What overlaps a gap that is told already is told already.
INSERT INTO gap (id, task_id, first_slot, last_slot, slots, reason, told_at)
SELECT given.id, given.task_id, given.first_slot, given.last_slot, given.slots, given.reason, $7
FROM unnest($1::uuid [], $2::uuid [], $3::timestamptz [], $4::timestamptz [], $5::bigint [], $6::text [])
    WITH ORDINALITY AS given (id, task_id, first_slot, last_slot, slots, reason, number)
ORDER BY given.number
ON CONFLICT DO NOTHING
RETURNING id;

-- followers_gaps --
-- The tasks that follow those of gaps have gaps where runs of these would have ended, from their own creation on.
SELECT
    md5(format('%s follows %s', follower.id, told.id))::uuid AS id, follower.id AS task_id,
    told.first_slot + followed.duration + CASE
        WHEN before.slots = 0 THEN interval '0'
        ELSE extract(EPOCH FROM told.last_slot - told.first_slot) * before.slots / (told.slots - 1) * interval '1 second'
    END AS first_slot,
    told.last_slot + followed.duration AS last_slot, told.slots - before.slots AS slots,
    told.task_id AS followed_id, told.reason
FROM gap AS told
INNER JOIN task AS followed ON told.task_id = followed.id
INNER JOIN task AS follower ON
    told.task_id = follower.follows AND follower.state IN ('active', 'paused') AND NOT follower.schedule -> 'after' ? 'when'
INNER JOIN node ON follower.lead = node.identity AND node.is_self
CROSS JOIN LATERAL (
    SELECT slots_before(follower.created_at - followed.duration, told.first_slot, told.last_slot, told.slots) AS slots
) AS before
WHERE told.id = ANY($1::uuid []) AND before.slots < told.slots
ORDER BY follower.id, told.first_slot;

-- pool_standings --
SELECT task_id, next_slot, rounds_left FROM pool_task WHERE task_id = ANY($1::uuid []);
