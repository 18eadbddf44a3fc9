-- claim --
-- Claims the due tasks whose next run comes soonest; among equals those that were added first.
-- The lease keeps other workers away; its epoch makes a worker that lost it harmless. During the lease, plan_at is its end;
-- an earlier plan_at means that planning was requested again. Tasks that wait for a participant in the list are skipped,
-- or ($7) only those that wait for this participant are taken.
WITH RECURSIVE limited AS (
    SELECT id FROM campaign WHERE bounded
    UNION
    SELECT campaign.id FROM campaign INNER JOIN limited ON campaign.parent_id = limited.id
),

suspended AS (
    SELECT id, name, 0 AS above FROM campaign WHERE level = 0
    UNION
    SELECT campaign.id, suspended.name, suspended.above + 1
    FROM campaign
    INNER JOIN suspended ON campaign.parent_id = suspended.id
),

due AS (
    SELECT task_id, lease_owner AS taken_from
    FROM planning
    WHERE
        plan_at <= $1 AND next_run_at < $2 AND (lease_until IS NULL OR lease_until <= $1)
        AND (waits_for IS NULL OR waits_for <> ALL($6::text []) OR waits_until <= $1)
        AND ($7::text IS NULL OR waits_for = $7)
    ORDER BY next_run_at, added_at, task_id
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)

UPDATE planning
SET lease_owner = $4, lease_until = $5, plan_at = $5, lease_epoch = planning.lease_epoch + 1
FROM due, task, campaign
WHERE planning.task_id = due.task_id AND task.id = due.task_id AND campaign.id = planning.campaign_id
RETURNING
    planning.task_id, planning.next_run_at, planning.planned_to, planning.failures, planning.lease_epoch,
    task.state::text, task.test, task.spec, task.tool, task.tools, task.scheduling_class::text, task.duration,
    task.priority, task.participants, task.participant, task.addresses, task.schedule, task.campaign,
    task.reference, task.created_at, task.revision, task.freeing, task.parent,
    (
        SELECT pool.name
        FROM pool_task
        INNER JOIN pool ON pool_task.pool_id = pool.id
        WHERE pool_task.task_id = task.parent
    ) AS pool,
    task.yielding, task.starts,
    (
        SELECT suspended.name
        FROM suspended
        WHERE suspended.id = planning.campaign_id
        ORDER BY suspended.above DESC
        LIMIT 1
    ) AS suspended,
    EXISTS (SELECT FROM limited WHERE limited.id = planning.campaign_id) AS limited,
    campaign.level = 10 OR campaign.preemptor AS privileged,
    campaign.level,
    due.taken_from,
    task.limit_rule, task.limit_refusal, task.run_bytes, task.limit_user, task.keepers, task.lead;

-- count_takeovers --
-- A process took tasks over from others, whose leases had run out.
INSERT INTO lead_process (owner, seen_at, takeovers, took_over_at) VALUES ($1, $2, $3, $2)
ON CONFLICT (owner) DO UPDATE SET
    takeovers = lead_process.takeovers + excluded.takeovers, took_over_at = excluded.took_over_at;

-- next_due --
-- A task that waits for a participant in the list is due when it can wait no longer. Also the first slot beyond those that
-- are near enough to be planned.
SELECT
    least(
        (
            SELECT greatest(plan_at, lease_until)
            FROM planning
            WHERE plan_at IS NOT NULL AND next_run_at < $1 AND (waits_for IS NULL OR waits_for <> ALL($2::text []))
            ORDER BY greatest(plan_at, lease_until)
            LIMIT 1
        ),
        (
            SELECT min(greatest(plan_at, waits_until, lease_until))
            FROM planning
            WHERE
                plan_at IS NOT NULL AND next_run_at < $1 AND waits_for = ANY($2::text [])
                AND waits_until IS NOT NULL
        )
    ) AS due,
    (SELECT min(next_run_at) FROM planning WHERE plan_at IS NOT NULL AND next_run_at >= $1) AS beyond;

