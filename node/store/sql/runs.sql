-- due_runs --
-- Committed runs that start soon, from $1 on, with all that is needed to launch this node's part of them, but for those that
-- are known ($3). Of those that it only leads, also earlier ones.
SELECT
    run.id, run.task_id, run.participant, run.starts_at, run.ends_at, task.lead, task.test, coalesce(run.tool, task.tool) AS tool,
    coalesce(run.spec, task.spec) AS spec, task.participants, task.addresses, exchange.data, exchange.answer -> 'data' AS told,
    task.limit_bound AS bound, CASE WHEN task.limit_bound THEN task.limit_user END AS bound_user,
    task.limit_rule AS rule
FROM run
INNER JOIN task ON run.task_id = task.id
INNER JOIN exchange ON run.exchange_id = exchange.id
WHERE
    run.state = 'booked' AND exchange.state = 'committed' AND run.starts_at < $2
    AND (
        CASE
            WHEN run.participant IS NULL THEN task.lead = (SELECT node.identity FROM node WHERE node.is_self)
            ELSE run.starts_at >= $1
        END
    ) AND run.id <> ALL($3::uuid [])
ORDER BY run.starts_at
LIMIT 1000;

-- booked_with --
-- A run that is held, booked, under way, or was tried here, if this node leads it or is among the participants.
SELECT
    run.task_id AS task, task.lead, run.starts_at, run.participant, task.test, coalesce(run.tool, task.tool) AS tool,
    coalesce(run.spec, task.spec) AS spec, exchange.answer -> 'data' AS told
FROM run
INNER JOIN task ON run.task_id = task.id
LEFT JOIN exchange ON run.exchange_id = exchange.id
WHERE
    run.id = $1 AND run.state IN ('booked', 'running', 'merging', 'finished', 'failed', 'missed')
    AND (task.lead = $2 OR task.participants @> jsonb_build_array(jsonb_build_object('node', $2::text)));

-- ended --
SELECT
    run.id, run.task_id AS task, task.lead, run.state::text, task.test, coalesce(run.spec, task.spec) AS spec, task.participants,
    task.campaign, run.reason, plain_cause(run.reason) AS cause, run.verdict,
    judgement_of(run.state::text, run.judgement, run.result IS NOT NULL) AS judgement
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE run.id = ANY($1::uuid []) AND run.state = ANY($2::run_state []);

-- next_start --
-- The start of the first run after those. It may only be held: checking its exchange would cost more than one superfluous
-- look.
SELECT min(starts_at) FROM run WHERE state = 'booked' AND starts_at >= $1;

-- begin --
-- Only a committed run starts; a cancellation or displacement in the meantime wins. It is in doubt if this database was
-- restored and has not been compared since with the lead, or, for a run that is led here, with all participants.
UPDATE run
SET state = 'running', changed_at = $2
WHERE
    id = $1 AND state = 'booked'
    AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
RETURNING EXISTS (
    SELECT FROM task
    INNER JOIN node
        ON
            node.identity = task.lead
            OR task.lead = (SELECT own.identity FROM node AS own WHERE own.is_self)
            AND task.participants @> jsonb_build_array(jsonb_build_object('node', node.identity))
    WHERE task.id = run.task_id AND node.uncompared
) AS doubtful;

-- unconfirmed --
-- Participants that have not confirmed the commit of one of these runs, led here, and must have dropped it by that instant:
-- a hold is kept for twice its life.
SELECT run.id, coalesce(node.name, outbox.node) AS name
FROM run
INNER JOIN negotiation ON run.exchange_id = negotiation.id
INNER JOIN outbox ON negotiation.id::text = outbox.message ->> 'exchange' AND outbox.kind = 'commit'
LEFT JOIN node ON outbox.node = node.identity
WHERE
    run.id = ANY($1::uuid [])
    AND $2 > negotiation.decided_at + 2 * (negotiation.expires_at - negotiation.opened_at)
ORDER BY run.id, outbox.id;

-- process --
UPDATE run SET started_at = $2, process_id = $3, process_ticks = $4 WHERE id = $1 AND state = 'running';

-- lock_task_of --
-- A transaction that ends a task locks the task before its runs; one that ends a run does the same.
SELECT id FROM task WHERE id IN (SELECT task_id FROM run WHERE run.id = ANY($1::uuid [])) ORDER BY id FOR SHARE;

-- lock --
SELECT
    run.id, run.task_id, run.state::text, run.participant, run.starts_at, run.ends_at, run.slot, run.attempt,
    task.test, coalesce(run.spec, task.spec) AS spec, task.lead, task.participants, task.duration,
    ARRAY(SELECT keeper.value ->> 'node' FROM jsonb_array_elements(task.keepers) AS keeper) AS keepers,
    coalesce(run.tool, task.tool) AS tool, task.revision, task.campaign, task.reference,
    (extract(EPOCH FROM (task.schedule ->> 'repeat')::interval) * 1000000)::bigint AS repeat,
    task.schedule ->> 'cron' AS cron, task.schedule ->> 'timezone' AS timezone,
    CASE WHEN alert_memory.task_id IS NOT NULL THEN
        jsonb_build_array(alert_memory.marks, alert_memory.raised, alert_memory.paths)
    END AS alert_memory
FROM run
INNER JOIN task ON run.task_id = task.id
LEFT JOIN alert_memory ON run.task_id = alert_memory.task_id
WHERE run.id = ANY($1::uuid [])
ORDER BY run.id
FOR UPDATE OF run;

