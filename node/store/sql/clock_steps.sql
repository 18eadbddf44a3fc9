-- note_clock --
-- Returns what was noted before. A reading in doubt ($2) is not believed, and age is judged by none that is ahead.
UPDATE generation
SET
    clock_at = $1,
    believed_at = CASE WHEN $2 THEN generation.believed_at ELSE $1 END,
    believed_boot = CASE WHEN $2 THEN generation.believed_boot ELSE $3 END,
    believed_uptime = CASE WHEN $2 THEN generation.believed_uptime ELSE $4 END,
    aged_at = least(generation.aged_at, $1, CASE WHEN generation.aged_at IS NULL THEN generation.clock_at END)
FROM (SELECT clock_at FROM generation FOR UPDATE) AS before
RETURNING before.clock_at;

-- believed_clock --
SELECT believed_at FROM generation;

-- latest_known_clock --
-- The same reading, and so much later as the kernel has counted in the same boot ($1) until its uptime is $2 µs.
SELECT
    believed_at
    + CASE WHEN believed_boot = $1 THEN greatest(0, $2 - believed_uptime) ELSE 0 END * interval '1 microsecond'
FROM generation;

-- aged_clock --
SELECT least(aged_at + interval '1 day', $1) FROM generation;

-- age_clock --
UPDATE generation SET aged_at = least(aged_at + interval '1 day', $1) RETURNING aged_at;

-- plan_now --
-- Nobody can tell a pause that the wrong clock chose from an instant that follows from the schedule. Planning too early
-- finds nothing to do and chooses anew. The same holds for the next slot, which is the wrong instant of an edit.
WITH late AS (
    SELECT task_id FROM planning
    WHERE (plan_at > $1 OR (plan_at IS NOT NULL AND next_run_at > $1)) AND lease_until IS NULL
    ORDER BY task_id -- all transactions lock in the same order
    FOR NO KEY UPDATE
)

UPDATE planning
SET plan_at = least(plan_at, $1), next_run_at = CASE WHEN next_run_at > $1 THEN $1 ELSE next_run_at END
FROM late
WHERE planning.task_id = late.task_id;

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
    decided_at = CASE WHEN decided_at > $1 THEN $1 ELSE decided_at END
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

-- open_again --
-- Tasks led here that seemed to have nothing left to come. If that is so, they end again.
WITH opened AS (
    UPDATE task SET state = 'active', reason = NULL, ended_at = NULL
    FROM node
    WHERE
        task.state = 'finished' AND task.ended_at > $1 AND task.lead = node.identity AND node.is_self
        AND NOT EXISTS (SELECT FROM pool_task WHERE pool_task.task_id = task.id)
    RETURNING task.id
)

DELETE FROM outbox USING opened WHERE outbox.kind = 'task-end' AND outbox.message ->> 'task' = opened.id::text;

-- book_again --
-- Runs that are over by the wrong clock alone: nothing is over before its start. They get their time back if it is still free
-- here. What was to be told or delivered of them is not, and what their campaigns and limits got back they give again. An attempt
-- that was to follow them and has found no time yet does not: there is nothing to be tried again.
WITH back AS (
    UPDATE run
    SET
        state = 'booked', reason = NULL, changed_at = $1, started_at = NULL, finished_at = NULL, process_id = NULL,
        process_ticks = NULL, result = NULL, summary = NULL, verdict = NULL, verdict_reasons = '{}', judgement = NULL,
        judgement_code = NULL, judgement_reason = NULL
    FROM task
    WHERE
        run.state IN ('failed', 'missed') AND run.starts_at > $1 AND NOT run.freed
        AND task.id = run.task_id AND task.state IN ('active', 'paused')
        AND (
            EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
            OR EXISTS (SELECT FROM negotiation WHERE negotiation.id = run.exchange_id AND negotiation.state = 'committed')
        )
        AND NOT EXISTS (
            SELECT FROM run AS other
            WHERE other.state IN ('booked', 'running') AND other.during && run.during AND other.lane && run.lane
        )
        AND NOT EXISTS (
            SELECT FROM run AS later
            WHERE
                later.task_id = run.task_id AND later.slot = run.slot AND later.attempt > run.attempt
                AND later.state <> 'waiting'
        )
    RETURNING run.id, run.task_id, run.slot, run.attempt, run.starts_at, run.ends_at, run.lane, run.spec
),

not_tried AS (
    DELETE FROM run USING back
    WHERE
        run.task_id = back.task_id AND run.slot = back.slot AND run.attempt > back.attempt AND run.state = 'waiting'
),

unmeasured AS (
    DELETE FROM part USING back WHERE part.run_id = back.id
),

untold AS (
    DELETE FROM outbox USING back
    WHERE outbox.kind IN ('part', 'run-end') AND outbox.message ->> 'run' = back.id::text
),

undelivered AS (
    DELETE FROM archiving USING back
    WHERE archiving.run_id = back.id AND archiving.state = 'waiting' AND NOT archiving.taken
),

