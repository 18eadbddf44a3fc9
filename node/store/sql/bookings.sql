-- blocking_runs --
-- What occupies time in the span asked for; background runs are not in the index and not read.
SELECT
    run.id,
    run.task_id,
    task.test,
    run.scheduling_class::text,
    run.priority,
    run.starts_at,
    run.ends_at,
    (run.state = 'running' OR run.starts_at < $3) AS fixed
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE
    run.during && tstzrange($1, $2)
    AND run.lane IS NOT NULL
    AND run.state IN ('booked', 'running');

-- accept_epoch --
-- The task must be active, led by who asks and known as it is at its lead; an older epoch than seen belongs to a
-- worker that lost its lease.
UPDATE task
SET lease_epoch = $3
WHERE id = $1 AND lead = $2 AND state = 'active' AND lease_epoch <= $3 AND revision = $4
RETURNING participant, scheduling_class::text, spec, test, tool, duration, (SELECT is_self FROM node WHERE identity = $2) AS led_here;

-- task_standing --
-- Why accept_epoch found nothing.
SELECT state::text, lead, lease_epoch, revision FROM task WHERE id = $1;

-- exchange_answer --
SELECT state::text, answer, task_id FROM exchange WHERE id = $1;

-- open_exchange --
INSERT INTO exchange (id, task_id, lease_epoch, held_at, expires_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- set_tool --
UPDATE task SET tool = $2 WHERE id = $1 AND tool IS DISTINCT FROM $2;

-- set_aside --
-- Runs of strictly lower priority give way: never running ones, never those about to start. Each remembers for whom.
WITH wanted AS (
    SELECT id, starts_at, ends_at
    FROM unnest($1::uuid [], $2::timestamptz [], $3::timestamptz []) AS wanted (id, starts_at, ends_at)
),

victim AS (
    SELECT DISTINCT ON (run.id) run.id, wanted.id AS displaced_by
    FROM wanted
    INNER JOIN run ON run.during && tstzrange(wanted.starts_at, wanted.ends_at)
    WHERE
        run.state = 'booked'
        AND run.lane IS NOT NULL
        AND run.scheduling_class = ANY($4::scheduling_class [])
        AND run.priority < $5
        AND run.starts_at >= $6
    ORDER BY run.id
)

UPDATE run
SET state = 'set-aside', displaced_by = victim.displaced_by, changed_at = $7
FROM victim
WHERE run.id = victim.id AND run.state = 'booked'
RETURNING run.id;

-- book --
-- In start order: concurrent batches then wait for each other in one direction and cannot dead-lock.
INSERT INTO run (
    id, task_id, exchange_id, slot, attempt, participant, scheduling_class, priority,
    starts_at, ends_at, lane, state, created_at, changed_at
)
SELECT
    wanted.id, $1, $2, wanted.slot, wanted.attempt, $3, $4::scheduling_class, $5,
    wanted.starts_at, wanted.ends_at,
    CASE $4::scheduling_class
        WHEN 'exclusive' THEN int8range(NULL, NULL)
        WHEN 'normal' THEN int8range(number, number, '[]')
    END,
    'booked', $6, $6
FROM (
    SELECT
        wanted.*,
        CASE WHEN $4::scheduling_class = 'normal' THEN nextval('lane') END AS number
    FROM unnest($7::uuid [], $8::timestamptz [], $9::smallint [], $10::timestamptz [], $11::timestamptz [])
        AS wanted (id, slot, attempt, starts_at, ends_at)
    ORDER BY wanted.starts_at
) AS wanted
ON CONFLICT DO NOTHING
RETURNING id;

-- ports_in_use --
-- Ports of exchanges that may still run on this node.
SELECT DISTINCT (exchange.answer -> 'data' ->> 'port')::integer
FROM exchange
WHERE
    exchange.answer -> 'data' ? 'port'
    AND exchange.state IN ('held', 'committed')
    AND EXISTS (
        SELECT FROM run WHERE run.exchange_id = exchange.id AND run.state IN ('booked', 'running')
    );

-- keep_answer --
UPDATE exchange SET answer = $2 WHERE id = $1;

-- restore_set_aside --
-- Runs set aside for these get their time back where it is still free and still to come.
UPDATE run
SET state = 'booked', displaced_by = NULL, changed_at = $2
WHERE
    displaced_by = ANY($1::uuid [])
    AND state = 'set-aside'
    AND starts_at > $2
    AND NOT EXISTS (
        SELECT FROM run AS other
        WHERE
            other.during && run.during
            AND other.lane && run.lane
            AND other.state IN ('booked', 'running')
            AND other.id <> run.id
    )
RETURNING run.id;

-- lose_set_aside --
-- The others cannot come back: their time is over, or was booked by somebody else meanwhile.
UPDATE run
SET
    state = 'displaced',
    changed_at = $2,
    reason = 'gave way to a run of higher priority that was then not booked, and lost its time meanwhile'
WHERE displaced_by = ANY($1::uuid []) AND state = 'set-aside'
RETURNING run.id, run.task_id, run.reason, run.displaced_by, (SELECT task.lead FROM task WHERE task.id = run.task_id) AS lead;

-- displace --
-- The decision has fallen: what was set aside for the runs this exchange keeps is lost to them.
UPDATE run
SET
    state = 'displaced',
    changed_at = $2,
    reason = format(
        'displaced by a run of higher priority (%s of task %s, priority %s over %s)',
        winner_task.test, winner.task_id, winner.priority, run.priority
    )
FROM run AS winner
INNER JOIN task AS winner_task ON winner.task_id = winner_task.id
WHERE run.displaced_by = winner.id AND winner.exchange_id = $1 AND run.state = 'set-aside'
RETURNING run.id, run.task_id, run.reason, run.displaced_by, (SELECT task.lead FROM task WHERE task.id = run.task_id) AS lead;

-- commit_exchange --
UPDATE exchange
SET state = 'committed', data = $2, decided_at = $3
WHERE id = $1 AND state = 'held'
RETURNING
    task_id,
    EXISTS (
        SELECT FROM task INNER JOIN node ON task.lead = node.identity
        WHERE task.id = exchange.task_id AND node.is_self
    ) AS led_here;

-- release_exchange --
UPDATE exchange
SET state = 'released', decided_at = $2
WHERE id = $1 AND state = 'held'
RETURNING
    task_id,
    EXISTS (
        SELECT FROM task INNER JOIN node ON task.lead = node.identity
        WHERE task.id = exchange.task_id AND node.is_self
    ) AS led_here;

-- refuse_exchange --
-- A release that overtook its hold: the hold must find it released. Unknown tasks cannot be held anyway.
INSERT INTO exchange (id, task_id, state, lease_epoch, held_at, expires_at, decided_at)
SELECT $1, id, 'released', 0, $3, $3, $3 FROM task WHERE id = $2
ON CONFLICT (id) DO NOTHING;

-- drop_runs --
-- Never committed, so nobody was promised anything: a participant forgets them. One that another hold has
-- set aside goes too: it must not come back when that one is released.
DELETE FROM run WHERE exchange_id = $1 AND state IN ('booked', 'set-aside') AND NOT (id = ANY($2::uuid [])) RETURNING id;

-- drop_led_runs --
-- At the lead the slot is not lost with the hold: it waits to be asked for again.
UPDATE run
SET
    state = 'waiting', exchange_id = NULL, lane = NULL, displaced_by = NULL, changed_at = $3, starts_at = slot,
    ends_at = slot + (ends_at - starts_at),
    reason = coalesce(reason, 'was not booked by all participants; is being tried again')
WHERE exchange_id = $1 AND state IN ('booked', 'set-aside') AND NOT (id = ANY($2::uuid []))
RETURNING id;

-- wake_dropped --
-- A hold that outlived the worker who made it is dropped when nobody plans the task any more: it must
-- be planned again, but not at once, so that the pauses between failed attempts stay pauses.
UPDATE planning
SET plan_at = least(plan_at, $2), next_run_at = least(next_run_at, dropped.slot)
FROM (SELECT task_id, min(slot) AS slot FROM run WHERE id = ANY($1::uuid []) GROUP BY task_id) AS dropped
INNER JOIN task ON dropped.task_id = task.id AND task.state = 'active'
WHERE planning.task_id = dropped.task_id;

-- take_waiting --
-- At the lead: slots that have waited are booked under the same id.
DELETE FROM run WHERE id = ANY($1::uuid []) AND state = 'waiting' RETURNING id, reason;

-- give_back_waiting --
-- What of them could not be booked waits on.
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at
)
SELECT
    wanted.id, $1, wanted.slot, wanted.attempt, $2, $3::scheduling_class, $4, wanted.slot,
    wanted.slot + $5::interval, 'waiting', wanted.reason, $6, $6