-- waiting --
-- Those that were asked longest ago come first, so that each has its turn. Also when the attempt before ended, if it came to
-- nothing.
SELECT
    task_id, slot, attempt, reason,
    CASE WHEN attempt > 1 THEN (
        SELECT max(coalesce(earlier.finished_at, earlier.changed_at))
        FROM run AS earlier
        WHERE
            earlier.task_id = waiting.task_id AND earlier.slot = waiting.slot AND earlier.attempt < waiting.attempt
            AND earlier.state = ANY($3::run_state [])
    ) END AS failed_at
FROM (
    SELECT
        task_id, slot, attempt, reason,
        row_number() OVER (PARTITION BY task_id ORDER BY changed_at, slot, attempt) AS number
    FROM run
    WHERE task_id = ANY($1::uuid []) AND state = 'waiting'
) AS waiting
WHERE number <= $2
ORDER BY task_id, number;

-- touched --
-- Unplanned slots that have had runs: the last attempt of each, and whether another may follow it.
SELECT DISTINCT ON (run.task_id, run.slot) run.task_id, run.slot, run.attempt, run.freed OR run.state = 'displaced' AS again
FROM unnest($1::uuid [], $2::timestamptz []) AS changed (task_id, planned_to)
INNER JOIN run ON changed.task_id = run.task_id AND run.slot > changed.planned_to
ORDER BY run.task_id, run.slot, run.attempt DESC;

-- booked_starts --
SELECT slot, starts_at FROM run WHERE task_id = $1 AND state IN ('booked', 'set-aside') ORDER BY slot;

-- counted_runs --
-- Slots whose runs count towards the tasks' max_runs.
SELECT task_id, count(DISTINCT slot) FROM run
WHERE task_id = ANY($1::uuid []) AND NOT (state = ANY($2::run_state []))
GROUP BY task_id;

-- open_negotiations --
INSERT INTO negotiation (id, task_id, lease_epoch, run_ids, opened_at, expires_at)
SELECT
    opening.id, opening.task_id, opening.lease_epoch,
    (SELECT array_agg(named.run_id) FROM unnest($4::integer [], $5::uuid []) AS named (number, run_id) WHERE named.number = opening.number),
    $6, $7
FROM unnest($1::uuid [], $2::uuid [], $3::bigint []) WITH ORDINALITY AS opening (id, task_id, lease_epoch, number)
INNER JOIN planning ON opening.task_id = planning.task_id AND opening.lease_epoch = planning.lease_epoch
RETURNING id;

-- decide_commit --
-- The commit point. Fails if the lease was lost, the time is over, or the task has ended.
UPDATE negotiation
SET state = 'committed', commit_message = said.message, decided_at = $2
FROM unnest($1::uuid [], $3::jsonb []) AS said (id, message), task, planning
WHERE
    negotiation.id = said.id
    AND negotiation.state = 'open'
    AND negotiation.expires_at > $2
    AND task.id = negotiation.task_id
    AND task.state = 'active'
    AND planning.task_id = negotiation.task_id
    AND planning.lease_epoch = negotiation.lease_epoch
RETURNING negotiation.id;

-- committed --
SELECT commit_message FROM negotiation WHERE id = $1 AND state = 'committed';

-- held_again --
-- What the lead holds of an exchange, for a participant that dropped it and should hold it again.
SELECT
    run.id, run.task_id, run.slot, run.attempt, run.starts_at, run.ends_at, run.priority, task.revision,
    run.attempt > 1 AND EXISTS (
        SELECT FROM run AS earlier
        WHERE
            earlier.task_id = run.task_id AND earlier.slot = run.slot AND earlier.attempt < run.attempt
            AND earlier.state = ANY($3::run_state [])
    ) AS again,
    negotiation.lease_epoch, coalesce(task.tool, '') AS tool, negotiation.expires_at - negotiation.opened_at AS life
FROM negotiation
INNER JOIN task ON negotiation.task_id = task.id
INNER JOIN run ON negotiation.id = run.exchange_id
WHERE negotiation.id = $1 AND run.id = ANY($2::uuid [])
ORDER BY run.starts_at;

