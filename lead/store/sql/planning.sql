-- claim --
-- The tasks whose next run comes soonest, among those due to be planned; of equal ones those that were added earlier.
-- The lease keeps other workers away; its epoch makes a worker that lost it harmless. While it lasts, plan_at is its end:
-- an earlier one is somebody's who wants the task to be planned again. Those that wait for a
-- participant in the list are left alone, or ($7) only those that wait for this one are taken.
WITH due AS (
    SELECT task_id
    FROM planning
    WHERE
        plan_at <= $1 AND next_run_at < $2 AND (lease_until IS NULL OR lease_until <= $1)
        AND (waits_for IS NULL OR waits_for <> ALL($6::text []) OR waits_until <= $1)
        AND ($7::text IS NULL OR waits_for = $7)
    ORDER BY next_run_at, added_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)

UPDATE planning
SET lease_owner = $4, lease_until = $5, plan_at = $5, lease_epoch = planning.lease_epoch + 1
FROM due, task
WHERE planning.task_id = due.task_id AND task.id = due.task_id
RETURNING
    planning.task_id, planning.next_run_at, planning.planned_to, planning.failures, planning.lease_epoch,
    task.state::text, task.test, task.spec, task.tool, task.tools, task.scheduling_class::text, task.duration,
    task.priority, task.participants, task.participant, task.addresses, task.schedule, task.campaign,
    task.reference, task.created_at;

-- next_due --
-- A task that waits for a participant in the list is due when it can wait no longer.
SELECT min(greatest(CASE WHEN waits_for = ANY($2::text []) THEN waits_until ELSE plan_at END, lease_until))
FROM planning
WHERE plan_at IS NOT NULL AND next_run_at < $1;

-- next_to_come --
-- The first slot beyond those that are near enough to be planned.
SELECT min(next_run_at) FROM planning WHERE plan_at IS NOT NULL AND next_run_at >= $1;

-- waiting --
-- Those that were not asked for longest come first, so that each has its turn where there are many.
SELECT slot, attempt, reason FROM run WHERE task_id = $1 AND state = 'waiting' ORDER BY changed_at, slot LIMIT $2;

-- counted_runs --
-- Runs that use up the task's max_runs.
SELECT count(*) FROM run
WHERE task_id = $1 AND NOT (state = ANY($2::run_state []));

-- open_negotiation --
INSERT INTO negotiation (id, task_id, lease_epoch, run_ids, opened_at, expires_at)
SELECT $1, task_id, $3, $4, $5, $6
FROM planning WHERE task_id = $2 AND lease_epoch = $3
RETURNING id;

-- decide_commit --
-- The commit point. Refused if the lease was lost, the time is over or the task has ended.
UPDATE negotiation
SET state = 'committed', commit_message = $3, decided_at = $2
FROM task, planning
WHERE
    negotiation.id = $1
    AND negotiation.state = 'open'
    AND negotiation.expires_at > $2
    AND task.id = negotiation.task_id
    AND task.state = 'active'
    AND planning.task_id = negotiation.task_id
    AND planning.lease_epoch = negotiation.lease_epoch
RETURNING negotiation.id;

-- lock_task --
-- A cancel that is under way comes before or after the decision, never in its middle.
SELECT id FROM task WHERE id = $1 FOR SHARE;

-- ended --
-- Of these runs, those that are over at the lead.
SELECT id FROM run WHERE id = ANY($1::uuid []) AND state = ANY($2::run_state []);

-- decide_abort --
UPDATE negotiation SET state = 'aborted', decided_at = $2 WHERE id = $1 AND state = 'open' RETURNING id;

-- keep_led_exchange --
-- Where the lead takes no part itself: its record of the exchange and of the runs.
INSERT INTO exchange (id, task_id, state, lease_epoch, data, held_at, expires_at, decided_at)
VALUES ($1, $2, 'committed', $3, $4, $5, $5, $5)
ON CONFLICT (id) DO NOTHING;

-- keep_led_runs --
INSERT INTO run (
    id, task_id, exchange_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state,
    created_at, changed_at
)
SELECT wanted.id, $1, $2, wanted.slot, wanted.attempt, $3::scheduling_class, $4, wanted.starts_at, wanted.ends_at, 'booked', $5, $5
FROM unnest($6::uuid [], $7::timestamptz [], $8::smallint [], $9::timestamptz [], $10::timestamptz [])
    AS wanted (id, slot, attempt, starts_at, ends_at)
ON CONFLICT (id) DO UPDATE SET
    exchange_id = excluded.exchange_id, starts_at = excluded.starts_at, ends_at = excluded.ends_at,
    state = 'booked', reason = NULL, changed_at = excluded.changed_at
WHERE run.state = 'waiting';

-- keep_waiting --
-- Slots that found no time, each with what stood in the way. One that is still held here, because others refused
-- it, keeps the reason for when its hold is dropped.
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at
)
SELECT
    wanted.id, $1, wanted.slot, wanted.attempt, $2, $3::scheduling_class, $4, wanted.slot, wanted.slot + $5::interval,
    wanted.state::run_state, wanted.reason, $6, $6
FROM unnest($7::uuid [], $8::timestamptz [], $9::smallint [], $10::text [], $11::text [])
    AS wanted (id, slot, attempt, state, reason)
ON CONFLICT (id) DO UPDATE SET
    state = CASE WHEN run.state = 'waiting' THEN excluded.state ELSE run.state END,
    reason = CASE WHEN excluded.state = 'unplaced' AND run.reason <> '' THEN run.reason ELSE excluded.reason END,
    changed_at = excluded.changed_at,
    finished_at = CASE WHEN excluded.state = 'unplaced' THEN excluded.changed_at END