-- keep_part --
INSERT INTO part (
    run_id, participant, name, result, reason, started_at, finished_at, command, output, circumstances, signature, moved_bytes
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (run_id, participant) DO NOTHING
RETURNING run_id;

-- parts --
SELECT participant, name, result, reason, started_at, finished_at, command, output, circumstances, signature
FROM part WHERE run_id = $1 ORDER BY participant;

-- parts_to_send --
-- This node's parts of runs that another node leads, except those whose message is on its way.
SELECT
    part.run_id, part.participant, part.name, part.result, part.reason, part.started_at, part.finished_at, part.command,
    part.output, part.circumstances, part.signature
FROM part
INNER JOIN run ON part.run_id = run.id AND part.participant = run.participant
INNER JOIN task ON run.task_id = task.id
WHERE
    run.id = ANY($2::uuid []) AND task.lead = $1
    AND NOT EXISTS (
        SELECT FROM outbox
        WHERE outbox.node = $1 AND outbox.kind = 'part' AND outbox.message ->> 'run' = run.id::text
    )
ORDER BY run.id;

-- move --
-- Changes the state of these runs, but only from states that may precede it.
UPDATE run
SET
    state = $2::run_state,
    reason = coalesce($3, reason),
    judgement_code = CASE WHEN $3 IS NULL THEN judgement_code ELSE $7 END,
    changed_at = $4,
    finished_at = CASE WHEN $5 THEN coalesce(finished_at, $4) ELSE finished_at END
WHERE id = ANY($1::uuid []) AND state = ANY($6::run_state [])
RETURNING id, task_id, process_id;

-- add_reason --
UPDATE run SET reason = concat_ws('; ', reason, $2::text) WHERE id = $1;

-- keep_winner --
-- The run that displaced this one on another node.
UPDATE run SET displaced_by = $2 WHERE id = $1 AND state = 'displaced' AND displaced_by IS NULL;

-- conclude --
-- The merged outcome of a run.
UPDATE run
SET
    state = $2::run_state, reason = $3, result = $4, summary = $5, changed_at = $6, finished_at = $6,
    verdict = $8, verdict_reasons = $9, judgement = $10, judgement_code = $11, judgement_reason = $12,
    every = $13
WHERE id = $1 AND state = ANY($7::run_state [])
RETURNING judgement_of(state::text, judgement, result IS NOT NULL);

-- without_parts --
-- At the lead: runs whose end has passed and some of whose parts never arrived.
SELECT run.id
FROM run
INNER JOIN task ON run.task_id = task.id
INNER JOIN node ON task.lead = node.identity AND node.is_self
WHERE
    run.state = 'merging' AND run.ends_at < $1 AND run.starts_at < $1 -- implied, but lets the index be used
    AND ($2::timestamptz IS NULL OR run.ends_at > $2)
LIMIT 500;

-- interrupted --
-- Left running by a dead process of this node.
SELECT id, process_id, process_ticks FROM run WHERE state = 'running';

-- lost --
-- Still running although their end has passed, or although the launcher has left them.
SELECT id FROM run
WHERE
    state = 'running' AND participant IS NOT NULL
    AND ((ends_at < $1 AND starts_at < $1) OR id = ANY($2::uuid []))
LIMIT 100;

-- overslept --
-- Some of the runs that should have started, but were not started by this node; those that are known ($2) may yet be.
SELECT run.id, run.starts_at
FROM run
INNER JOIN exchange ON run.exchange_id = exchange.id
WHERE
    run.state = 'booked' AND exchange.state = 'committed' AND run.participant IS NOT NULL AND run.starts_at < $1
    AND run.id <> ALL($2::uuid [])
ORDER BY run.starts_at
LIMIT 20;

-- open_runs_of_tasks --
SELECT id FROM run
WHERE task_id = ANY($1::uuid []) AND state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
ORDER BY id
FOR UPDATE;

-- coming_with --
-- The runs to come that another node leads or, if they are led here, takes part in.
SELECT run.id
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE
    run.state IN ('booked', 'set-aside') AND run.starts_at > $2
    AND (
        task.lead = $1
        OR (
            task.lead = (SELECT identity FROM node WHERE is_self)
            AND parties(task) @> jsonb_build_array(jsonb_build_object('node', $1::text))
        )
    );

-- booked_runs_of_task --
SELECT id FROM run WHERE task_id = $1 AND state IN ('booked', 'set-aside') ORDER BY id FOR UPDATE;

-- cut_runs_of_tasks --
-- Runs that failed before their booked end: if the task was cancelled, they failed because the other end was.
SELECT id FROM run
WHERE task_id = ANY($1::uuid []) AND state = 'failed' AND ends_at > $2
ORDER BY id
FOR UPDATE;

-- wait_again --
-- The slots of runs that lost their time are planned again inside their windows.
INSERT INTO run (
    id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at, state, reason,
    created_at, changed_at
)
SELECT
    given.following, run.task_id, run.slot, given.attempt, run.participant, run.scheduling_class, run.priority, run.slot,
    run.slot + (run.ends_at - run.starts_at), 'waiting', given.reason, $5, $5
FROM
    unnest($1::uuid [], $2::uuid [], $3::integer [], $4::text [])
        WITH ORDINALITY AS given (run, following, attempt, reason, number)
INNER JOIN run ON given.run = run.id
WHERE EXISTS (SELECT FROM task WHERE task.id = run.task_id AND task.state = 'active')
ORDER BY given.number
ON CONFLICT DO NOTHING
RETURNING task_id, slot;

-- attempts_beside --
-- The other attempts of the slots of these runs.
SELECT own.id AS of, run.id AS run, run.attempt, run.state::text, coalesce(run.judgement_reason, run.reason) AS reason, run.starts_at
FROM run AS own
INNER JOIN run ON own.task_id = run.task_id AND own.slot = run.slot AND own.id <> run.id
WHERE own.id = ANY($1::uuid [])
ORDER BY own.id, run.attempt;

-- other_attempts --
-- All attempts of a slot are locked, since two that were measured after all may be concluded at one time.
WITH other AS MATERIALIZED (
    SELECT id, state FROM run
    WHERE task_id = $1 AND slot = $2 AND attempt <> $3
    ORDER BY id
    FOR UPDATE
)

SELECT id, state::text FROM other
WHERE state IN ('waiting', 'booked', 'set-aside', 'running', 'merging', 'finished')
ORDER BY id;

-- run --
SELECT
    run_known.run_id, run_known.task_id, run_known.test, run_known.tool, run_known.state, run_known.reason,
    run_known.scheduling_class::text, run_known.priority, run_known.starts_at, run_known.ends_at,
    run_known.slot, run_known.attempt, run_known.participants, run_known.participant, run_known.lead,
    run_known.started_at, run_known.finished_at, run_known.displaced_by, run_known.summary, run_known.result,
    run_known.verdict, run_known.verdict_reasons, run_known.judgement,
    run_known.judgement_code, run_known.judgement_reason, run_known.requester, 1::bigint AS slots, run_known.slot AS last_slot,
    coalesce(run.spec, task.spec) AS spec,
    CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
FROM run_known
INNER JOIN run ON run_known.run_id = run.id
INNER JOIN task ON run_known.task_id = task.id
WHERE run_known.run_id = $1;

-- follow_ups --
-- For people: the runs that follow these, each the last attempt of its slot; of tasks of one requester, if one is given.
SELECT
    followed.id AS asked_by, run_known.run_id, run_known.task_id, run_known.test, run_known.state, run_known.reason,
    run_known.starts_at, run_known.ends_at, run_known.participants, run_known.lead, run_known.summary, run_known.judgement,
    run_known.judgement_code, run_known.judgement_reason, coalesce(following.spec, task.spec) AS spec
FROM run AS followed
INNER JOIN task ON followed.task_id = task.follows
CROSS JOIN LATERAL (
    SELECT run.id, run.spec FROM run
    WHERE run.task_id = task.id AND run.slot = followed.ends_at
    ORDER BY run.attempt DESC
    LIMIT 1
) AS following
INNER JOIN run_known ON following.id = run_known.run_id
WHERE
    followed.id = ANY($1::uuid []) AND followed.state IN ('finished', 'failed', 'missed')
    AND ($2::text IS NULL OR task.requester = $2)
ORDER BY followed.id, task.test, task.id;

-- asked_by --
-- The run that each of these follows, at whose end it has its slot; of tasks of one requester, if one is given.
SELECT run.id, followed.id AS asked_by
FROM run
INNER JOIN task ON run.task_id = task.id
INNER JOIN task AS before ON task.follows = before.id
CROSS JOIN LATERAL (
    SELECT earlier.id FROM run AS earlier
    WHERE
        earlier.task_id = before.id AND earlier.slot <= run.slot AND earlier.ends_at = run.slot
        AND earlier.state IN ('finished', 'failed', 'missed')
    ORDER BY earlier.slot DESC, earlier.attempt DESC
    LIMIT 1
) AS followed
WHERE run.id = ANY($1::uuid []) AND ($2::text IS NULL OR before.requester = $2);

-- recorded_run --
-- For bundles: what was to be measured, and by whom.
SELECT
    coalesce(run.spec, task.spec) AS spec, task.lead, task.state::text, task.revision, task.tools, task.schedule, task.duration,
    task.participants, task.campaign, task.reference, task.requester, task.created_at, task.parent
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE run.id = $1;

-- filtered_tasks --
-- Tasks that may have runs for these filters, and no more than $8 of them: all, if they are fewer. What a run was to measure may
-- be from before its task was edited.
SELECT task.id FROM task
WHERE
    ($1::uuid IS NULL OR task.id = $1 OR task.parent = $1)
    AND ($2::text IS NULL OR task.test = $2)
    AND ($3::text IS NULL OR task.requester = $3)
    AND ($4::text IS NULL OR task.participants @> jsonb_build_array(jsonb_build_object('name', $4)))
    AND ($5::text IS NULL OR task.revision > 1 OR $5 IN (task.spec ->> 'dest', task.spec ->> 'name', task.spec ->> 'url'))
    AND ($6::text IS NULL OR coalesce(task.campaign, 'default') = $6)
    AND ($7::text IS NULL OR task.reference ->> 'mesh' = $7)
LIMIT $8;

-- plan_for_values --
-- The plan of a list depends on its filters: one that is good for any of them reads the whole table for some.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true);

