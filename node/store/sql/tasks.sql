-- upsert_task --
-- A task made known here; a repeated introduction by its lead updates it. Its requester stays.
INSERT INTO task (
    id, lead, test, spec, tool, tools, scheduling_class, duration, priority, participants, participant,
    addresses, schedule, campaign, reference, created_at, revision, pool_task, limit_rule, run_bytes,
    limit_caps, requester, limit_user, limit_address, limit_refusal, limit_bound, keepers
)
VALUES (
    $1, $2, $3, $4, $5, $6, $7::scheduling_class, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
    $23, $24, $25, $26, $27
)
ON CONFLICT (id) DO UPDATE SET
    spec = excluded.spec,
    tool = excluded.tool,
    tools = excluded.tools,
    scheduling_class = excluded.scheduling_class,
    duration = excluded.duration,
    priority = excluded.priority,
    participants = excluded.participants,
    addresses = excluded.addresses,
    schedule = excluded.schedule,
    campaign = excluded.campaign,
    reference = excluded.reference,
    revision = excluded.revision,
    pool_task = excluded.pool_task,
    limit_rule = excluded.limit_rule,
    run_bytes = excluded.run_bytes,
    limit_caps = excluded.limit_caps,
    limit_user = excluded.limit_user,
    limit_address = excluded.limit_address,
    limit_refusal = excluded.limit_refusal,
    limit_bound = excluded.limit_bound,
    keepers = excluded.keepers
WHERE task.lead = excluded.lead AND task.revision <= excluded.revision
RETURNING id;

-- open_planning --
-- Inserts nothing for a task whose campaign does not exist (any more). Of tasks that are added at once, those that were listed
-- first count as the earlier ones.
INSERT INTO planning (task_id, campaign_id, next_run_at, plan_at, added_at, follower)
SELECT
    task.id, campaign.id, given.next_run_at, given.plan_at, task.created_at + given.place * INTERVAL '1 microsecond',
    task.follows IS NOT NULL
FROM unnest($1::uuid [], $2::timestamptz [], $3::timestamptz [], $4::integer []) AS given (task, next_run_at, plan_at, place)
INNER JOIN task ON given.task = task.id
INNER JOIN campaign ON campaign.name = coalesce(task.campaign, 'default')
RETURNING task_id;

-- keep_idempotency --
-- In the order of the keys, as everybody inserts them: nobody waits in a circle.
INSERT INTO idempotency (key, request_digest, made, created_at)
SELECT given.key, given.digest, given.made, $4
FROM unnest($1::text [], $2::text [], $3::uuid []) AS given (key, digest, made)
ORDER BY given.key, given.digest, given.made
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- find_idempotency --
SELECT key, request_digest, made FROM idempotency WHERE key = ANY($1::text []);

-- lock_task --
-- Serialises changes of a task with holds, decisions, its end, and other changes.
SELECT id FROM task WHERE id = $1 FOR UPDATE;

-- task --
SELECT
    task.id, task.lead, task.state::text, task.reason, task.test, task.spec, task.tool, task.tools,
    task.scheduling_class::text, task.duration, task.priority, task.participants, task.participant,
    task.addresses, task.schedule, task.campaign, task.reference, task.created_at, task.revision,
    task.freeing, task.paused_at, task.ended_at, task.parent, task.pool_task, task.requester, task.limit_user,
    task.limit_address, task.limit_bound, task.keepers
FROM task
WHERE id = ANY($1::uuid [])
ORDER BY id;

-- measured_tasks --
-- What is needed to name these tasks in a headline.
SELECT
    task.id, task.test, task.spec, pool_task.request AS pool,
    ARRAY(SELECT participant.value ->> 'name'
        FROM jsonb_array_elements(task.participants) WITH ORDINALITY AS participant
        ORDER BY participant.ordinality) AS participants
FROM task
LEFT JOIN pool_task ON task.id = pool_task.task_id
WHERE task.id = ANY($1::uuid []);

-- requester --
SELECT requester FROM task WHERE id = $1;

