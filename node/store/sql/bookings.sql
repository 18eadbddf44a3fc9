-- occupied --
-- What occupies time in these windows: per class, priority, and rank one string of instants, start and end of each span in turn,
-- eight bytes each, in Postgres' format. Runs of a campaign often share their times: each span is sent once.
-- Background runs are not in the index and are not read.
SELECT
    span.scheduling_class::text,
    span.priority,
    span.fixed,
    string_agg(timestamptz_send(span.starts_at) || timestamptz_send(span.ends_at), ''::bytea) AS spans,
    span.rank
FROM (
    SELECT DISTINCT -- the most selective columns first: it sorts by them in this order
        run.starts_at,
        run.ends_at,
        standing(run) AS priority,
        run.scheduling_class,
        (run.state = 'running' OR run.starts_at < $3) AS fixed,
        run.rank
    FROM run
    WHERE
        run.during && (
            SELECT range_agg(tstzrange(asked.starts_at, asked.ends_at))
            FROM unnest($1::timestamptz [], $2::timestamptz []) AS asked (starts_at, ends_at)
        )
        AND run.lane IS NOT NULL
        AND run.state IN ('booked', 'running')
) AS span
GROUP BY span.scheduling_class, span.priority, span.fixed, span.rank;

-- blocking_runs --
-- What occupies time in these windows, run by run.
SELECT
    run.id,
    run.task_id,
    task.test,
    run.scheduling_class::text,
    run.priority,
    run.starts_at,
    run.ends_at,
    (run.state = 'running' OR run.starts_at < $3) AS fixed,
    task.lead,
    run.rank,
    CASE WHEN run.spared THEN standing(run) END AS spared_as
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE
    run.during && (
        SELECT range_agg(tstzrange(asked.starts_at, asked.ends_at))
        FROM unnest($1::timestamptz [], $2::timestamptz []) AS asked (starts_at, ends_at)
    )
    AND run.lane IS NOT NULL
    AND run.state IN ('booked', 'running');

-- accept_epochs --
-- The tasks must be active, led by the sender, and known here in the revision of their lead; an epoch older than the
-- latest one belongs to a worker that lost its lease. Of a task with a limited number of runs, those that took place are
-- counted, except those of the exchange itself: its hold may be repeated. Runs to come are not: the lead may have given
-- them up, and its message about that may still be on its way.
WITH asked AS (
    SELECT asked.id, asked.lead, asked.epoch, asked.tool, asked.revision, asked.exchange, asked.generation
    FROM unnest($1::uuid [], $2::text [], $3::bigint [], $4::text [], $5::integer [], $6::uuid [], $8::uuid [])
        AS asked (id, lead, epoch, tool, revision, exchange, generation)
    INNER JOIN task ON asked.id = task.id
    ORDER BY asked.id
    FOR NO KEY UPDATE OF task -- a release that overtakes the hold refers to the task, and the hold waits for its exchange
)

UPDATE task
SET lease_epoch = asked.epoch, tool = asked.tool, generation = coalesce(task.generation, asked.generation)
FROM asked
WHERE
    task.id = asked.id AND task.lead = asked.lead AND task.state = 'active' AND task.lease_epoch <= asked.epoch
    AND task.revision = asked.revision
RETURNING
    task.id, task.participant, task.scheduling_class::text, task.spec, task.test, task.duration,
    (SELECT node.is_self FROM node WHERE node.identity = task.lead) AS led_here, task.campaign,
    coalesce(task.parent, task.pool_task) AS pool_task, task.priority, task.schedule, task.created_at,
    CASE WHEN task.schedule ->> 'max_runs' IS NOT NULL THEN (
        SELECT count(DISTINCT run.slot) FROM run
        WHERE
            run.task_id = task.id AND run.state = ANY($7::run_state [])
            AND run.exchange_id IS DISTINCT FROM asked.exchange
    ) END AS counted, task.generation <> asked.generation AS restored, task.limit_rule, task.limit_refusal, task.run_bytes,
    task.limit_caps, task.limit_user,
    CASE WHEN task.keepers <> '[]' THEN (
        SELECT keeper.value -> 'takes'
        FROM jsonb_array_elements(task.keepers) AS keeper
        INNER JOIN node ON keeper.value ->> 'node' = node.identity AND node.is_self
    ) END AS takes;