-- runs_backward --
-- For people: runs, and gaps in the form of runs, with what they measure; each filter may be null; one page, latest start first.
-- A search ($17) finds what has all of its words, in lower case, anywhere in what people read of a run. Of a slot that was tried
-- again only the last attempt is listed, but for $19, or if the beginning of an id is given.
-- No run that ends after $5 began earlier than the longest one takes, so that the index of starts finds all without older ones.
-- $20 are all tasks that the filters leave, if they are few; $21 and $22 the first and the last id of a beginning of one.
SELECT listed.*
FROM (
    (
        SELECT
            run_known.run_id, run_known.task_id, run_known.test, run_known.tool, run_known.state, run_known.reason,
            run_known.scheduling_class::text, run_known.priority, run_known.starts_at, run_known.ends_at,
            run_known.slot, run_known.attempt, run_known.participants, run_known.participant, run_known.lead,
            run_known.started_at, run_known.finished_at, run_known.displaced_by, run_known.summary, run_known.result,
            run_known.verdict, run_known.verdict_reasons, run_known.judgement,
            run_known.judgement_code, run_known.judgement_reason, run_known.requester, 1::bigint AS slots, run_known.slot AS last_slot,
            measured.spec, measured.mesh
        FROM run_known
        CROSS JOIN LATERAL (
            SELECT
                coalesce((SELECT run.spec FROM run WHERE run.id = run_known.run_id), task.spec) AS spec,
                task.reference,
                concat_ws(' ', task.spec ->> 'dest', task.spec ->> 'name', task.spec ->> 'url', task.reference::text) AS searched,
                CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
            FROM task WHERE task.id = run_known.task_id
        ) AS measured
        WHERE
            ($1::uuid IS NULL OR run_known.task_id = $1)
            AND ($20::uuid [] IS NULL OR run_known.task_id = ANY($20))
            AND ($21::uuid IS NULL OR run_known.run_id BETWEEN $21 AND $22::uuid)
            AND ($2::text [] IS NULL OR run_known.state = ANY($2))
            AND ($3::text IS NULL OR run_known.test = $3)
            AND (
                $5::timestamptz IS NULL
                OR (run_known.ends_at > $5 AND run_known.starts_at > $5 - (SELECT max(run.ends_at - run.starts_at) FROM run))
            )
            AND ($6::timestamptz IS NULL OR run_known.starts_at < $6)
            AND ($7::timestamptz IS NULL OR (run_known.starts_at, run_known.run_id) < ($7, $8::uuid))
            AND ($10::text IS NULL OR run_known.requester = $10)
            AND ($11::text IS NULL OR $11 = ANY(run_known.participants))
            AND ($12::text IS NULL OR $12 IN (measured.spec ->> 'dest', measured.spec ->> 'name', measured.spec ->> 'url'))
            AND ($13::text IS NULL OR coalesce(run_known.campaign, 'default') = $13)
            AND ($14::text [] IS NULL OR run_known.verdict = ANY($14))
            AND ($18::text [] IS NULL OR run_known.judgement = ANY($18))
            AND ($19::boolean OR $4::text IS NOT NULL OR NOT is_tried_again(run_known.task_id, run_known.slot, run_known.attempt, run_known.state))
            AND ($15::text IS NULL OR measured.reference ->> 'mesh' = $15)
            AND ($16::text [] IS NULL OR run_known.scheduling_class::text = ANY($16))
            AND (
                $17::text [] IS NULL
                OR NOT EXISTS (
                    SELECT FROM unnest($17) AS wanted (word)
                    WHERE strpos(
                        lower(concat_ws(
                            ' ', run_known.run_id, run_known.task_id, run_known.test, run_known.tool, run_known.state, run_known.reason, run_known.summary, run_known.verdict, array_to_string(run_known.verdict_reasons, ' '),
                            run_known.judgement, run_known.judgement_reason,
                            run_known.scheduling_class, array_to_string(run_known.participants, ' '), run_known.lead, coalesce(run_known.campaign, 'default'),
                            run_known.requester, measured.searched
                        )),
                        wanted.word
                    ) = 0
                )
            )
        ORDER BY run_known.starts_at DESC, run_known.run_id DESC
        LIMIT $9
    )
    UNION ALL
    (
        SELECT
            run_gap.run_id, run_gap.task_id, run_gap.test, run_gap.tool, run_gap.state, run_gap.reason,
            run_gap.scheduling_class::text, run_gap.priority, run_gap.starts_at, run_gap.ends_at,
            run_gap.slot, 0::smallint AS attempt, run_gap.participants, run_gap.participant, run_gap.lead,
            NULL::timestamptz AS started_at, run_gap.changed_at AS finished_at, NULL::uuid AS displaced_by, NULL::text AS summary,
            NULL::jsonb AS result, NULL::text AS verdict, '{}'::text [] AS verdict_reasons, run_gap.judgement,
            NULL::text AS judgement_code, run_gap.reason AS judgement_reason, run_gap.requester, run_gap.slots,
            run_gap.last_slot,
            measured.spec, measured.mesh
        FROM run_gap
        CROSS JOIN LATERAL (
            SELECT
                task.spec,
                task.reference,
                concat_ws(' ', task.spec ->> 'dest', task.spec ->> 'name', task.spec ->> 'url', task.reference::text) AS searched,
                CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
            FROM task WHERE task.id = run_gap.task_id
        ) AS measured
        WHERE
            ($1::uuid IS NULL OR run_gap.task_id = $1)
            AND ($20::uuid [] IS NULL OR run_gap.task_id = ANY($20))
            AND ($21::uuid IS NULL OR run_gap.run_id BETWEEN $21 AND $22::uuid)
            AND ($2::text [] IS NULL OR run_gap.state = ANY($2))
            AND ($3::text IS NULL OR run_gap.test = $3)
            AND ($5::timestamptz IS NULL OR run_gap.ends_at > $5)
            AND ($6::timestamptz IS NULL OR run_gap.starts_at < $6)
            AND ($7::timestamptz IS NULL OR (run_gap.starts_at, run_gap.run_id) < ($7, $8::uuid))
            AND ($10::text IS NULL OR run_gap.requester = $10)
            AND ($11::text IS NULL OR $11 = ANY(run_gap.participants))
            AND ($12::text IS NULL OR $12 IN (measured.spec ->> 'dest', measured.spec ->> 'name', measured.spec ->> 'url'))
            AND ($13::text IS NULL OR coalesce(run_gap.campaign, 'default') = $13)
            AND $14::text [] IS NULL
            AND ($18::text [] IS NULL OR run_gap.judgement = ANY($18))
            AND ($15::text IS NULL OR measured.reference ->> 'mesh' = $15)
            AND ($16::text [] IS NULL OR run_gap.scheduling_class::text = ANY($16))
            AND (
                $17::text [] IS NULL
                OR NOT EXISTS (
                    SELECT FROM unnest($17) AS wanted (word)
                    WHERE strpos(
                        lower(concat_ws(
                            ' ', run_gap.run_id, run_gap.task_id, run_gap.test, run_gap.tool, run_gap.state, run_gap.reason,
                            run_gap.scheduling_class, array_to_string(run_gap.participants, ' '), run_gap.lead, coalesce(run_gap.campaign, 'default'),
                            run_gap.requester, measured.searched
                        )),
                        wanted.word
                    ) = 0
                )
            )
        ORDER BY run_gap.starts_at DESC, run_gap.run_id DESC
        LIMIT $9
    )
) AS listed
ORDER BY listed.starts_at DESC, listed.run_id DESC
LIMIT $9;