FROM unnest($7::uuid [], $8::timestamptz [], $9::smallint [], $10::text []) AS wanted (id, slot, attempt, reason)
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, changed_at = excluded.changed_at
WHERE run.state = 'waiting';

-- wake_waiting --
-- At the lead: a slot that waits again because its hold ran out, with nobody there who negotiated for it.
UPDATE planning
SET plan_at = least(plan_at, $2), next_run_at = least(next_run_at, waiting.slot)
FROM (SELECT min(slot) AS slot FROM run WHERE task_id = $1 AND state = 'waiting') AS waiting
WHERE planning.task_id = $1 AND waiting.slot IS NOT NULL
RETURNING planning.task_id;

-- expired_holds --
SELECT exchange.id, exchange.task_id, exchange.expires_at, exchange.held_at, task.lead
FROM exchange
INNER JOIN task ON exchange.task_id = task.id
WHERE exchange.state = 'held' AND exchange.expires_at <= $1
ORDER BY exchange.expires_at
LIMIT 200;

-- notify --
SELECT pg_notify('parley', $1);

-- decision --
-- The lead's word on an exchange. One that has run out while still open is aborted by the question.
UPDATE negotiation
SET state = CASE WHEN state = 'open' AND expires_at <= $2 THEN 'aborted' ELSE state END
WHERE id = $1
RETURNING state::text, commit_message;

-- is_being_decided --
-- At the lead: a run that its participants may hold already and that has no row here yet.
SELECT EXISTS (SELECT FROM negotiation WHERE state = 'open' AND $1 = ANY(run_ids));

-- lead_of_exchange --
-- An exchange that is not known yet belongs to whoever leads the task it is said to be for.
SELECT task.lead FROM exchange INNER JOIN task ON exchange.task_id = task.id WHERE exchange.id = $1
UNION ALL
SELECT task.lead FROM task
WHERE task.id = $2 AND NOT EXISTS (SELECT FROM exchange WHERE exchange.id = $1);

-- runs_to_come --
-- What this node has booked for the tasks of one lead; compared with what the lead has.
SELECT task.id, task.state::text, array_agg(run.id ORDER BY run.id) FILTER (WHERE run.id IS NOT NULL) AS runs
FROM task
LEFT JOIN run
    ON
        run.task_id = task.id AND run.state IN ('booked', 'set-aside', 'running')
        AND run.starts_at >= $3 AND run.starts_at < $4
        AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
WHERE task.id = ANY($1::uuid []) AND task.lead = $2
GROUP BY task.id;