-- task_standings --
-- Why accept_epochs did not find a task.
SELECT id, state::text, lead, lease_epoch, revision FROM task WHERE id = ANY($1::uuid []);

-- exchange_standings --
SELECT exchange.id, exchange.state::text, exchange.answer, exchange.task_id, task.lead
FROM exchange INNER JOIN task ON exchange.task_id = task.id
WHERE exchange.id = ANY($1::uuid []);

-- open_exchanges --
INSERT INTO exchange (id, task_id, lease_epoch, held_at, expires_at)
SELECT asked.id, asked.task_id, asked.epoch, $4::timestamptz, $4::timestamptz + asked.life
FROM unnest($1::uuid [], $2::uuid [], $3::bigint [], $5::interval []) AS asked (id, task_id, epoch, life)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- earlier_attempts --
-- Other runs of these slots that have begun here or are still to come, but for those that are over where the lead says that
-- one came to nothing, as long as no more have begun here than the task is tried again. With an epoch also those that were booked before it,
-- under any attempt and in any state: a lead that was restored may not know them, and give their numbers and ids again. Nor
-- may it know that a run was cancelled, by itself and not by a change of its task.
SELECT
    wanted.id, earlier.id AS earlier, earlier.task_id, earlier.attempt >= wanted.attempt AS unknown,
    CASE WHEN earlier.state = 'cancelled' AND NOT earlier.freed THEN earlier.reason END AS cancelled,
    CASE
        WHEN earlier.state IN ('running', 'merging', 'finished') THEN coalesce(earlier.started_at, earlier.starts_at)
        ELSE earlier.started_at
    END AS began_at
FROM unnest($1::uuid [], $2::uuid [], $3::timestamptz [], $4::smallint [], $5::bigint [], $6::smallint [])
    AS wanted (id, task_id, slot, attempt, unknown_before, again)
INNER JOIN run AS earlier ON wanted.task_id = earlier.task_id AND wanted.slot = earlier.slot
LEFT JOIN exchange ON earlier.exchange_id = exchange.id
WHERE
    (earlier.participant IS NOT NULL OR earlier.takes)
    AND (
        (
            wanted.attempt > earlier.attempt
            AND (
                earlier.started_at IS NOT NULL
                OR earlier.state IN ('booked', 'set-aside', 'running', 'merging', 'finished')
            )
            AND NOT (
                wanted.again IS NOT NULL AND earlier.state IN ('finished', 'failed', 'missed', 'cancelled')
                AND (
                    SELECT count(begun.started_at) FROM run AS begun
                    WHERE begun.task_id = earlier.task_id AND begun.slot = earlier.slot AND begun.participant IS NOT NULL
                ) <= wanted.again
            )
        )
        OR (wanted.attempt <= earlier.attempt AND exchange.lease_epoch < wanted.unknown_before)
        OR (wanted.unknown_before IS NOT NULL AND earlier.state = 'cancelled' AND NOT earlier.freed)
    )
ORDER BY earlier.id
FOR UPDATE OF earlier;

-- give_up --
-- Cancels runs that have not begun, because their lead plans their slots anew.
UPDATE run
SET state = 'cancelled', freed = true, reason = given.reason, changed_at = $3, finished_at = $3
FROM unnest($1::uuid [], $2::text []) AS given (id, reason)
WHERE run.id = given.id AND run.state IN ('booked', 'set-aside');

-- forget --
-- Runs that were never begun, and that their lead does not know.
DELETE FROM run WHERE id = ANY($1::uuid []);

-- set_aside --
-- Sets aside runs of lower rank, or of the same rank and strictly lower priority: never running ones, never those about to start, and only the listed ones
-- unless any may give way. Each remembers which run displaces it. Of a task with a budget of displacements it takes one at once, since more
-- may be too many, unless the owner of the host comes first.
WITH wanted AS (
    SELECT id, starts_at, ends_at, scheduling_class, priority, any_run, rank
    FROM unnest(
        $1::uuid [], $2::timestamptz [], $3::timestamptz [], $4::text [], $5::integer [], $6::boolean [], $7::smallint []
    ) AS wanted (id, starts_at, ends_at, scheduling_class, priority, any_run, rank)
),