-- runs_forward --
-- The same, earliest start first. Two queries instead of a switch, so that each can use the index order.
SELECT listed.*
FROM (
    (
        SELECT
            run_known.run_id, run_known.task_id, run_known.test, run_known.tool, run_known.state, run_known.reason,
            run_known.scheduling_class::text, run_known.priority, run_known.starts_at, run_known.ends_at,
            run_known.slot, run_known.attempt, run_known.participants, run_known.participant, run_known.lead,
            run_known.started_at, run_known.finished_at, run_known.displaced_by, run_known.summary, run_known.result,
            run_known.verdict, run_known.verdict_reasons, run_known.judgement,
            run_known.judgement_code, run_known.judgement_reason, run_known.requester, 1::bigint AS slots, run_known.slot AS last_slot,
            measured.spec, measured.mesh
        FROM run_known
        CROSS JOIN LATERAL (
            SELECT
                coalesce((SELECT run.spec FROM run WHERE run.id = run_known.run_id), task.spec) AS spec,
                task.reference,
                concat_ws(' ', task.spec ->> 'dest', task.spec ->> 'name', task.spec ->> 'url', task.reference::text) AS searched,
                CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
            FROM task WHERE task.id = run_known.task_id
        ) AS measured
        WHERE
            ($1::uuid IS NULL OR run_known.task_id = $1)
            AND ($20::uuid [] IS NULL OR run_known.task_id = ANY($20))
            AND ($21::uuid IS NULL OR run_known.run_id BETWEEN $21 AND $22::uuid)
            AND ($2::text [] IS NULL OR run_known.state = ANY($2))
            AND ($3::text IS NULL OR run_known.test = $3)
            AND (
                $5::timestamptz IS NULL
                OR (run_known.ends_at > $5 AND run_known.starts_at > $5 - (SELECT max(run.ends_at - run.starts_at) FROM run))
            )
            AND ($6::timestamptz IS NULL OR run_known.starts_at < $6)
            AND ($7::timestamptz IS NULL OR (run_known.starts_at, run_known.run_id) > ($7, $8::uuid))
            AND ($10::text IS NULL OR run_known.requester = $10)
            AND ($11::text IS NULL OR $11 = ANY(run_known.participants))
            AND ($12::text IS NULL OR $12 IN (measured.spec ->> 'dest', measured.spec ->> 'name', measured.spec ->> 'url'))
            AND ($13::text IS NULL OR coalesce(run_known.campaign, 'default') = $13)
            AND ($14::text [] IS NULL OR run_known.verdict = ANY($14))
            AND ($18::text [] IS NULL OR run_known.judgement = ANY($18))
            AND ($19::boolean OR $4::text IS NOT NULL OR NOT is_tried_again(run_known.task_id, run_known.slot, run_known.attempt, run_known.state))
            AND ($15::text IS NULL OR measured.reference ->> 'mesh' = $15)
            AND ($16::text [] IS NULL OR run_known.scheduling_class::text = ANY($16))
            AND (
                $17::text [] IS NULL
                OR NOT EXISTS (
                    SELECT FROM unnest($17) AS wanted (word)
                    WHERE strpos(
                        lower(concat_ws(
                            ' ', run_known.run_id, run_known.task_id, run_known.test, run_known.tool, run_known.state, run_known.reason, run_known.summary, run_known.verdict, array_to_string(run_known.verdict_reasons, ' '),
                            run_known.judgement, run_known.judgement_reason,
                            run_known.scheduling_class, array_to_string(run_known.participants, ' '), run_known.lead, coalesce(run_known.campaign, 'default'),
                            run_known.requester, measured.searched
                        )),
                        wanted.word
                    ) = 0
                )
            )
        ORDER BY run_known.starts_at, run_known.run_id
        LIMIT $9
    )
    UNION ALL
    (
        SELECT
            run_gap.run_id, run_gap.task_id, run_gap.test, run_gap.tool, run_gap.state, run_gap.reason,
            run_gap.scheduling_class::text, run_gap.priority, run_gap.starts_at, run_gap.ends_at,
            run_gap.slot, 0::smallint AS attempt, run_gap.participants, run_gap.participant, run_gap.lead,
            NULL::timestamptz AS started_at, run_gap.changed_at AS finished_at, NULL::uuid AS displaced_by, NULL::text AS summary,
            NULL::jsonb AS result, NULL::text AS verdict, '{}'::text [] AS verdict_reasons, run_gap.judgement,
            NULL::text AS judgement_code, run_gap.reason AS judgement_reason, run_gap.requester, run_gap.slots,
            run_gap.last_slot,
            measured.spec, measured.mesh
        FROM run_gap
        CROSS JOIN LATERAL (
            SELECT
                task.spec,
                task.reference,
                concat_ws(' ', task.spec ->> 'dest', task.spec ->> 'name', task.spec ->> 'url', task.reference::text) AS searched,
                CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
            FROM task WHERE task.id = run_gap.task_id
        ) AS measured
        WHERE
            ($1::uuid IS NULL OR run_gap.task_id = $1)
            AND ($20::uuid [] IS NULL OR run_gap.task_id = ANY($20))
            AND ($21::uuid IS NULL OR run_gap.run_id BETWEEN $21 AND $22::uuid)
            AND ($2::text [] IS NULL OR run_gap.state = ANY($2))
            AND ($3::text IS NULL OR run_gap.test = $3)
            AND ($5::timestamptz IS NULL OR run_gap.ends_at > $5)
            AND ($6::timestamptz IS NULL OR run_gap.starts_at < $6)
            AND ($7::timestamptz IS NULL OR (run_gap.starts_at, run_gap.run_id) > ($7, $8::uuid))
            AND ($10::text IS NULL OR run_gap.requester = $10)
            AND ($11::text IS NULL OR $11 = ANY(run_gap.participants))
            AND ($12::text IS NULL OR $12 IN (measured.spec ->> 'dest', measured.spec ->> 'name', measured.spec ->> 'url'))
            AND ($13::text IS NULL OR coalesce(run_gap.campaign, 'default') = $13)
            AND $14::text [] IS NULL
            AND ($18::text [] IS NULL OR run_gap.judgement = ANY($18))
            AND ($15::text IS NULL OR measured.reference ->> 'mesh' = $15)
            AND ($16::text [] IS NULL OR run_gap.scheduling_class::text = ANY($16))
            AND (
                $17::text [] IS NULL
                OR NOT EXISTS (
                    SELECT FROM unnest($17) AS wanted (word)
                    WHERE strpos(
                        lower(concat_ws(
                            ' ', run_gap.run_id, run_gap.task_id, run_gap.test, run_gap.tool, run_gap.state, run_gap.reason,
                            run_gap.scheduling_class, array_to_string(run_gap.participants, ' '), run_gap.lead, coalesce(run_gap.campaign, 'default'),
                            run_gap.requester, measured.searched
                        )),
                        wanted.word
                    ) = 0
                )
            )
        ORDER BY run_gap.starts_at, run_gap.run_id
        LIMIT $9
    )
) AS listed
ORDER BY listed.starts_at, listed.run_id
LIMIT $9;

