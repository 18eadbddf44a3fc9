-- told_slots --
-- Unplanned slots that have a run which tells of them: one that is held by a worker that was killed, and
-- will wait, or one that a change of the task has left.
SELECT DISTINCT run.task_id, run.slot
FROM unnest($1::uuid [], $2::timestamptz []) AS behind (task_id, planned_to)
INNER JOIN run ON behind.task_id = run.task_id AND run.slot > behind.planned_to
WHERE NOT (run.freed OR run.state = 'displaced');

-- keep_gaps --
-- Slots that were never planned, as ranges. What overlaps a gap that is told already is told already. The reason is the longest
-- absence of all leads in that time, also one that has not ended yet. The tasks that follow these have gaps where runs of
-- these would have ended, from their own creation on.
WITH told AS (
    INSERT INTO gap (id, task_id, first_slot, last_slot, slots, reason, told_at)
    SELECT
        given.id, given.task_id, given.first_slot, given.last_slot, given.slots,
        coalesce(absence.sentence, given.reason) || $7, $1
    FROM
        unnest($2::uuid [], $3::uuid [], $4::timestamptz [], $5::timestamptz [], $6::bigint [], $8::text [])
            WITH ORDINALITY AS given (id, task_id, first_slot, last_slot, slots, reason, number)
    LEFT JOIN LATERAL (
        SELECT absence_sentence(away.since, away.until) AS sentence
        FROM (
            SELECT since, until FROM lead_absence
            UNION ALL
            SELECT max(seen_at), $1::timestamptz FROM lead_process HAVING max(seen_at) < $9
        ) AS away
        WHERE away.since <= given.last_slot AND away.until >= given.first_slot
        ORDER BY least(away.until, given.last_slot) - greatest(away.since, given.first_slot) DESC
        LIMIT 1
    ) AS absence ON TRUE
    ORDER BY given.number
    ON CONFLICT DO NOTHING
    RETURNING *
)

INSERT INTO gap (id, task_id, first_slot, last_slot, slots, reason, told_at)
SELECT
    md5(format('%s follows %s', follower.id, told.id))::uuid, follower.id,
    told.first_slot + followed.duration + CASE
        WHEN before.slots = 0 THEN interval '0'
        ELSE extract(EPOCH FROM told.last_slot - told.first_slot) * before.slots / (told.slots - 1) * interval '1 second'
    END,
    told.last_slot + followed.duration, told.slots - before.slots,
    format('task %s, which it follows, has a gap: %s', told.task_id, told.reason), told.told_at
FROM told
INNER JOIN task AS followed ON told.task_id = followed.id
INNER JOIN task AS follower ON told.task_id = follower.follows AND follower.state IN ('active', 'paused')
INNER JOIN node ON follower.lead = node.identity AND node.is_self
CROSS JOIN LATERAL (
    SELECT slots_before(follower.created_at - followed.duration, told.first_slot, told.last_slot, told.slots) AS slots
) AS before
WHERE before.slots < told.slots
ORDER BY follower.id, told.first_slot
ON CONFLICT DO NOTHING;

-- pool_standings --
SELECT task_id, next_slot, rounds_left FROM pool_task WHERE task_id = ANY($1::uuid []);