WHERE
    run.state = 'waiting'
    OR (
        run.state IN ('booked', 'set-aside')
        AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'held')
    );

-- keep_decision --
-- The same outcome again, for the same reason, is counted and not stored anew; the trace is that of the last time.
WITH newest AS (
    SELECT id, outcome, sentence, placed FROM decision WHERE task_id = $1 ORDER BY id DESC LIMIT 1
),

counted AS (
    UPDATE decision
    SET
        times = decision.times + 1, decided_at = $3, exchange_id = $2, asked = $6, trace = $10,
        first_slot = least(decision.first_slot, $8), last_slot = greatest(decision.last_slot, $9)
    FROM newest
    WHERE decision.id = newest.id AND newest.outcome = $4 AND newest.sentence = $5 AND newest.placed = 0 AND $7 = 0
    RETURNING decision.id
)

INSERT INTO decision (
    task_id, exchange_id, first_at, decided_at, outcome, sentence, asked, placed, first_slot, last_slot, trace
)
SELECT $1, $2, $3, $3, $4, $5, $6, $7, $8, $9, $10
WHERE NOT EXISTS (SELECT FROM counted);

-- finish_claim --
-- Give the task back. What changed since the claim stays: an earlier plan_at is a wake-up, another planned_to an edit.
-- A cancel under way is waited for: it must see the slots that are going to wait, or keep them from being written.
UPDATE planning
SET
    planned_to = CASE WHEN planning.planned_to IS DISTINCT FROM $7::timestamptz THEN planning.planned_to ELSE $3::timestamptz END,
    next_run_at = CASE
        WHEN planning.plan_at < planning.lease_until THEN least(planning.next_run_at, $4::timestamptz)
        ELSE $4::timestamptz
    END,
    plan_at = CASE
        WHEN planning.plan_at < planning.lease_until THEN least(planning.plan_at, $5::timestamptz)
        ELSE $5::timestamptz
    END,
    failures = $6, waits_for = $8, waits_until = $9, lease_owner = NULL, lease_until = NULL
FROM (SELECT state FROM task WHERE id = $1 FOR SHARE) AS task
WHERE
    planning.task_id = $1 AND planning.lease_epoch = $2 AND planning.lease_until IS NOT NULL
    AND (task.state = 'active' OR $5::timestamptz IS NULL)
RETURNING planning.task_id;

-- break_off --
-- What came of it is not known: nothing is said of its slots, and it is planned again.
UPDATE planning
SET plan_at = least(planning.plan_at, $3), failures = failures + 1, lease_owner = NULL, lease_until = NULL
WHERE task_id = $1 AND lease_epoch = $2 AND lease_until IS NOT NULL
RETURNING task_id;

-- abort_broken_off --
UPDATE negotiation SET state = 'aborted', decided_at = $3
WHERE task_id = $1 AND lease_epoch = $2 AND state = 'open'
RETURNING id;

-- turn_away --
-- Its turn comes when the participant has room for it.
UPDATE planning
SET plan_at = least(plan_at, $3), waits_for = $4, waits_until = NULL, lease_owner = NULL, lease_until = NULL
WHERE task_id = $1 AND lease_epoch = $2 AND lease_until IS NOT NULL;

-- put_off --
-- Those that wait for a participant are planned when it is asked again, or when they can wait no longer; those that
-- were only turned away are planned now, to learn what they wait for.
UPDATE planning
SET
    plan_at = CASE WHEN waits_until IS NULL THEN plan_at ELSE least($2::timestamptz, waits_until) END,
    waits_for = CASE WHEN waits_until IS NOT NULL THEN waits_for END
WHERE waits_for = $1 AND plan_at IS NOT NULL AND lease_until IS NULL;

-- wake_all --
-- It has answered: those that wait for it are planned now.
UPDATE planning SET plan_at = least(plan_at, $2), waits_for = NULL, waits_until = NULL
WHERE waits_for = $1 AND plan_at IS NOT NULL;

-- give_back --
-- A worker that is stopped lets others have the task at once.
UPDATE planning SET plan_at = least(plan_at, $3), lease_owner = NULL, lease_until = NULL
WHERE task_id = $1 AND lease_epoch = $2;

-- abort_stale --
-- Negotiations of workers that are gone.
UPDATE negotiation SET state = 'aborted', decided_at = $1 WHERE state = 'open' AND expires_at <= $1;

-- set_participants --
-- Not by a worker that lost its lease.
UPDATE task SET participants = $2, tool = $3, duration = $4
FROM planning
WHERE task.id = $1 AND planning.task_id = task.id AND planning.lease_epoch = $5
RETURNING task.id;

-- digests --
-- Runs to come of the tasks led here, for comparison with one participant. A task whose last decision may still be
-- on its way to the participants is left for the next time.
SELECT task.id, task.state::text, array_agg(run.id ORDER BY run.id) FILTER (WHERE run.id IS NOT NULL) AS runs
FROM task
LEFT JOIN run
    ON
        run.task_id = task.id AND run.state IN ('booked', 'set-aside', 'running', 'merging')
        AND run.starts_at >= $2 AND run.starts_at < $3
        AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
WHERE
    task.lead = (SELECT identity FROM node WHERE is_self)
    AND task.state = 'active'
    AND task.participants @> jsonb_build_array(jsonb_build_object('node', $1::text))
    AND NOT EXISTS (
        SELECT FROM negotiation
        WHERE negotiation.task_id = task.id AND (negotiation.state = 'open' OR negotiation.decided_at > $4)
    )
GROUP BY task.id
ORDER BY task.id
LIMIT 1000;

-- notify_planned --
SELECT pg_notify('parley', $1);