victim AS (
    SELECT DISTINCT ON (run.id) run.id, wanted.id AS displaced_by, wanted.rank, run.task_id, run.starts_at,
        run.spare_priority IS NOT NULL AND run.rank = wanted.rank AS counted
    FROM wanted
    INNER JOIN run ON run.during && tstzrange(wanted.starts_at, wanted.ends_at)
    WHERE
        run.state = 'booked'
        AND run.lane IS NOT NULL
        AND (wanted.scheduling_class = 'exclusive' OR run.scheduling_class = 'exclusive')
        AND (run.rank, standing(run)) < (wanted.rank, wanted.priority)
        AND run.starts_at >= $10
        AND (
            wanted.any_run
            OR EXISTS (
                SELECT FROM unnest($8::uuid [], $9::uuid []) AS named (displacing, yielding)
                WHERE named.displacing = wanted.id AND named.yielding = run.id
            )
        )
    ORDER BY run.id, wanted.rank DESC, wanted.priority DESC, wanted.starts_at
),

chosen AS (
    SELECT id, displaced_by, rank, counted, row_number() OVER (PARTITION BY task_id, counted ORDER BY starts_at, id) AS number
    FROM victim
)

UPDATE run
SET state = 'set-aside', displaced_by = chosen.displaced_by, changed_at = $11
FROM chosen
-- A run that was committed for good meanwhile has a higher rank than all that displace; one that is spared meanwhile stays.
WHERE
    run.id = chosen.id AND run.state = 'booked' AND run.rank <= chosen.rank
    AND (NOT chosen.counted OR (chosen.number = 1 AND NOT run.spared))
RETURNING run.displaced_by;

-- book --
-- In start order, so that concurrent batches wait for each other in one direction and cannot deadlock. Fails in time that
-- is reserved for others, and for a slot of which another attempt has begun or is still to come: all holds of a task lock it.
-- An earlier one that is over is no obstacle where the lead knows that one came to nothing.
INSERT INTO run (
    id, task_id, exchange_id, slot, attempt, participant, scheduling_class, priority, rank,
    starts_at, ends_at, lane, spare_priority, state, created_at, changed_at
)
SELECT
    wanted.id, wanted.task_id, wanted.exchange_id, wanted.slot, wanted.attempt, wanted.participant,
    wanted.scheduling_class, wanted.priority, wanted.rank, wanted.starts_at, wanted.ends_at,
    CASE WHEN wanted.participant IS NOT NULL THEN
        CASE wanted.scheduling_class
            WHEN 'exclusive' THEN int8range(NULL, NULL)
            WHEN 'normal' THEN int8range(number, number, '[]')
        END
    END,
    wanted.spare_priority, 'booked', $1, $1
FROM (
    SELECT
        wanted.id, wanted.slot, wanted.attempt, wanted.starts_at, wanted.ends_at,
        exchange.id AS exchange_id, exchange.task_id, exchange.participant, exchange.priority, exchange.rank, exchange.spare_priority,
        exchange.scheduling_class::scheduling_class AS scheduling_class,
        CASE WHEN exchange.scheduling_class = 'normal' THEN nextval('lane') END AS number
    FROM unnest(
        $2::integer [], $3::uuid [], $4::timestamptz [], $5::smallint [], $6::timestamptz [], $7::timestamptz [], $8::boolean []
    ) AS wanted (number, id, slot, attempt, starts_at, ends_at, again)
    INNER JOIN unnest($9::uuid [], $10::uuid [], $11::smallint [], $12::text [], $13::integer [], $14::smallint [], $15::integer [])
        WITH ORDINALITY AS exchange (id, task_id, participant, scheduling_class, priority, rank, spare_priority, number)
        ON wanted.number = exchange.number
    WHERE NOT EXISTS (
        SELECT FROM run AS other
        WHERE
            other.task_id = exchange.task_id AND other.slot = wanted.slot AND other.attempt <> wanted.attempt
            AND other.participant IS NOT NULL
            AND (
                other.started_at IS NOT NULL OR other.state IN ('booked', 'set-aside', 'running', 'merging', 'finished')
            )
            AND NOT (
                wanted.again AND other.attempt < wanted.attempt
                AND other.state IN ('finished', 'failed', 'missed', 'cancelled')
            )
    )
    AND NOT EXISTS (
        SELECT
        FROM reserved
        INNER JOIN reservation ON reserved.reservation_id = reservation.id AND reservation.pool IS NULL
        INNER JOIN task ON exchange.task_id = task.id
        WHERE
            exchange.participant IS NOT NULL
            AND reserved.during && tstzrange(wanted.starts_at, wanted.ends_at)
            AND NOT admits(
                reservation.access, task.id, task.lead, task.lead = (SELECT node.identity FROM node WHERE node.is_self),
                task.campaign, task.test, exchange.scheduling_class::scheduling_class,
                exchange.priority, coalesce(task.parent, task.pool_task)
            )
    )
    ORDER BY wanted.starts_at, exchange.rank DESC, exchange.priority DESC, wanted.number
) AS wanted
ON CONFLICT DO NOTHING
RETURNING id;