-- gap --
-- A gap in the form of a run.
SELECT
    run_gap.run_id, run_gap.task_id, run_gap.test, run_gap.tool, run_gap.state, run_gap.reason,
    run_gap.scheduling_class::text, run_gap.priority, run_gap.starts_at, run_gap.ends_at,
    run_gap.slot, 0::smallint AS attempt, run_gap.participants, run_gap.participant, run_gap.lead,
    NULL::timestamptz AS started_at, run_gap.changed_at AS finished_at, NULL::uuid AS displaced_by, NULL::text AS summary,
    NULL::jsonb AS result, NULL::text AS verdict, '{}'::text [] AS verdict_reasons, run_gap.judgement,
    NULL::text AS judgement_code, run_gap.reason AS judgement_reason, run_gap.requester, run_gap.slots,
    run_gap.last_slot,
    task.spec,
    CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
FROM run_gap
INNER JOIN task ON run_gap.task_id = task.id
WHERE run_gap.run_id = $1;

-- named_runs --
-- For people: those of these runs that exist, and that this user requested, if one is given.
SELECT
    run_known.run_id, run_known.task_id, run_known.test, run_known.tool, run_known.state, run_known.reason,
    run_known.scheduling_class::text, run_known.priority, run_known.starts_at, run_known.ends_at,
    run_known.slot, run_known.attempt, run_known.participants, run_known.participant, run_known.lead,
    run_known.started_at, run_known.finished_at, run_known.displaced_by, run_known.summary, run_known.result,
    run_known.verdict, run_known.verdict_reasons, run_known.judgement,
    run_known.judgement_code, run_known.judgement_reason, run_known.requester, 1::bigint AS slots, run_known.slot AS last_slot,
    coalesce(run.spec, task.spec) AS spec,
    CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