-- requester_of_run --
-- Also of a gap, which is shown as a run.
SELECT task.requester FROM run INNER JOIN task ON run.task_id = task.id WHERE run.id = $1
UNION ALL
SELECT task.requester FROM gap INNER JOIN task ON gap.task_id = task.id WHERE gap.id = $1;

-- requested --
SELECT id FROM task WHERE id = ANY($1::uuid []) AND requester = $2;

-- open_of --
SELECT id FROM task WHERE lead = $1 AND state IN ('active', 'paused') ORDER BY id;

-- leading_here --
-- The leads of the tasks that are open here.
SELECT DISTINCT lead FROM task WHERE state IN ('active', 'paused');

-- count_open_of --
SELECT count(*) FROM task
WHERE lead = $1 AND state IN ('active', 'paused') AND ($2::text IS NULL OR limit_rule = $2);

-- count_open_capped --
-- Those that count for a cap of groups: of one node, or of all of them together.
SELECT count(*) FROM task
WHERE
    limit_caps <> '[]' AND limit_caps @> jsonb_build_array(jsonb_build_array($1::text, $2::text))
    AND state IN ('active', 'paused');

-- count_open_for --
-- Of a user under a rule; the tasks of seats are part of their pool task.
SELECT count(*) FROM task
WHERE limit_user = $1 AND limit_rule = $2 AND parent IS NULL AND state IN ('active', 'paused') AND id <> $3;

-- share_limits --
UPDATE task
SET
    limit_user = whole.limit_user, limit_address = whole.limit_address, limit_rule = whole.limit_rule,
    limit_refusal = whole.limit_refusal, run_bytes = whole.run_bytes, limit_bound = whole.limit_bound
FROM task AS whole
WHERE whole.id = $1 AND task.parent = $1 AND task.state IN ('active', 'paused');

-- lock_open_of --
SELECT id FROM task
WHERE lead = $1 AND state IN ('active', 'paused')
ORDER BY id
LIMIT $2
FOR UPDATE;

-- lock_open_with --
SELECT id FROM task
WHERE
    lead = $1 AND state IN ('active', 'paused')
    AND parties(task) @> jsonb_build_array(jsonb_build_object('node', $2::text))
ORDER BY id
LIMIT $3
FOR UPDATE;