-- spare --
-- New runs of these tasks may lie near one that was lost, or take the place of it.
SELECT spare_runs($1::uuid []);

-- other_attempts --
-- The latest other attempt of each of these slots that keeps a run from being booked, as in "book".
SELECT DISTINCT ON (wanted.id) wanted.id, other.id AS other, other.attempt
FROM unnest($1::uuid [], $2::uuid [], $3::timestamptz [], $4::smallint [], $5::boolean [])
    AS wanted (id, task_id, slot, attempt, again)
INNER JOIN run AS other ON wanted.task_id = other.task_id AND wanted.slot = other.slot
WHERE
    wanted.attempt <> other.attempt AND other.participant IS NOT NULL
    AND (other.started_at IS NOT NULL OR other.state IN ('booked', 'set-aside', 'running', 'merging', 'finished'))
    AND NOT (
        wanted.again AND other.attempt < wanted.attempt AND other.state IN ('finished', 'failed', 'missed', 'cancelled')
    )
ORDER BY wanted.id, other.attempt DESC;

-- ports_in_use --
-- Ports of exchanges that may still run on this node. Looked up from its live runs, which are few compared to all stored
-- exchanges. OFFSET 0: each exchange is looked up once.
SELECT DISTINCT generate_series(given.port, given.port + given.ports - 1) AS port
FROM (
    SELECT
        (looked_up.data ->> 'port')::integer AS port,
        COALESCE((looked_up.data ->> 'ports')::integer, 1) AS ports
    FROM (
        SELECT
            (
                SELECT exchange.answer -> 'data' FROM exchange
                WHERE exchange.id = live.exchange_id AND exchange.state IN ('held', 'committed')
            ) AS data
        FROM (SELECT DISTINCT run.exchange_id FROM run WHERE run.state IN ('booked', 'running')) AS live
        OFFSET 0
    ) AS looked_up
) AS given
WHERE given.port IS NOT NULL;

-- keep_answers --
UPDATE exchange
SET answer = answered.answer
FROM unnest($1::uuid [], $2::jsonb []) AS answered (id, answer)
WHERE exchange.id = answered.id;

-- restore_set_aside --
-- Runs set aside for these runs get their time back if it is still free and in the future.
UPDATE run
SET state = 'booked', displaced_by = NULL, changed_at = $2
WHERE
    displaced_by = ANY($1::uuid [])
    AND state = 'set-aside'
    AND starts_at > $2
    AND (NOT takes OR has_resources(id))
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
-- The other runs cannot come back: their time is over, or was booked meanwhile.
UPDATE run
SET state = 'displaced', changed_at = $2, reason = $3
WHERE displaced_by = ANY($1::uuid []) AND state = 'set-aside'
RETURNING run.id, run.task_id, (SELECT task.lead FROM task WHERE task.id = run.task_id) AS lead, run.reason, NULL::uuid AS displaced_by;

-- losing_runs --
-- The exchange is committed: what was set aside for its runs gives way to them for good. Another lead than that of the winner
-- is not told which run it was, and no reason names the task of another user. A run may be booked with a higher priority
-- than its task's: the rules of campaigns or of a pool then say which runs of the same lead it displaces.
SELECT
    run.id, run.task_id, task.lead, run.priority,
    winner.id, winner_task.test, winner.priority,
    CASE WHEN task.requester <> winner_task.requester THEN NULL ELSE winner.task_id END AS winning_task,
    winner.rank > run.rank AS by_owner,
    winner.priority > winner_task.priority AS by_lead,
    coalesce(node.is_self, FALSE) OR task.lead = winner_task.lead AS told