-- lock_tasks --
-- Serialises with cancellation, which comes either before or after the decision.
SELECT id FROM task WHERE id = ANY($1::uuid []) ORDER BY id FOR SHARE;

-- ended --
-- Those of these runs that are over at the lead.
SELECT id FROM run WHERE id = ANY($1::uuid []) AND state = ANY($2::run_state []);

-- decide_abort --
UPDATE negotiation SET state = 'aborted', decided_at = $2 WHERE id = ANY($1::uuid []) AND state = 'open';

-- keep_led_exchange --
-- For a lead that takes no part itself: its record of the exchange and of the runs.
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
-- Slots without a time, each with its obstacle. A run that is still held here, because others refused it, stores the reason
-- for the moment when its hold is dropped. A slot that is over, and was told as a gap since the task was claimed (it was edited
-- meanwhile), is told already.
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at
)
SELECT
    wanted.id, $1, wanted.slot, wanted.attempt, $2, $3::scheduling_class, $4, wanted.slot, wanted.slot + $5::interval,
    wanted.state::run_state, wanted.reason, $6, $6
FROM unnest($7::uuid [], $8::timestamptz [], $9::smallint [], $10::text [], $11::text [])
    AS wanted (id, slot, attempt, state, reason)
WHERE NOT (
    wanted.state = 'unplaced'
    AND EXISTS (SELECT FROM gap WHERE gap.task_id = $1 AND wanted.slot BETWEEN gap.first_slot AND gap.last_slot)
    AND NOT EXISTS (SELECT FROM run WHERE run.id = wanted.id) -- it waits, and has to be ended
)
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

-- keep_decisions --
-- A repeated outcome with the same reason is counted instead of stored; the trace is that of the last attempt.
WITH made AS (
    SELECT *
    FROM unnest(
        $2::uuid [], $3::uuid [], $4::text [], $5::text [], $6::integer [], $7::integer [], $8::timestamptz [],
        $9::timestamptz [], $10::jsonb []
    ) AS made (task_id, exchange_id, outcome, sentence, asked, placed, first_slot, last_slot, trace)
),

counted AS (
    UPDATE decision
    SET
        times = decision.times + 1, decided_at = $1, exchange_id = made.exchange_id, asked = made.asked,
        trace = made.trace, first_slot = least(decision.first_slot, made.first_slot),
        last_slot = greatest(decision.last_slot, made.last_slot)
    FROM made
    WHERE
        decision.id = (SELECT max(newest.id) FROM decision AS newest WHERE newest.task_id = made.task_id)
        AND decision.outcome = made.outcome AND decision.sentence = made.sentence
        AND decision.placed = 0 AND made.placed = 0
    RETURNING decision.task_id
)

INSERT INTO decision (
    task_id, exchange_id, first_at, decided_at, outcome, sentence, asked, placed, first_slot, last_slot, trace
)
SELECT
    made.task_id, made.exchange_id, $1, $1, made.outcome, made.sentence, made.asked, made.placed, made.first_slot,
    made.last_slot, made.trace
FROM made
WHERE NOT EXISTS (SELECT FROM counted WHERE counted.task_id = made.task_id);

-- finish_claims --
-- Returns tasks. Changes since the claim are kept: an earlier plan_at is a wake-up, another planned_to an edit.
-- The next claim is above the epoch that a participant knows, should that be the higher one.
-- Waits for a concurrent cancellation, which must see the slots that are about to wait, or prevent them.
UPDATE planning
SET
    planned_to = CASE WHEN planning.planned_to IS DISTINCT FROM done.was_planned_to THEN planning.planned_to ELSE done.planned_to END,
    next_run_at = CASE
        WHEN planning.plan_at < planning.lease_until THEN least(planning.next_run_at, done.next_run_at)
        ELSE done.next_run_at
    END,
    plan_at = CASE
        WHEN planning.plan_at < planning.lease_until THEN least(planning.plan_at, done.plan_at)
        ELSE done.plan_at
    END,
    failures = done.failures, waits_for = done.waits_for, waits_until = done.waits_until, wants_room = done.wants_room,
    lease_epoch = greatest(planning.lease_epoch, done.known_epoch), lease_owner = NULL, lease_until = NULL