-- tasks --
-- For people: by $19, descending with $20, each with the counts of its runs and the start of the next one. The runs of a pool task are
-- those of the ordinary tasks that have its seats; these are only listed on request ($9, $10, an id). The outcome of a task is
-- that of its newest slot; without one, a task that came to nothing is not planned, and of others nothing is known. A list has no long
-- references (more than $2 bytes): only a single task has its own whole.
SELECT
    task.id, task.lead, task.state::text, coalesce(task.reason, pool_task.reason) AS reason, task.test, task.spec,
    task.tool, task.tools, task.scheduling_class::text, task.duration, task.priority, task.participants,
    task.participant, task.addresses, task.schedule, task.campaign, task.created_at, task.revision,
    task.paused_at, task.ended_at, task.parent, task.requester, task.keepers,
    CASE WHEN NOT long.left_out THEN task.reference END AS reference,
    long.left_out AS reference_left_out,
    pool_task.request AS pool,
    (SELECT
        jsonb_build_object(
            'wanted', term.seats,
            'taken', (SELECT count(*) FROM seat
                WHERE seat.pool_task = term.pool_task AND seat.term = term.starts_at AND seat.lost_at IS NULL),
            'reason', term.reason,
            'term', term.starts_at,
            'until', term.ends_at
        )
        FROM term WHERE term.pool_task = task.id AND term.over_at > $1 ORDER BY term.starts_at LIMIT 1) AS seats,
    -- Why its next run has no time yet, if one waits.
    (SELECT run_known.reason FROM run_known
        WHERE run_known.run_id = (SELECT run.id FROM run
            WHERE run.task_id = task.id AND run.state = 'waiting' ORDER BY run.starts_at, run.id LIMIT 1)) AS waiting,
    node.name AS lead_name,
    node.is_self AS led_here,
    EXISTS (SELECT FROM decision WHERE decision.task_id = task.id) AS planned,
    -- A task that is being planned right now is due.
    coalesce(
        (SELECT CASE WHEN planning.lease_until > $1 THEN least(planning.plan_at, $1) ELSE planning.plan_at END
            FROM planning WHERE planning.task_id = task.id),
        CASE WHEN task.state IN ('active', 'paused') THEN
            least(pool_task.due_at, (SELECT min(term.try_at) FROM term WHERE term.pool_task = task.id))
        END
    ) AS plan_at,
    ahead.next_run_at,
    -- Among the last runs only: a task that has failed for weeks is not read back to its beginning.
    (SELECT
        jsonb_build_object(
            'run', newest.id, 'ends_at', newest.ends_at, 'summary', newest.summary, 'verdict', newest.verdict
        )
        FROM unnest(part.ids) AS own (id)
        CROSS JOIN LATERAL (
            SELECT run.id, run.slot, run.ends_at, run.state, run.summary, run.verdict
            FROM run
            WHERE run.task_id = own.id AND run.slot <= $1
            ORDER BY run.slot DESC, run.attempt DESC
            LIMIT 50
        ) AS newest
        WHERE newest.state = 'finished' AND newest.summary IS NOT NULL
        ORDER BY newest.ends_at DESC
        LIMIT 1) AS latest,
    ordered.place,
    (SELECT
        jsonb_build_object(
            'runs', coalesce(jsonb_object_agg(counted.state, counted.runs) FILTER (WHERE counted.state IS NOT NULL), '{}'),
            'judgements', coalesce(jsonb_object_agg(counted.judgement, counted.runs) FILTER (WHERE counted.judgement IS NOT NULL), '{}')
        )
        FROM (
            SELECT known.state, known.judgement, sum(known.runs) AS runs FROM (
                -- A task may have ten thousand runs. Those of which the index run_of_task tells all are counted in it.
                SELECT equal.state, judgement_of(equal.state, equal.judgement, false) AS judgement, equal.runs
                FROM (
                    SELECT run.state::text AS state, run.judgement, count(*) AS runs
                    FROM run
                    WHERE
                        run.task_id = ANY(part.ids) AND run.state <> 'booked'
                        AND (run.state <> 'finished' OR run.judgement IS NOT NULL)
                    GROUP BY run.state, run.judgement
                ) AS equal
                UNION ALL
                SELECT run_known.state, run_known.judgement, 1 AS runs FROM run_known
                WHERE
                    run_known.run_id = ANY(ARRAY(
                        SELECT run.id FROM run
                        WHERE
                            run.task_id = ANY(part.ids)
                            AND (run.state = 'booked' OR (run.state = 'finished' AND run.judgement IS NULL))
                    ))
                UNION ALL
                SELECT 'unplaced', judgement_of('unplaced', NULL, FALSE), gap.slots FROM gap WHERE gap.task_id = ANY(part.ids)
            ) AS known GROUP BY GROUPING SETS ((known.state), (known.judgement))
        ) AS counted) AS counts,
    judged.outcome