FROM run
INNER JOIN run AS winner ON run.displaced_by = winner.id
INNER JOIN task ON run.task_id = task.id
INNER JOIN task AS winner_task ON winner.task_id = winner_task.id
LEFT JOIN node ON task.lead = node.identity
WHERE winner.exchange_id = ANY($1::uuid []) AND run.state = 'set-aside'
ORDER BY run.id
FOR UPDATE OF run;

-- displace --
UPDATE run
SET state = 'displaced', changed_at = $3, reason = lost.reason
FROM unnest($1::uuid [], $2::text []) AS lost (id, reason)
WHERE run.id = lost.id AND run.state = 'set-aside';

-- raise_rank --
-- Booked runs of these exchanges give way to fewer others than before.
UPDATE run SET rank = $2 WHERE exchange_id = ANY($1::uuid []) AND state = 'booked' AND rank < $2;

-- decide_exchanges --
-- The lead has decided, or the hold has expired: held runs are committed (with the data of all participants) or released.
-- Only if the sender leads the task; null is this node itself, for an expired hold.
UPDATE exchange
SET
    state = CASE WHEN said.commits THEN 'committed' ELSE 'released' END::exchange_state,
    data = CASE WHEN said.commits THEN said.data ELSE exchange.data END,
    -- A released hold is answered without it, but who leads without a key is told what became of a run by its id.
    answer = CASE WHEN said.commits OR task.lead NOT LIKE 'ed25519:%' THEN exchange.answer ELSE '{}' END,
    decided_at = $5
FROM unnest($1::uuid [], $2::boolean [], $3::jsonb [], $4::text []) AS said (id, commits, data, sender), task
WHERE
    exchange.id = said.id
    AND exchange.state = 'held'
    AND task.id = exchange.task_id
    AND (said.sender IS NULL OR said.sender = task.lead)
RETURNING
    exchange.id, exchange.task_id,
    EXISTS (SELECT FROM node WHERE node.identity = task.lead AND node.is_self) AS led_here;

-- refuse_exchanges --
-- A release that overtook its hold: the hold must find it released. Unknown tasks cannot be held anyway.
INSERT INTO exchange (id, task_id, state, lease_epoch, held_at, expires_at, decided_at)
SELECT said.id, task.id, 'released', 0, $4, $4, $4
FROM unnest($1::uuid [], $2::uuid [], $3::text []) AS said (id, task_id, sender)
INNER JOIN task ON said.task_id = task.id
WHERE said.sender IS NULL OR said.sender = task.lead
ON CONFLICT (id) DO NOTHING;

-- drop_runs --
-- Runs that were never committed were promised to nobody: a participant forgets them. This includes runs that another hold
-- has set aside: they must not come back when that hold is released.
DELETE FROM run
WHERE
    exchange_id = ANY($1::uuid []) AND state IN ('booked', 'set-aside')
    AND (exchange_id, id) NOT IN (SELECT kept.exchange_id, kept.id FROM unnest($2::uuid [], $3::uuid []) AS kept (exchange_id, id))
RETURNING id;

-- drop_led_runs --
-- At the lead the slot survives the hold: it waits to be planned again.
UPDATE run
SET
    state = 'waiting', exchange_id = NULL, lane = NULL, displaced_by = NULL, changed_at = $4, starts_at = slot,
    ends_at = slot + (ends_at - starts_at),
    reason = coalesce(reason, $5)
WHERE
    exchange_id = ANY($1::uuid []) AND state IN ('booked', 'set-aside')
    AND (exchange_id, id) NOT IN (SELECT kept.exchange_id, kept.id FROM unnest($2::uuid [], $3::uuid []) AS kept (exchange_id, id))
RETURNING id;

-- wake_dropped --
-- When a hold outlives the worker that made it and nobody plans the task any more, the task must be planned again; but not
-- at once, so that the pauses between failed attempts stay in effect. After a failed attempt the pause is already set. A
-- worker that is planning the task at this moment has not seen that these slots wait.
WITH dropped AS (
    SELECT planning.task_id, slots.soonest
    FROM (SELECT task_id, min(slot) AS soonest FROM run WHERE id = ANY($1::uuid []) GROUP BY task_id) AS slots
    INNER JOIN task ON slots.task_id = task.id AND task.state = 'active'
    INNER JOIN planning ON slots.task_id = planning.task_id
    ORDER BY planning.task_id -- all transactions lock in the same order
    FOR NO KEY UPDATE OF planning
)

