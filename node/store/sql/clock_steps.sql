-- note_clock --
-- Returns what was noted before.
UPDATE generation SET clock_at = $1
FROM (SELECT clock_at FROM generation FOR UPDATE) AS before
RETURNING before.clock_at;

-- plan_now --
-- Nobody can tell a pause that the wrong clock chose from an instant that follows from the schedule. Planning too early
-- finds nothing to do and chooses anew.
UPDATE planning SET plan_at = $1 WHERE plan_at > $1 AND lease_until IS NULL;

-- shorten_leases --
-- Of workers that may live. An earlier plan_at is a wake-up for the end of the lease (see "finish_claims").
UPDATE planning
SET lease_until = $2, plan_at = CASE WHEN plan_at < lease_until THEN least(plan_at, $1) ELSE $2 END
WHERE lease_until > $2;

-- open_terms_now --
-- If nothing is due, their lead chooses the instants anew.
WITH tried AS (
    UPDATE term SET try_at = $1 WHERE try_at > $1
)

UPDATE pool_task SET due_at = $1 WHERE due_at > $1;

-- begin_negotiations_now --
-- And decisions that may still be on their way are fresh now.
UPDATE negotiation
SET
    opened_at = least(opened_at, $1),
    expires_at = CASE WHEN opened_at > $1 THEN $1 + (expires_at - opened_at) ELSE expires_at END,
    decided_at = least(decided_at, $1)
WHERE opened_at > $1 OR decided_at > $1;

-- begin_holds_now --
UPDATE exchange SET held_at = $1, expires_at = $1 + (expires_at - held_at)
WHERE state = 'held' AND held_at > $1;

-- send_now --
-- By the right clock no message waits so long.
UPDATE outbox SET next_at = $1 WHERE next_at > $2;

-- wait_for_start --
-- Runs that others measure, and that seemed over to their lead.
UPDATE run SET state = 'booked', changed_at = $1
WHERE
    state = 'merging' AND participant IS NULL AND starts_at > $1
    AND NOT EXISTS (SELECT FROM part WHERE part.run_id = run.id);

-- deliver_now --
-- Nor does the delivery of a result. Its day of attempts begins at the latest now.
UPDATE archiving
SET
    next_at = CASE WHEN NOT taken AND (next_at > $2 OR created_at > $1 OR tried_at > $1) THEN $1 ELSE next_at END,
    first_tried_at = least(first_tried_at, $1)
WHERE state = 'waiting' AND (next_at > $2 OR created_at > $1 OR tried_at > $1 OR first_tried_at > $1);

-- see_nodes_now --
UPDATE node
SET
    seen_at = least(seen_at, $1), heard_at = least(heard_at, $1), unreachable_since = least(unreachable_since, $1)
WHERE greatest(seen_at, heard_at, unreachable_since) > $1;

-- plan_gaps_again --
-- Slots that seemed to have passed unplanned. With a new revision the lead looks which of them have runs already.
WITH undone AS (
    DELETE FROM gap USING planning, task
    WHERE
        gap.told_at > $1 AND planning.task_id = gap.task_id AND task.id = gap.task_id AND task.state = 'active'
    RETURNING gap.task_id, gap.first_slot
),

again AS (
    SELECT undone.task_id, min(undone.first_slot) AS slot
    FROM undone INNER JOIN planning ON undone.task_id = planning.task_id
    WHERE NOT planning.follower
    GROUP BY undone.task_id
),

revised AS (
    UPDATE task SET revision = task.revision + 1
    FROM again
    WHERE task.id = again.task_id
)

UPDATE planning
SET
    planned_to = least(planning.planned_to, again.slot - interval '1 microsecond'),
    next_run_at = least(planning.next_run_at, again.slot),
    plan_at = least(planning.plan_at, $1)
FROM again
WHERE planning.task_id = again.task_id;

-- see_leads_now --
-- What seemed to be an absence until later than now was none.
WITH undone AS (
    DELETE FROM lead_absence WHERE until > $1
)

UPDATE lead_process SET seen_at = $1 WHERE seen_at > $1;