FROM task
LEFT JOIN node ON task.lead = node.identity
LEFT JOIN pool_task ON task.id = pool_task.task_id
CROSS JOIN LATERAL (
    SELECT $3::uuid IS NULL AND coalesce(octet_length(task.reference::text) > $2, false) AS left_out
) AS long
CROSS JOIN LATERAL (
    SELECT array_append(ARRAY(SELECT seated.id FROM task AS seated WHERE seated.parent = task.id), task.id) AS ids
) AS part
CROSS JOIN LATERAL (
    -- For a seat that was assigned and is not booked yet, the start that was found for it.
    SELECT coalesce(
        (SELECT min(run_known.starts_at) FROM run_known
            WHERE run_known.task_id = ANY(part.ids) AND run_known.state = 'scheduled' AND run_known.starts_at > $1),
        (SELECT min(found.starts_at)
            FROM task AS seated
            CROSS JOIN unnest(seated.starts) AS found (starts_at)
            WHERE
                seated.parent = task.id AND seated.state = 'active' AND found.starts_at > $1
                AND NOT EXISTS (SELECT FROM run WHERE run.task_id = seated.id))
    ) AS next_run_at
) AS ahead
CROSS JOIN LATERAL (
    -- The place of a task in the order by $19, as text; by creation it needs none.
    SELECT CASE $19::text
        WHEN 'name' THEN
            left(
                lower(concat_ws(
                    ' ', task.test, jsonb_path_query_array(task.participants, '$[*].name')::text, task.spec ->> 'dest',
                    task.spec ->> 'name', task.spec ->> 'url'
                )),
                200
            )
        WHEN 'mesh' THEN coalesce(left(task.reference ->> 'mesh', 200), '~')
        WHEN 'next' THEN coalesce(to_char(ahead.next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), '~')
        WHEN 'state' THEN
            CASE task.state WHEN 'refused' THEN '0' WHEN 'active' THEN '1' WHEN 'paused' THEN '2' ELSE '3' END
            || CASE
                WHEN task.state IN ('active', 'paused') THEN
                    coalesce(to_char(ahead.next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), '~')
                ELSE to_char(99999999999 - extract(EPOCH FROM task.created_at), 'FM00000000000')
            END
    END AS place
) AS ordered
CROSS JOIN LATERAL (
    SELECT coalesce(
        (SELECT
            jsonb_build_object(
                'judgement', newest.judgement, 'code', newest.code, 'reason', newest.reason,
                'ended_at', (extract(EPOCH FROM newest.ended_at) * 1000000)::bigint
            )
            FROM newest_outcome(task.id, task.schedule ->> 'repeat', $1) AS newest),
        CASE WHEN task.state IN ('refused', 'unplaced') THEN
            jsonb_build_object('judgement', 'not-planned', 'code', task.state, 'reason', coalesce(task.reason, pool_task.reason))
        END,
        jsonb_build_object('judgement', 'unknown', 'code', NULL, 'reason', NULL)
    ) AS outcome
) AS judged
WHERE
    ($3::uuid IS NULL OR task.id = $3)
    AND ($4::text [] IS NULL OR task.state::text = ANY($4))
    AND ($5::text IS NULL OR task.test = $5)
    AND ($6::text IS NULL OR task.id::text LIKE $6 || '%')
    AND (
        $7::timestamptz IS NULL
        OR CASE
            WHEN $20::boolean THEN (task.created_at, task.id) < ($7, $8::uuid)
            ELSE (task.created_at, task.id) > ($7, $8)
        END
    )
    AND (
        $21::text IS NULL
        OR CASE
            WHEN $20 THEN (ordered.place COLLATE "C", task.id) < ($21, $8)
            ELSE (ordered.place COLLATE "C", task.id) > ($21, $8)
        END
    )
    AND ($9::boolean OR task.parent IS NULL OR task.parent = $10 OR $3 IS NOT NULL OR $6 IS NOT NULL)
    AND ($10::uuid IS NULL OR task.parent = $10)
    AND ($12::text IS NULL OR task.requester = $12)
    AND ($13::text IS NULL OR task.participants @> jsonb_build_array(jsonb_build_object('name', $13)))
    AND ($14::text IS NULL OR $14 IN (task.spec ->> 'dest', task.spec ->> 'name', task.spec ->> 'url'))
    AND ($15::text IS NULL OR coalesce(task.campaign, 'default') = $15)
    AND ($16::text IS NULL OR task.reference ->> 'mesh' = $16)
    AND ($17::text [] IS NULL OR task.scheduling_class::text = ANY($17))
    AND ($22::text [] IS NULL OR judged.outcome ->> 'judgement' = ANY($22))
    AND (
        $18::text [] IS NULL
        OR NOT EXISTS (
            SELECT FROM unnest($18) AS wanted (word)
            WHERE strpos(
                lower(concat_ws(
                    ' ', task.id, task.test, task.tool, task.state, coalesce(task.reason, pool_task.reason),
                    jsonb_path_query_array(task.participants, '$[*].name')::text, pool_task.request ->> 'pool', node.name,
                    task.scheduling_class, coalesce(task.campaign, 'default'), task.requester, task.spec ->> 'dest',
                    task.spec ->> 'name', task.spec ->> 'url', task.reference::text
                )),
                wanted.word
            ) = 0
        )
    )