UPDATE planning
SET
    plan_at = CASE
        WHEN lease_until IS NOT NULL THEN least(plan_at, $3, lease_until - interval '1 microsecond')
        WHEN failures = 0 THEN least(plan_at, $2)
        ELSE coalesce(plan_at, $2)
    END,
    next_run_at = least(next_run_at, dropped.soonest)
FROM dropped
WHERE planning.task_id = dropped.task_id;

-- take_waiting --
-- At the lead: waiting slots are booked under the same run id.
DELETE FROM run WHERE id = ANY($1::uuid []) AND state = 'waiting' RETURNING id, reason;

-- give_back_waiting --
-- Those that could not be booked continue to wait.
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at
)
SELECT
    wanted.id, task.id, wanted.slot, wanted.attempt, task.participant, task.scheduling_class, task.priority,
    wanted.slot, wanted.slot + task.duration, 'waiting', wanted.reason, $1, $1
FROM unnest($2::uuid [], $3::uuid [], $4::timestamptz [], $5::smallint [], $6::text [])
    AS wanted (id, task_id, slot, attempt, reason)
INNER JOIN task ON wanted.task_id = task.id
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason, changed_at = excluded.changed_at
WHERE run.state = 'waiting';

-- wake_waiting --
-- At the lead: a slot that waits again because its hold expired, while no worker negotiates for it.
UPDATE planning
SET
    plan_at = least(plan_at, $2, lease_until - interval '1 microsecond'),
    next_run_at = least(next_run_at, waiting.slot)
FROM (SELECT min(slot) AS slot FROM run WHERE task_id = $1 AND state = 'waiting') AS waiting
WHERE planning.task_id = $1 AND waiting.slot IS NOT NULL
RETURNING planning.task_id;

-- expired_holds --
-- Except for leads that have just failed to give a decision.
SELECT exchange.id, exchange.task_id, task.lead, exchange.lease_epoch, exchange.held_at, exchange.expires_at
FROM exchange
INNER JOIN task ON exchange.task_id = task.id
WHERE exchange.state = 'held' AND exchange.expires_at <= $1 AND task.lead <> ALL($2::text [])
ORDER BY exchange.expires_at, exchange.id
LIMIT $3;

-- decision --
-- The lead's decision on an exchange. If it has expired while open, the question aborts it. Only participants of the task
-- may ask; null is this node itself.
WITH asked AS (
    SELECT
        negotiation.id,
        $3::text IS NULL OR parties(task) @> jsonb_build_array(jsonb_build_object('node', $3::text)) AS concerned
    FROM negotiation
    INNER JOIN task ON negotiation.task_id = task.id
    WHERE negotiation.id = $1
)

UPDATE negotiation
SET
    state = CASE
        WHEN negotiation.state = 'open' AND negotiation.expires_at <= $2 AND asked.concerned THEN 'aborted'
        ELSE negotiation.state
    END
FROM asked
WHERE negotiation.id = asked.id
RETURNING negotiation.state::text, negotiation.commit_message, asked.concerned;

-- is_being_decided --
-- At the lead: a run that its participants may already hold, but that has no row here yet.
SELECT EXISTS (SELECT FROM negotiation WHERE state = 'open' AND $1 = ANY(run_ids));

-- runs_to_come --
-- What this node has booked for the tasks of one lead, for comparison with that lead.
SELECT
    task.id, task.state::text, task.revision,
    array_agg(run.id ORDER BY run.id) FILTER (WHERE run.id IS NOT NULL) AS runs,
    array_agg(run.starts_at ORDER BY run.id) FILTER (WHERE run.id IS NOT NULL) AS starts
FROM task
LEFT JOIN run
    ON
        run.task_id = task.id AND run.state IN ('booked', 'set-aside', 'running')
        AND run.starts_at >= $3 AND run.starts_at < $4
        AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
WHERE task.id = ANY($1::uuid []) AND task.lead = $2
GROUP BY task.id;