charged AS (
    INSERT INTO charge (campaign_id, run_id, participant, node, starts_at, ends_at, weight, bytes, cause, made_at)
    SELECT
        charge.campaign_id, charge.run_id, charge.participant, charge.node, charge.starts_at, charge.ends_at,
        -sum(charge.weight), -sum(charge.bytes), 'unused', $1
    FROM back
    INNER JOIN charge ON back.id = charge.run_id AND charge.starts_at >= back.starts_at AND charge.starts_at < back.ends_at
    WHERE charge.cause IN ('unused', 'measured')
    GROUP BY charge.campaign_id, charge.run_id, charge.participant, charge.node, charge.starts_at, charge.ends_at
    HAVING sum(charge.weight) <> 0 OR sum(charge.bytes) <> 0
),

counted AS (
    INSERT INTO limit_return (rule, holder, quantity, period, begins_at, amount)
    SELECT
        quota.rule, account.holder, quota.quantity, quota.period, date_bin(quota.period, back.starts_at, 'epoch'),
        limit_amount(quota.quantity, back.ends_at - back.starts_at, account.run_bytes)
    FROM back
    INNER JOIN limit_account AS account ON back.task_id = account.task_id
    INNER JOIN limit_quota AS quota ON account.rule = quota.rule
    WHERE back.spec IS NULL
)

SELECT
    id, task_id,
    CASE WHEN lane IS NOT NULL THEN pg_notify('parley', format(
        'changed %s %s', (extract(EPOCH FROM starts_at) * 1000000)::bigint, (extract(EPOCH FROM ends_at) * 1000000)::bigint
    )) END
FROM back;

-- deliver_now --
-- Nor does the delivery of a result. Its day of attempts begins at the latest now.
UPDATE archiving
SET
    next_at = CASE WHEN NOT taken AND (next_at > $2 OR created_at > $1 OR tried_at > $1) THEN $1 ELSE next_at END,
    first_tried_at = least(first_tried_at, $1)
WHERE state = 'waiting' AND (next_at > $2 OR created_at > $1 OR tried_at > $1 OR first_tried_at > $1);

-- see_nodes_now --
-- What is null stays so: a node that is not away is not away since now.
UPDATE node
SET
    seen_at = CASE WHEN seen_at > $1 THEN $1 ELSE seen_at END,
    heard_at = CASE WHEN heard_at > $1 THEN $1 ELSE heard_at END,
    unreachable_since = CASE WHEN unreachable_since > $1 THEN $1 ELSE unreachable_since END
WHERE greatest(seen_at, heard_at, unreachable_since) > $1;

-- plan_again --
-- Slots that seemed to have passed unplanned, and those of runs led here that are over by the wrong clock alone and did not get
-- their time back. With a new revision the lead looks which of them have runs already.
WITH undone AS (
    DELETE FROM gap USING planning, task
    WHERE
        gap.told_at > $1 AND planning.task_id = gap.task_id AND task.id = gap.task_id AND task.state = 'active'
    RETURNING gap.task_id, gap.first_slot
),

left_over AS (
    UPDATE run SET freed = TRUE, changed_at = $1
    FROM planning, task
    WHERE
        (
            (run.state IN ('failed', 'missed') AND run.starts_at > $1)
            OR (run.state = 'unplaced' AND run.finished_at > $1)
        )
        AND NOT run.freed
        AND planning.task_id = run.task_id AND task.id = run.task_id AND task.state = 'active'
        AND NOT EXISTS (
            SELECT FROM run AS later
            WHERE later.task_id = run.task_id AND later.slot = run.slot AND later.attempt > run.attempt
        )
    RETURNING run.task_id, run.slot
),

again AS (
    SELECT undone.task_id, min(undone.first_slot) AS slot
    FROM (
        SELECT task_id, first_slot FROM undone
        UNION ALL
        SELECT task_id, slot FROM left_over
    ) AS undone
    INNER JOIN planning ON undone.task_id = planning.task_id
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

-- learn_now --
-- Otherwise nothing more would be learned of what is usual until then.
UPDATE alert_usual SET last_at = $1 WHERE last_at > $1;

-- forget_outcomes --
-- Of tasks that seemed to be without results. Before the alerts, as whoever ends a run locks them.
UPDATE alert_memory SET marks = marks - 'outcome', raised = array_remove(raised, 'outcome')
FROM alert
WHERE
    alert_memory.task_id = alert.task_id AND alert.rule = 'outcome' AND alert.raised_at > $1 AND alert.over_at IS NULL;

-- end_alerts --
UPDATE alert SET over_at = $1 WHERE rule = 'outcome' AND raised_at > $1 AND over_at IS NULL RETURNING id, task_id;

-- date_alerts_now --
UPDATE alert SET raised_at = least(raised_at, $1), over_at = CASE WHEN over_at > $1 THEN $1 ELSE over_at END
WHERE greatest(raised_at, over_at) > $1;

-- see_leads_now --
-- What seemed to be an absence until later than now was none.
WITH undone AS (
    DELETE FROM lead_absence WHERE until > $1
)

UPDATE lead_process SET seen_at = $1 WHERE seen_at > $1;