FROM run_known
INNER JOIN run ON run_known.run_id = run.id
INNER JOIN task ON run_known.task_id = task.id
WHERE run_known.run_id = ANY($1::uuid []) AND ($2::text IS NULL OR run_known.requester = $2)
ORDER BY run_known.starts_at, run_known.run_id;

-- named_gaps --
-- The same for gaps, in the form of runs.
SELECT
    run_gap.run_id, run_gap.task_id, run_gap.test, run_gap.tool, run_gap.state, run_gap.reason,
    run_gap.scheduling_class::text, run_gap.priority, run_gap.starts_at, run_gap.ends_at,
    run_gap.slot, 0::smallint AS attempt, run_gap.participants, run_gap.participant, run_gap.lead,
    NULL::timestamptz AS started_at, run_gap.changed_at AS finished_at, NULL::uuid AS displaced_by, NULL::text AS summary,
    NULL::jsonb AS result, NULL::text AS verdict, '{}'::text [] AS verdict_reasons, run_gap.judgement,
    NULL::text AS judgement_code, run_gap.reason AS judgement_reason, run_gap.requester, run_gap.slots,
    run_gap.last_slot,
    task.spec,
    CASE WHEN jsonb_typeof(task.reference -> 'mesh') = 'string' THEN task.reference ->> 'mesh' END AS mesh
FROM run_gap
INNER JOIN task ON run_gap.task_id = task.id
WHERE run_gap.run_id = ANY($1::uuid []) AND ($2::text IS NULL OR run_gap.requester = $2)
ORDER BY run_gap.starts_at, run_gap.run_id;

-- buckets --
-- The span [$1, $2) in buckets of $3 microseconds: for each bucket and class how many runs it overlaps by state and judgement, and
-- in a row without a state for how many microseconds of it at least one of them occupies time of this node; with $6, only runs of
-- this participant, and its time.
WITH shown AS (
    SELECT
        scheduling_class::text AS lane, state, greatest(starts_at, $1) AS begins, least(ends_at, $2) AS ends, 1 AS slots,
        CASE WHEN NOT is_tried_again(task_id, slot, attempt, state) THEN judgement END AS judgement,
        ($6::text IS NOT NULL OR participant IS NOT NULL)
        AND state NOT IN ('waiting', 'set-aside', 'missed', 'cancelled', 'displaced', 'unplaced') AS occupies
    FROM run_known
    WHERE
        ends_at > $1 AND starts_at > $1 - (SELECT max(run.ends_at - run.starts_at) FROM run) AND starts_at < $2
        AND ($4::text IS NULL OR requester = $4)
        AND ($5::text [] IS NULL OR scheduling_class::text = ANY($5))
        AND ($6::text IS NULL OR $6 = ANY(participants))
    UNION ALL
    SELECT scheduling_class::text, state, greatest(starts_at, $1), least(ends_at, $2), slots, judgement, FALSE
    FROM run_gap
    WHERE
        ends_at > $1 AND starts_at < $2 AND ($4::text IS NULL OR requester = $4)
        AND ($5::text [] IS NULL OR scheduling_class::text = ANY($5))
        AND ($6::text IS NULL OR $6 = ANY(participants))
),

cut AS (
    SELECT
        shown.lane, shown.state, shown.judgement, shown.slots, shown.occupies, bucket.number,
        tstzrange(
            greatest(shown.begins, $1 + bucket.number * $3::bigint * interval '1 us'),
            least(shown.ends, $1 + (bucket.number + 1) * $3::bigint * interval '1 us')
        ) AS during
    FROM shown
    CROSS JOIN LATERAL generate_series(
        (extract(EPOCH FROM shown.begins - $1) * 1000000)::bigint / $3::bigint,
        ((extract(EPOCH FROM shown.ends - $1) * 1000000)::bigint - 1) / $3::bigint
    ) AS bucket (number)
),

summed AS (
    SELECT
        number, lane, state, judgement, sum(slots)::bigint AS runs,
        range_agg(during) FILTER (WHERE occupies) AS busy
    FROM cut
    GROUP BY GROUPING SETS ((number, lane, state, judgement), (number, lane))
)

SELECT
    number, lane, state, judgement, runs,
    (
        SELECT coalesce(sum(extract(EPOCH FROM upper(piece.during) - lower(piece.during)) * 1000000), 0)::bigint
        FROM unnest(summed.busy) AS piece (during)
    ) AS busy
FROM summed
ORDER BY number, lane, state, judgement;

-- at_slot --
-- The last run of a task for the first slot in [$2, $3), or else the gap in which that is; with the slot.
SELECT id, slot FROM (
    SELECT id, 1 AS place, attempt, slot FROM run
    WHERE task_id = $1 AND slot >= $2 AND slot < $3 AND NOT (freed OR state = 'displaced')
    UNION ALL
    SELECT id, 2, 0, greatest(first_slot, $2) FROM gap WHERE task_id = $1 AND first_slot < $3 AND last_slot >= $2
    UNION ALL
    SELECT id, 3, attempt, slot FROM run WHERE task_id = $1 AND slot >= $2 AND slot < $3
) AS known
ORDER BY place, slot, attempt DESC
LIMIT 1;