ORDER BY
    CASE WHEN $19 <> 'created' AND NOT $20 THEN ordered.place END COLLATE "C",
    CASE WHEN $19 <> 'created' AND $20 THEN ordered.place END COLLATE "C" DESC,
    CASE WHEN $19 = 'created' AND NOT $20 THEN task.created_at END,
    CASE WHEN $19 = 'created' AND $20 THEN task.created_at END DESC,
    CASE WHEN NOT $20 THEN task.id END,
    task.id DESC
LIMIT $11;

-- end_tasks --
UPDATE task
SET state = $2::task_state, reason = $3, ended_at = $4, paused_at = NULL
WHERE id = ANY($1::uuid []) AND state IN ('active', 'paused')
RETURNING id;

-- stop_planning --
WITH stopped AS (
    SELECT task_id FROM planning
    WHERE task_id = ANY($1::uuid [])
    ORDER BY task_id -- all transactions lock in the same order
    FOR NO KEY UPDATE
)

UPDATE planning SET plan_at = NULL, next_run_at = NULL
FROM stopped
WHERE planning.task_id = stopped.task_id
RETURNING planning.task_id, planning.lease_until;

-- wake_planning --
-- Something changed for this task: plan it then, from this slot on. A worker that is planning it has not seen that, however
-- long its lease still is: an instant before the lease's end tells it so (see "finish_claims").
UPDATE planning
SET
    plan_at = least(plan_at, $2, lease_until - interval '1 microsecond'),
    next_run_at = least(next_run_at, $3)
FROM task
WHERE planning.task_id = $1 AND task.id = $1 AND task.state = 'active';

-- wake_refused --
-- Time that a participant refused has become free: waiting slots are planned now. A task that is being planned may be about
-- to wait.
WITH refused AS (
    SELECT planning.task_id
    FROM planning
    INNER JOIN task ON planning.task_id = task.id
    WHERE
        task.id = ANY($1::uuid [])
        AND task.state = 'active'
        AND parties(task) @> jsonb_build_array(jsonb_build_object('node', $2::text))
        AND planning.plan_at > $3
        AND (
            planning.lease_until IS NOT NULL
            OR EXISTS (SELECT FROM run WHERE run.task_id = task.id AND run.state = 'waiting')
        )
    ORDER BY planning.task_id -- all transactions lock in the same order
    FOR NO KEY UPDATE OF planning
)

UPDATE planning SET plan_at = least(plan_at, $3)
FROM refused
WHERE planning.task_id = refused.task_id
RETURNING planning.task_id;

-- finish_tasks --
-- Tasks that have nothing left to plan, and whose runs are all over. A run that was displaced before its start is placed again
-- once its lead, which may be this node itself, has heard of it by a message; until then its task goes on.
UPDATE task
SET state = 'finished', ended_at = $1
FROM planning
WHERE
    planning.task_id = task.id
    AND planning.plan_at IS NULL AND NOT planning.follower
    AND task.state = 'active'
    AND NOT EXISTS (
        SELECT FROM run
        WHERE run.task_id = task.id AND run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
    )
    AND NOT EXISTS (
        SELECT FROM run
        WHERE
            run.task_id = task.id AND run.state = 'displaced' AND run.starts_at > $1
            AND NOT EXISTS (
                SELECT FROM run AS later
                WHERE later.task_id = run.task_id AND later.slot = run.slot AND later.attempt > run.attempt
            )
    )
    AND NOT EXISTS (SELECT FROM pool_task WHERE pool_task.task_id = task.id)
RETURNING task.id, ARRAY(SELECT party.value ->> 'node' FROM jsonb_array_elements(parties(task)) AS party) AS parties, task.state::text, task.reason;

-- followers_over --
-- Tasks that follow another one end after that one, and as it did. They have nothing to plan most of the time, and there may
-- be many of them, so they are looked at apart.
SELECT task.id, ARRAY(SELECT party.value ->> 'node' FROM jsonb_array_elements(parties(task)) AS party) AS parties, task.follows, followed.state::text, followed.reason
FROM task
INNER JOIN planning ON task.id = planning.task_id AND planning.plan_at IS NULL AND planning.follower
LEFT JOIN task AS followed ON task.follows = followed.id
WHERE
    task.state = 'active'
    AND (followed.id IS NULL OR followed.state NOT IN ('active', 'paused'))
    AND NOT EXISTS (
        SELECT FROM run
        WHERE run.task_id = task.id AND run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
    )