FROM (
    SELECT done.*, task.state
    FROM unnest(
        $1::uuid [], $2::bigint [], $3::timestamptz [], $4::timestamptz [], $5::timestamptz [], $6::timestamptz [],
        $7::integer [], $8::text [], $9::timestamptz [], $10::boolean [], $11::bigint []
    ) AS done (
        task_id, lease_epoch, was_planned_to, planned_to, next_run_at, plan_at, failures, waits_for, waits_until,
        wants_room, known_epoch
    )
    INNER JOIN task ON done.task_id = task.id
    ORDER BY task.id
    FOR SHARE OF task
) AS done
WHERE
    planning.task_id = done.task_id AND planning.lease_epoch = done.lease_epoch AND planning.lease_until IS NOT NULL
    AND (done.state = 'active' OR done.plan_at IS NULL)
RETURNING planning.task_id;

-- break_off --
-- The outcome is unknown: nothing is recorded about its slots, and the task is planned again.
UPDATE planning
SET plan_at = least(planning.plan_at, $3), failures = failures + 1, lease_owner = NULL, lease_until = NULL
WHERE task_id = $1 AND lease_epoch = $2 AND lease_until IS NOT NULL
RETURNING task_id;

-- abort_broken_off --
-- Negotiations that nobody can commit any more, up to this epoch: their worker gave up, or lost its lease.
UPDATE negotiation SET state = 'aborted', decided_at = $3
WHERE task_id = $1 AND lease_epoch <= $2 AND state = 'open'
RETURNING id, lease_epoch;

-- turn_away --
-- The task is planned when the participant has capacity again.
UPDATE planning
SET plan_at = least(plan_at, $3), waits_for = $4, waits_until = NULL, lease_owner = NULL, lease_until = NULL
WHERE task_id = $1 AND lease_epoch = $2 AND lease_until IS NOT NULL;

-- put_off --
-- Tasks that wait for a participant are planned when it is asked again, or when they can wait no longer; tasks that were
-- only turned away for lack of capacity are planned now, to record what they wait for. In order, as several workers do this at
-- once.
WITH waiting AS (
    SELECT task_id FROM planning
    WHERE waits_for = $1 AND plan_at IS NOT NULL AND lease_until IS NULL
    ORDER BY task_id
    FOR NO KEY UPDATE
)

UPDATE planning
SET
    plan_at = CASE WHEN waits_until IS NULL THEN plan_at ELSE least($2::timestamptz, waits_until) END,
    waits_for = CASE WHEN waits_until IS NOT NULL THEN waits_for END
FROM waiting
WHERE planning.task_id = waiting.task_id;

-- note_answered --
UPDATE node SET seen_at = $2, unreachable_since = NULL, last_error = NULL
WHERE identity = ANY($1::text []) AND unreachable_since IS NOT NULL;

-- wake_all --
-- The participant has answered: plan the tasks that wait for it now.
WITH waiting AS (
    SELECT task_id FROM planning
    WHERE waits_for = $1 AND plan_at IS NOT NULL
    ORDER BY task_id -- all transactions lock in the same order
    FOR NO KEY UPDATE
)

UPDATE planning SET plan_at = least(plan_at, $2), waits_for = NULL, waits_until = NULL
FROM waiting
WHERE planning.task_id = waiting.task_id;

-- seen_since --
-- Those of these nodes that this host has seen since an instant each: whoever looks after the nodes, or a check, had an answer.
SELECT asked.identity
FROM unnest($1::text [], $2::timestamptz []) AS asked (identity, since)
INNER JOIN node ON asked.identity = node.identity AND node.seen_at > asked.since;

-- give_back --
-- A worker that is stopped makes its task available to others at once.
UPDATE planning SET plan_at = least(plan_at, $3), lease_owner = NULL, lease_until = NULL
WHERE task_id = $1 AND lease_epoch = $2;