-- judgements --
SELECT id, judgement_of(state::text, judgement, result IS NOT NULL) AS judgement
FROM run
WHERE id = ANY($1::uuid []) AND state NOT IN ('waiting', 'booked', 'set-aside', 'running', 'merging');

-- nearest_slot --
-- The slot of a run or gap of task $1 that is nearest to $2.
SELECT slot FROM (
    (SELECT slot FROM run WHERE task_id = $1 AND slot <= $2 ORDER BY slot DESC LIMIT 1)
    UNION ALL
    (SELECT slot FROM run WHERE task_id = $1 AND slot > $2 ORDER BY slot LIMIT 1)
    UNION ALL
    (SELECT last_slot FROM gap WHERE task_id = $1 AND first_slot <= $2 ORDER BY first_slot DESC LIMIT 1)
    UNION ALL
    (SELECT first_slot FROM gap WHERE task_id = $1 AND first_slot > $2 ORDER BY first_slot LIMIT 1)
) AS known
ORDER BY greatest(slot - $2, $2 - slot)
LIMIT 1;

-- decisions --
SELECT id, task_id, first_at, decided_at, times, outcome, sentence, asked, placed, first_slot, last_slot, trace
FROM decision
WHERE task_id = $1 AND ($2::timestamptz IS NULL OR (first_slot <= $2 AND last_slot >= $2))
ORDER BY id DESC
LIMIT $3;

-- counts --
-- Figures for /metrics. Each slot of a gap counts.
SELECT each.state, each.scheduling_class, sum(each.runs)::bigint
FROM (
    SELECT state, scheduling_class::text, count(*) AS runs FROM run_known GROUP BY state, scheduling_class
    UNION ALL
    SELECT 'unplaced', task.scheduling_class::text, sum(gap.slots)
    FROM gap INNER JOIN task ON gap.task_id = task.id
    GROUP BY task.scheduling_class
) AS each
GROUP BY each.state, each.scheduling_class;