ORDER BY task.id
FOR UPDATE OF task;

-- finish_followers --
UPDATE task
SET state = over.state::task_state, reason = over.reason, ended_at = $4
FROM unnest($1::uuid [], $2::text [], $3::text []) AS over (id, state, reason)
WHERE task.id = over.id AND task.state = 'active';

-- purge_tasks --
-- Tasks that ended long ago, with all that depends on them, once no runs and gaps of theirs are left here and all messages
-- about them have been acknowledged. The tasks of seats are deleted with their terms, and a pool task after the last of these.
WITH gone AS (
    DELETE FROM task
    WHERE id IN (
        SELECT old.id FROM task AS old
        WHERE
            old.parent IS NULL
            AND old.state NOT IN ('active', 'paused') AND old.ended_at < $1
            AND NOT EXISTS (SELECT FROM run WHERE run.task_id = old.id)
            AND NOT EXISTS (SELECT FROM gap WHERE gap.task_id = old.id)
            AND NOT EXISTS (SELECT FROM task AS part WHERE part.parent = old.id)
            AND NOT EXISTS (SELECT FROM outbox WHERE outbox.message ->> 'task' = old.id::text)
        ORDER BY old.ended_at, old.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_heavy_tasks --
-- The ended tasks of other nodes may take so many bytes: of each lead, or of all leads together whose tasks count for a cap of
-- groups. Of older ones the reference goes first, and then the task. What is stored out of line counts as it is stored.
WITH ended AS (
    SELECT
        task.id, task.ended_at, pg_column_size(task.spec) + pg_column_size(task.participants)
        + coalesce(pg_column_size(task.schedule), 0) + coalesce(pg_column_size(task.addresses), 0) + 500 AS rest,
        coalesce(pg_column_size(task.reference), 0) AS reference,
        CASE WHEN task.limit_caps @@ '$[*][1] == "all"' THEN 'all' ELSE task.lead END AS holder
    FROM task
    INNER JOIN node ON task.lead = node.identity AND NOT node.is_self
    WHERE
        task.ended_at IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM run
            WHERE run.task_id = task.id AND run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
        )
),

summed AS (
    SELECT
        id, reference,
        sum(rest + reference) OVER latest_first AS whole,
        sum(rest) OVER latest_first AS without
    FROM ended
    WINDOW latest_first AS (PARTITION BY holder ORDER BY ended_at DESC, id DESC)
),

gone AS (
    DELETE FROM task WHERE id IN (SELECT id FROM summed WHERE without > $1 ORDER BY id LIMIT $2)
    RETURNING id
),

slimmed AS (
    UPDATE task SET reference = NULL
    WHERE id IN (
        SELECT id FROM summed WHERE whole > $1 AND without <= $1 AND reference > 0 ORDER BY id LIMIT $2
    )
    RETURNING id
)

SELECT greatest((SELECT count(*) FROM gone), (SELECT count(*) FROM slimmed)) AS count;

-- purge_surplus_tasks --
-- Of the ended tasks of each other node, and of each lead from outside, the latest ones stay; the others are deleted with all
-- that depends on them. Messages about them have what they say in them.
WITH gone AS (
    DELETE FROM task
    WHERE id IN (
        SELECT surplus.id
        FROM (
            SELECT node.identity FROM node WHERE NOT node.is_self
            UNION
            SELECT task.lead FROM pscheduler_task INNER JOIN task ON pscheduler_task.task_id = task.id
            WHERE pscheduler_task.participant > 0
        ) AS other
        CROSS JOIN LATERAL (
            SELECT old.id FROM task AS old
            WHERE
                old.lead = other.identity AND old.ended_at IS NOT NULL
                AND NOT EXISTS (
                    SELECT FROM run
                    WHERE run.task_id = old.id AND run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
                )
            ORDER BY old.ended_at DESC, old.id DESC
            OFFSET $1
        ) AS surplus
        ORDER BY surplus.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;