-- abort_stale --
-- Negotiations of workers that no longer exist.
UPDATE negotiation SET state = 'aborted', decided_at = $1 WHERE state = 'open' AND expires_at <= $1;

-- lock_to_change --
-- Serialises with edits. Before anything else is locked: ends of runs lock their tasks first, too.
SELECT id FROM task WHERE id = ANY($1::uuid []) ORDER BY id FOR NO KEY UPDATE;

-- set_participants --
-- Not for a worker that lost its lease.
UPDATE task SET participants = $2, tool = $3, duration = $4, keepers = $6
FROM planning
WHERE task.id = $1 AND planning.task_id = task.id AND planning.lease_epoch = $5
RETURNING task.id;

-- digests --
-- The open tasks led here and their future runs, for comparison with one participant that has not refused them. While a
-- hold is undecided, or a fresh commit is on its way to the participants, runs cannot be compared: "settled" is false.
-- An attempt that booked nothing left nothing to hear of. One page, in order of task ids, after the given task.
-- "given_up" has those of the runs that this node took for over while its clock was ahead, and that nobody has measured.
SELECT
    task.id, task.state::text, task.revision,
    parties(task) @> jsonb_build_array(jsonb_build_object('node', $1::text, 'accepted', true)) AS accepted,
    NOT EXISTS (
        SELECT FROM negotiation
        WHERE
            negotiation.task_id = task.id
            AND (
                negotiation.state = 'open'
                OR (
                    negotiation.state = 'committed' AND negotiation.decided_at > $4
                    AND EXISTS (
                        SELECT FROM outbox
                        WHERE outbox.kind = 'commit' AND outbox.message ->> 'exchange' = negotiation.id::text
                    )
                )
            )
    ) AS settled,
    array_agg(run.id ORDER BY run.id) FILTER (WHERE run.id IS NOT NULL) AS runs,
    array_agg(run.starts_at ORDER BY run.id) FILTER (WHERE run.id IS NOT NULL) AS starts,
    array_agg(run.id) FILTER (
        WHERE
            run.state = 'merging'
            AND NOT EXISTS (SELECT FROM part WHERE part.run_id = run.id AND part.started_at IS NOT NULL)
    ) AS given_up
FROM task
LEFT JOIN run
    ON
        run.task_id = task.id AND run.state IN ('booked', 'set-aside', 'running', 'merging')
        AND run.starts_at >= $2 AND run.starts_at < $3
        AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
WHERE
    task.lead = (SELECT identity FROM node WHERE is_self)
    AND task.state IN ('active', 'paused')
    AND parties(task) @> jsonb_build_array(jsonb_build_object('node', $1::text))
    AND NOT parties(task) @> jsonb_build_array(jsonb_build_object('node', $1::text, 'accepted', false))
    AND task.id > $5
GROUP BY task.id
ORDER BY task.id
LIMIT $6;

-- lacking --
-- Runs led here that ended without the part of one participant, the newest first. It may have that part: this database may
-- be one that was restored to before it came.
SELECT run.id
FROM run
INNER JOIN task ON run.task_id = task.id
INNER JOIN node ON task.lead = node.identity AND node.is_self
CROSS JOIN LATERAL jsonb_array_elements(task.participants) WITH ORDINALITY AS listed (participant, number)
WHERE
    run.state IN ('merging', 'failed', 'missed')
    AND run.starts_at >= $2 AND run.starts_at < $3 AND run.ends_at < $3
    AND listed.participant ->> 'node' = $1
    AND NOT EXISTS (SELECT FROM part WHERE part.run_id = run.id AND part.participant = listed.number - 1)
ORDER BY run.starts_at DESC, run.id
LIMIT $4;

-- is_wanted --
-- Whether a run is booked here, or a worker is about to book it.
SELECT
    EXISTS (SELECT FROM run WHERE id = $1 AND state IN ('booked', 'set-aside', 'running', 'merging'))
    OR EXISTS (SELECT FROM negotiation WHERE state = 'open' AND $1 = ANY(run_ids)) AS wanted;