-- purge_runs --
-- Runs that are over, either the finished ones or all others. A run that ended before then also started before then.
WITH gone AS (
    DELETE FROM run
    WHERE id IN (
        SELECT old.id FROM run AS old
        WHERE
            old.starts_at < $1 AND old.ends_at < $1
            AND old.state IN ('finished', 'failed', 'missed', 'cancelled', 'displaced', 'unplaced')
            AND (old.state = 'finished') = $2
            -- Runs with pending deliveries stay until these are delivered or parked.
            AND NOT EXISTS (SELECT FROM archiving WHERE archiving.run_id = old.id AND archiving.state = 'waiting')
            -- A task with max_runs counts its runs while it is planned, except for those it has given up.
            AND (
                old.freed
                OR NOT EXISTS (
                    SELECT FROM task
                    WHERE
                        task.id = old.task_id AND task.state IN ('active', 'paused')
                        AND jsonb_typeof(task.schedule -> 'max_runs') = 'number'
                )
            )
        ORDER BY old.starts_at, old.id
        LIMIT $3
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_gaps --
WITH gone AS (
    DELETE FROM gap
    WHERE id IN (
        SELECT old.id FROM gap AS old
        WHERE old.first_slot < $1 AND old.last_slot < $1
        ORDER BY old.first_slot, old.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_decisions --
WITH gone AS (
    DELETE FROM decision
    WHERE id IN (
        SELECT old.id FROM decision AS old
        WHERE old.decided_at < $1 AND coalesce(old.last_slot, old.decided_at) < $1
        ORDER BY old.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_surplus_runs --
-- Of the runs that are over, of the tasks of each other lead, or of all leads whose tasks count for a cap together, the latest stay.
-- Those that a task with max_runs counts while it is planned stay as well.
WITH surplus AS (
    SELECT numbered.id
    FROM (
        SELECT
            run.id,
            row_number() OVER (
                PARTITION BY CASE WHEN task.limit_caps @@ '$[*][1] == "all"' THEN 'all' ELSE task.lead END
                ORDER BY run.changed_at DESC, run.id DESC
            ) AS place,
            run.started_at IS NOT NULL AND task.state IN ('active', 'paused')
            AND coalesce(jsonb_typeof(task.schedule -> 'max_runs') = 'number', false) AS counted
        FROM task
        INNER JOIN node ON task.lead = node.identity AND NOT node.is_self
        INNER JOIN run ON task.id = run.task_id
        WHERE run.state IN ('finished', 'failed', 'missed', 'cancelled', 'displaced', 'unplaced')
    ) AS numbered
    WHERE numbered.place > $1 AND NOT numbered.counted
    ORDER BY numbered.id
    LIMIT $2
),

gone AS (
    DELETE FROM run WHERE id IN (SELECT id FROM surplus)
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_surplus_exchanges --
-- Of the exchanges without runs, of the tasks of each other node, the latest stay: a lead may open and release any number.
WITH gone AS (
    DELETE FROM exchange
    WHERE id IN (
        SELECT surplus.id
        FROM (SELECT node.identity FROM node WHERE NOT node.is_self) AS other
        CROSS JOIN LATERAL (
            SELECT old.id
            FROM task
            INNER JOIN exchange AS old ON task.id = old.task_id
            WHERE
                task.lead = other.identity AND old.state <> 'held'
                AND NOT EXISTS (SELECT FROM run WHERE run.exchange_id = old.id)
            ORDER BY old.decided_at DESC, old.id DESC
            OFFSET $1
        ) AS surplus
        ORDER BY surplus.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_exchanges --
WITH gone AS (
    DELETE FROM exchange
    WHERE id IN (
        SELECT old.id FROM exchange AS old
        WHERE
            old.state <> 'held' AND old.decided_at < $1
            AND NOT EXISTS (SELECT FROM run WHERE run.exchange_id = old.id)
        ORDER BY old.decided_at, old.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_negotiations --
-- No decision is requested later than twice the life of a hold; but a commit that is not acknowledged needs its message.
WITH gone AS (
    DELETE FROM negotiation
    WHERE id IN (
        SELECT old.id FROM negotiation AS old
        WHERE
            old.decided_at < $1
            AND NOT EXISTS (
                SELECT FROM outbox
                WHERE outbox.kind = 'commit' AND outbox.message ->> 'exchange' = old.id::text
            )
        ORDER BY old.decided_at, old.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_idempotency --
WITH gone AS (
    DELETE FROM idempotency
    WHERE key IN (
        SELECT old.key FROM idempotency AS old
        WHERE old.created_at < $1
        ORDER BY old.created_at, old.key COLLATE "C"
        LIMIT $2
    )
    RETURNING key
)

SELECT count(*) FROM gone;

-- taken_back --
-- Of the runs in execution, those that were ended meanwhile (a notification may have been lost).
SELECT id FROM run
WHERE id = ANY($1::uuid []) AND state IN ('cancelled', 'displaced', 'set-aside');

-- as_of --
-- The timeline as it stood at $1, as far as the present rows tell: a page, earliest start first. A run ended when it was finished,
-- or else last changed. Runs without an exchange had no time.
SELECT
    run_known.run_id, run_known.task_id, run_known.test, run_known.scheduling_class::text, run_known.priority,
    run_known.starts_at, run_known.ends_at, run_known.participants,
    CASE
        WHEN past.is_over THEN run_known.state
        WHEN run.exchange_id IS NULL THEN 'waiting'
        WHEN run.state = 'set-aside' AND run.changed_at <= $1 THEN 'set-aside'
        WHEN past.has_begun AND run.ends_at > $1 THEN 'running'
        WHEN past.has_begun THEN 'merging'
        WHEN exchange.decided_at <= $1 THEN 'scheduled'
        ELSE 'held'
    END AS state,
    CASE WHEN past.is_over OR (run.state = 'waiting' AND run.changed_at <= $1) THEN run.reason END AS reason,
    CASE WHEN past.is_over THEN run.summary END AS summary,
    coalesce(run.spec, task.spec) AS spec
FROM run_known
INNER JOIN run ON run_known.run_id = run.id
INNER JOIN task ON run.task_id = task.id
LEFT JOIN exchange ON run.exchange_id = exchange.id
CROSS JOIN LATERAL (
    SELECT
        run.state IN ('finished', 'failed', 'missed', 'cancelled', 'displaced', 'unplaced')
        AND coalesce(run.finished_at, run.changed_at) <= $1 AS is_over,
        coalesce(run.started_at, CASE WHEN run.state IN ('merging', 'finished', 'failed') THEN run.starts_at END)
        <= $1 AS has_begun
) AS past
WHERE
    run.created_at <= $1
    AND run_known.ends_at > $2
    AND run_known.starts_at > $2 - (SELECT max(each.ends_at - each.starts_at) FROM run AS each)
    AND run_known.starts_at < $3
    AND ($4::timestamptz IS NULL OR (run_known.starts_at, run_known.run_id) > ($4, $5::uuid))
    AND ($6::text IS NULL OR run_known.requester = $6)
ORDER BY run_known.starts_at, run_known.run_id
LIMIT $7;

-- changes --
-- The slots whose booked run at $1 is not that at $2: added, moved (another attempt at another time), or lost. A run is booked once its
-- exchange is committed, until it is cancelled, displaced or missed.
WITH touched AS (
    SELECT DISTINCT run.task_id, run.slot
    FROM run
    WHERE
        run.starts_at < $4 AND run.ends_at > $3
        AND run.starts_at > $3 - (SELECT max(each.ends_at - each.starts_at) FROM run AS each)
        AND run.changed_at > $1 AND run.exchange_id IS NOT NULL
),

planned AS (
    SELECT instant.is_later, touched.task_id AS of_task, touched.slot AS of_slot, booked.*
    FROM touched
    CROSS JOIN (VALUES (false, $1::timestamptz), (true, $2::timestamptz)) AS instant (is_later, at)
    LEFT JOIN LATERAL (
        SELECT run.*
        FROM run
        INNER JOIN exchange ON run.exchange_id = exchange.id
        WHERE
            run.task_id = touched.task_id AND run.slot = touched.slot
            AND exchange.state = 'committed' AND exchange.decided_at <= instant.at
            AND NOT (
                run.state IN ('cancelled', 'displaced', 'missed') AND coalesce(run.finished_at, run.changed_at) <= instant.at
            )
        ORDER BY run.attempt DESC
        LIMIT 1
    ) AS booked ON true
)

SELECT
    coalesce(later.id, earlier.id) AS run_id, earlier.of_task AS task_id, task.test,
    coalesce(later.scheduling_class, earlier.scheduling_class)::text AS scheduling_class,
    coalesce(later.priority, earlier.priority) AS priority,
    coalesce(later.starts_at, earlier.starts_at) AS starts_at, coalesce(later.ends_at, earlier.ends_at) AS ends_at,
    CASE
        WHEN earlier.id IS NULL THEN 'added'
        WHEN later.id IS NULL THEN earlier.state::text
        ELSE 'moved'
    END AS change,
    CASE WHEN later.id IS NULL THEN coalesce(earlier.finished_at, earlier.changed_at) ELSE later.created_at END AS changed_at,
    CASE WHEN later.id IS NOT NULL THEN earlier.starts_at END AS was_starts_at,
    earlier.reason, earlier.displaced_by,
    coalesce(CASE WHEN later.id IS NULL THEN earlier.spec ELSE later.spec END, task.spec) AS spec,
    (SELECT array_agg(participant.value ->> 'name' ORDER BY participant.ordinality)
        FROM jsonb_array_elements(task.participants) WITH ORDINALITY AS participant) AS participants
FROM planned AS earlier
INNER JOIN planned AS later ON earlier.of_task = later.of_task AND earlier.of_slot = later.of_slot
INNER JOIN task ON earlier.of_task = task.id
WHERE
    NOT earlier.is_later AND later.is_later AND earlier.id IS DISTINCT FROM later.id
    AND (earlier.starts_at, earlier.ends_at) IS DISTINCT FROM (later.starts_at, later.ends_at)
    AND ($5::text IS NULL OR task.requester = $5)
ORDER BY 6, 1
LIMIT $6;
