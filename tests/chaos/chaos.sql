-- lead_over --
-- The other node is reached over a wire of ours.
UPDATE node SET url = $2 WHERE identity = $1;

-- notify_node --
SELECT pg_notify('parley', $1);

-- unsaid --
-- Number of items that keep a node from being idle: messages and results not delivered at once, exchanges and holds that
-- expired without a decision, and runs whose time is over.
SELECT
    (SELECT count(*) FROM outbox WHERE created_at < now() - interval '10 seconds')
    + (SELECT count(*) FROM negotiation WHERE state = 'open' AND expires_at < now() - interval '10 seconds')
    + (SELECT count(*) FROM exchange WHERE state = 'held' AND expires_at < now())
    + (SELECT count(*) FROM archiving WHERE state = 'waiting' AND created_at < now() - interval '10 seconds')
    + (SELECT count(*) FROM run WHERE state IN ('booked', 'running', 'merging') AND ends_at < now() - interval '15 seconds');

-- tasks_here --
SELECT
    task.id,
    node.name,
    node.is_self,
    task.state::text,
    ARRAY(SELECT listed.value ->> 'name' FROM jsonb_array_elements(task.participants) AS listed),
    task.reference #>> '{}',
    task.duration,
    coalesce((task.schedule ->> 'start')::timestamptz, task.created_at + interval '2 seconds'),
    (task.schedule ->> 'repeat')::interval,
    (task.schedule ->> 'until')::timestamptz,
    CASE
        WHEN task.schedule ->> 'repeat' IS NULL THEN (task.schedule ->> 'slip')::interval
        ELSE least(
            (task.schedule ->> 'slip')::interval,
            greatest((task.schedule ->> 'repeat')::interval - task.duration, interval '0')
        )
    END,
    task.created_at,
    planning.planned_to,
    planning.plan_at,
    planning.next_run_at,
    task.revision,
    task.ended_at,
    (SELECT archive.runs::text FROM archive WHERE archive.task_id = task.id AND archive.removed_at IS NULL),
    task.test,
    jsonb_build_array(task.spec, task.schedule, task.priority, task.campaign, task.reference)::text
FROM task
INNER JOIN node ON task.lead = node.identity
LEFT JOIN planning ON planning.task_id = task.id;

-- runs_here --
SELECT
    run.id,
    run.task_id,
    run.slot,
    run.attempt,
    run.participant,
    run.scheduling_class::text,
    run.starts_at,
    run.ends_at,
    run.state::text,
    run.reason,
    exchange.state::text,
    exchange.decided_at,
    run.displaced_by,
    coalesce(part.started_at, run.started_at),
    -- A part without times was interrupted by a restart of its node, which freed the rest of the time.
    coalesce(
        part.finished_at, CASE WHEN part.reason IS NOT NULL THEN run.started_at END, run.finished_at, run.changed_at
    ),
    part.result IS NOT NULL,
    run.result
FROM run
LEFT JOIN exchange ON run.exchange_id = exchange.id
LEFT JOIN part ON part.run_id = run.id AND part.participant = run.participant;

-- parts_here --
SELECT run_id, participant, result, reason FROM part;

-- holds_here --
SELECT id, held_at, expires_at FROM exchange WHERE state = 'held';

-- verdict_tables --
-- What all nodes have, side by side, in a database of our own.
DROP SCHEMA public CASCADE;
CREATE SCHEMA public;
CREATE TABLE round (
    now timestamptz, hold_life interval, grace interval, told interval, healed_at timestamptz, asking interval, repair interval,
    horizon interval
);
CREATE TABLE restored (node text, dumped_at timestamptz, restored_at timestamptz);
CREATE TABLE stepped (node text, began timestamptz, ended timestamptz);
CREATE TABLE trouble (one text, other text, began timestamptz, ended timestamptz);
CREATE TABLE task (
    node text, id uuid, lead text, led_here boolean, state text, participants text [], reference text,
    duration interval, starts timestamptz, repeat interval, until timestamptz, slip interval,
    created_at timestamptz, planned_to timestamptz, plan_at timestamptz, next_run_at timestamptz, revision integer, ended_at timestamptz,
    archived text, test text, terms text
);
CREATE TABLE run (
    node text, id uuid, task_id uuid, slot timestamptz, attempt integer, participant integer, scheduling_class text,
    starts_at timestamptz, ends_at timestamptz, state text, reason text, exchange text, decided_at timestamptz,
    displaced_by uuid, started_at timestamptz, over_at timestamptz, measured boolean, result jsonb
);
CREATE TABLE part (node text, run_id uuid, participant integer, result jsonb, reason text);
CREATE TABLE line (node text, run_id uuid, state text, result jsonb);
CREATE TABLE hold (node text, id uuid, held_at timestamptz, expires_at timestamptz);
CREATE TABLE promised (id uuid, node text, at timestamptz);
CREATE TABLE ended_task (id uuid, node text, at timestamptz);
CREATE TABLE ended_run (id uuid, node text, at timestamptz);

-- verdict_ready --
CREATE INDEX ON task (id, node);
CREATE INDEX ON run (id, node);
CREATE INDEX ON run (task_id, slot);
CREATE INDEX ON part (run_id, node);
CREATE INDEX ON line (run_id, node);
-- The time a run has, or had: to its booked end, or to when its part was over.
CREATE TABLE occupied AS
SELECT
    node, id, scheduling_class,
    tstzrange(starts_at, CASE
        WHEN state IN ('booked', 'running') THEN ends_at
        ELSE greatest(starts_at, least(ends_at, over_at))
    END) AS during
FROM run
WHERE participant IS NOT NULL AND (state IN ('booked', 'running') OR started_at IS NOT NULL);
CREATE INDEX ON occupied USING gist (during);
-- What is promised to happen; runs that are beginning or ending just now change while one looks.
CREATE VIEW coming AS
SELECT run.* FROM run CROSS JOIN round
WHERE
    run.state IN ('booked', 'set-aside') AND run.exchange = 'committed'
    AND run.starts_at > round.now + interval '5 seconds';
-- Runs about which nodes may disagree: their time is one that a restored database forgot, or came before its node had asked
-- the others; or it came while the clock of a node was wrong.
CREATE TABLE excused AS
SELECT run.id
FROM run
CROSS JOIN round
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
INNER JOIN restored ON restored.node = ANY(task.participants || task.lead)
WHERE run.starts_at < restored.restored_at + round.repair AND run.ends_at > restored.dumped_at - interval '1 minute'
UNION
SELECT run.id
FROM run
INNER JOIN stepped ON stepped.node = run.node
WHERE run.starts_at BETWEEN stepped.began - interval '25 seconds' AND stepped.ended + interval '25 seconds';
CREATE FUNCTION excuses(run uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM excused WHERE excused.id = $1)
$$;
CREATE INDEX ON excused (id);
-- Whether a node may have forgotten what it acknowledged then.
CREATE FUNCTION forgot(node text, at timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM restored WHERE restored.node = $1 AND $2 BETWEEN restored.dumped_at AND restored.restored_at)
$$;
-- How much of a time these nodes could hear each other.
CREATE FUNCTION calm(nodes text [], since timestamptz, until timestamptz) RETURNS interval LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(upper(quiet) - lower(quiet)), interval '0')
    FROM unnest(
        tstzmultirange(tstzrange($2, greatest($2, $3)))
        - coalesce(
            (SELECT range_agg(tstzrange(began, ended)) FROM trouble WHERE one = ANY($1) AND other = ANY($1)), '{}'
        )
    ) AS quiet
$$;
-- A run as its lead has it, with its task.
CREATE VIEW led AS
SELECT run.*, task.participants, task.archived, task.test FROM run
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
WHERE task.led_here;
ANALYZE;

-- checks_overlaps --
-- On no node did an exclusive run share its time with an exclusive or a normal one.
SELECT one.node, one.id, format('%s %s overlaps %s %s', one.scheduling_class, one.during, other.id, other.during)
FROM occupied AS one
INNER JOIN occupied AS other ON one.node = other.node AND one.id <> other.id AND one.during && other.during
WHERE one.scheduling_class = 'exclusive' AND other.scheduling_class IN ('exclusive', 'normal');

-- checks_all_or_none --
-- A run to come that is booked on one node is booked on all its participants and known to its lead, at the same time.
SELECT coming.node, coming.id, format('%s here and %s on %s', coming.state, coalesce(there.state, 'absent'), other.node)
FROM coming
LEFT JOIN task ON task.node = coming.node AND task.id = coming.task_id
CROSS JOIN unnest(task.participants || task.lead) AS other (node)
LEFT JOIN run AS there ON there.id = coming.id AND there.node = other.node
WHERE
    NOT excuses(coming.id)
    AND (
        there.id IS NULL
        OR there.state NOT IN ('booked', 'set-aside')
        OR there.exchange <> 'committed'
        OR (there.starts_at, there.ends_at, there.slot, there.attempt)
        <> (coming.starts_at, coming.ends_at, coming.slot, coming.attempt)
        OR (there.participant IS NULL AND other.node = ANY(task.participants))
    );

-- checks_begun_on_all --
-- A run that began somewhere was booked on all. One that began before its lead could reach everybody may lack a
-- participant: within twice the hold's life of the decision, or when it had been cancelled or displaced meanwhile, or its
-- lead was not there at its start (or its database): nobody could tell the others. Then its lead says why, and does not
-- take it for measured.
SELECT run.node, run.id, format('begun here, absent on %s', other.node)
FROM run
CROSS JOIN round
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
CROSS JOIN unnest(task.participants || task.lead) AS other (node)
LEFT JOIN run AS there ON there.id = run.id AND there.node = other.node
LEFT JOIN run AS led ON led.id = run.id AND led.node = task.lead
WHERE
    run.started_at IS NOT NULL
    AND there.id IS NULL
    AND NOT excuses(run.id)
    AND (
        led.reason IS NULL
        OR (led.state NOT IN ('cancelled', 'displaced', 'missed') AND run.starts_at > run.decided_at + 2 * round.hold_life)
    );

-- checks_blocked_for_nothing --
-- Time that is blocked belongs to an exchange that is held or committed, and a run set aside to a hold.
SELECT run.node, run.id, format('%s, its exchange is %s', run.state, coalesce(run.exchange, 'absent'))
FROM run
WHERE
    (run.state = 'booked' AND run.exchange IS DISTINCT FROM 'held' AND run.exchange IS DISTINCT FROM 'committed')
    OR (
        run.state = 'set-aside'
        AND NOT EXISTS (
            SELECT FROM run AS winner
            WHERE winner.node = run.node AND winner.id = run.displaced_by AND winner.state = 'booked' AND winner.exchange = 'held'
        )
    );

-- checks_old_holds --
-- No hold is older than twice its life.
SELECT hold.node, hold.id, format('held since %s', hold.held_at)
FROM hold CROSS JOIN round
WHERE round.now > hold.held_at + 2 * (hold.expires_at - hold.held_at);

-- checks_due --
-- A run whose time is over has a result, or a stored reason.
SELECT run.node, run.id, format('%s since %s', run.state, run.ends_at)
FROM run
CROSS JOIN round
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
WHERE
    run.ends_at + CASE WHEN run.state = 'waiting' THEN task.slip ELSE interval '0' END + round.grace < round.now
    AND run.state <> 'finished'
    AND (coalesce(run.reason, '') = '' OR run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging'));

-- checks_slots --
-- Every slot of a task that is neither cancelled nor refused, due or planned already, has a run at its lead. (A task
-- that was changed had other slots before.)
SELECT task.node, task.id, format('nothing for the slot of %s', slot.starts)
FROM task
CROSS JOIN round
CROSS JOIN
    generate_series(
        task.starts,
        coalesce(task.until - interval '1 microsecond', task.starts),
        coalesce(task.repeat, interval '1 day')
    ) AS slot (starts)
WHERE
    task.led_here
    AND task.state IN ('active', 'finished')
    AND task.revision = 1
    AND slot.starts > task.created_at
    AND (slot.starts <= task.planned_to OR slot.starts + task.duration + task.slip + round.grace < round.now)
    AND NOT EXISTS (SELECT FROM run WHERE run.node = task.node AND run.task_id = task.id AND run.slot = slot.starts);

-- checks_once --
-- No slot has two runs that live or have begun to be measured.
SELECT min(run.node), run.task_id, format('slot %s is served by %s', run.slot, array_agg(DISTINCT run.id))
FROM run
WHERE run.state IN ('booked', 'set-aside', 'running', 'merging', 'finished') OR run.measured
GROUP BY run.task_id, run.slot
HAVING count(DISTINCT run.id) > 1;

-- checks_displaced --
-- What was displaced and still has time is planned again: a later attempt is there, and if it waits, it will be planned.
-- (But not what may have begun before its lead heard of it: no slot is run twice.)
SELECT run.node, run.id, format('slot %s: the last attempt is %s, planned again at %s', run.slot, run.state, task.plan_at)
FROM run
CROSS JOIN round
INNER JOIN task ON task.node = run.node AND task.id = run.task_id AND task.led_here AND task.state = 'active'
WHERE
    run.slot + task.slip > round.now + interval '5 seconds'
    AND NOT EXISTS (
        SELECT FROM run AS later
        WHERE later.node = run.node AND later.task_id = run.task_id AND later.slot = run.slot AND later.attempt > run.attempt
    )
    AND ((run.state = 'displaced' AND task.revision = 1 AND run.reason NOT LIKE '%so it is not placed again') OR (run.state = 'waiting' AND task.plan_at IS NULL));

-- checks_changed --
-- Every node knows a task that goes on in the same revision, state, and terms as its lead, and nothing of a paused one is to
-- come.
SELECT
    there.node, there.id,
    format(
        'revision %s, %s here; %s, %s at its lead%s', there.revision, there.state, led.revision, led.state,
        CASE WHEN there.terms <> led.terms THEN ', with other terms' END
    )
FROM task AS led
INNER JOIN task AS there ON led.id = there.id AND led.node <> there.node
WHERE
    led.led_here AND led.state IN ('active', 'paused')
    AND (there.revision, there.state, there.terms) IS DISTINCT FROM (led.revision, led.state, led.terms)
UNION ALL
SELECT coming.node, coming.id, 'to come, and its task is paused'
FROM coming
INNER JOIN task AS led ON coming.task_id = led.id
WHERE led.led_here AND led.state = 'paused';

-- checks_promised --
-- Every task whose POST was acknowledged is there.
SELECT promised.node, promised.id, 'acknowledged, and not there'
FROM promised
WHERE
    NOT forgot(promised.node, promised.at)
    AND NOT EXISTS (SELECT FROM task WHERE task.node = promised.node AND task.id = promised.id AND task.led_here);

-- checks_asked_once --
-- One Idempotency-Key made one task, however often it was sent.
SELECT min(task.node), min(task.id::text)::uuid, format('%s made %s tasks', task.reference, count(*))
FROM task
WHERE task.led_here
GROUP BY task.reference
HAVING count(*) > 1;

-- checks_cancelled_tasks --
-- A task whose cancel was acknowledged is over at its lead and where it was cancelled. (Other participants may have to
-- ask first: see orphans.)
SELECT task.node, task.id, format('cancelled on %s, and %s here', ended_task.node, task.state)
FROM ended_task
INNER JOIN task ON ended_task.id = task.id
WHERE
    task.state IN ('active', 'paused') AND (task.led_here OR task.node = ended_task.node)
    AND NOT forgot(task.node, ended_task.at) AND NOT forgot(ended_task.node, ended_task.at);

-- checks_cancelled_runs --
-- A run whose cancel was acknowledged is over, on every node. (Its lead may have heard of it some time after that, and
-- forgotten it if that was after the backup.)
SELECT run.node, run.id, format('cancelled on %s, and %s here', ended_run.node, run.state)
FROM ended_run
INNER JOIN run ON ended_run.id = run.id
CROSS JOIN round
WHERE
    run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
    AND NOT forgot(ended_run.node, ended_run.at)
    AND NOT EXISTS (
        SELECT FROM restored
        WHERE
            restored.node = run.node
            AND ended_run.at BETWEEN restored.dumped_at - round.told AND restored.restored_at
    );

-- checks_forgotten --
-- What is to be planned is planned: no slot within the horizon is long overdue.
SELECT task.node, task.id, format('was to be planned at %s', task.plan_at)
FROM task CROSS JOIN round
WHERE
    task.led_here AND task.state = 'active' AND task.plan_at + round.grace < round.now
    AND task.next_run_at + round.grace < round.now + round.horizon;

-- checks_orphans --
-- What a participant takes for open is open at its lead, once everybody had time to ask.
SELECT there.node, there.id, format('%s here, %s at %s', there.state, coalesce(led.state, 'unknown'), there.lead)
FROM task AS there
CROSS JOIN round
LEFT JOIN task AS led ON led.id = there.id AND led.led_here
WHERE
    NOT there.led_here AND there.state IN ('active', 'paused')
    AND round.now > greatest(round.healed_at, there.created_at) + round.asking
    AND (led.id IS NULL OR led.state NOT IN ('active', 'paused'));

-- checks_ended --
-- A task is over at its lead when its last slot is, and its last run.
SELECT task.node, task.id, 'its slots and runs are over, and it is active'
FROM task
CROSS JOIN round
WHERE
    task.led_here AND task.state = 'active'
    AND greatest(
        coalesce(task.until, task.starts) + task.duration + task.slip,
        (SELECT max(run.ends_at) FROM run WHERE run.node = task.node AND run.task_id = task.id)
    ) + round.grace < round.now
    AND NOT EXISTS (
        SELECT FROM run
        WHERE
            run.node = task.node AND run.task_id = task.id
            AND run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
    );

-- checks_parts --
-- What a participant measured its lead has, with the same result, and nothing that is finished lacks a part. (A part that
-- came after the backup is forgotten by a restore, however long before it was measured: it may have waited for its sender.
-- The lead asks again for those of runs that failed or were missed, not for those of runs that it had cancelled or taken
-- back when they were measured: these change nothing.)
SELECT own.node, own.run_id, format('measured here, and %s at %s', CASE WHEN kept.run_id IS NULL THEN 'absent' ELSE 'otherwise' END, led.node)
FROM part AS own
INNER JOIN run ON run.node = own.node AND run.id = own.run_id AND run.participant = own.participant
INNER JOIN led ON led.id = own.run_id
LEFT JOIN part AS kept ON kept.node = led.node AND kept.run_id = own.run_id AND kept.participant = own.participant
CROSS JOIN round
WHERE
    own.result IS NOT NULL AND kept.result IS DISTINCT FROM own.result AND NOT excuses(own.run_id)
    AND NOT (
        kept.run_id IS NULL AND led.state IN ('cancelled', 'displaced')
        AND EXISTS (SELECT FROM restored WHERE restored.node = led.node AND run.over_at < restored.restored_at)
    )
UNION ALL
SELECT led.node, led.id, format('finished, with the results of %s of %s parts', count(part.result), cardinality(led.participants))
FROM led
LEFT JOIN part ON part.node = led.node AND part.run_id = led.id
WHERE led.state = 'finished'
GROUP BY led.node, led.id, led.participants
HAVING count(part.result) < cardinality(led.participants);

-- checks_merged --
-- A run is finished with a result, and that is what an idle one is when all of its parts have results; other tests may make
-- no result of them. (Not one that its lead took back before: its slot was placed again.)
SELECT led.node, led.id, 'finished without a result'
FROM led
WHERE led.state = 'finished' AND led.result IS NULL
UNION ALL
SELECT led.node, led.id, format('%s, although all parts have results', led.state)
FROM led
INNER JOIN part ON part.node = led.node AND part.run_id = led.id
WHERE led.test = 'idle' AND led.state NOT IN ('finished', 'cancelled', 'displaced') AND NOT excuses(led.id)
GROUP BY led.node, led.id, led.state, led.participants
HAVING count(part.result) = cardinality(led.participants);

-- checks_alone --
-- Where some participants measured and others did not, the lead does not take the run for measured, and each of the
-- others says why it did not.
SELECT other.node, other.id, format('%s here, and measured on %s', other.state, run.node)
FROM run
INNER JOIN run AS other ON run.id = other.id AND run.node <> other.node
CROSS JOIN round
WHERE
    run.measured AND other.participant IS NOT NULL AND NOT other.measured
    AND run.ends_at + round.grace < round.now
    AND NOT excuses(run.id)
    AND (other.state = 'finished' OR coalesce(other.reason, '') = '');

-- checks_after_end --
-- Nothing is measured after its end: where it was cancelled, unless it was prepared already and the look that finds that out
-- was yet to come (5 s), and elsewhere once everybody could hear of it.
SELECT run.node, run.id, format('began at %s; its task ended here at %s', run.started_at, task.ended_at)
FROM run
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
WHERE
    run.measured AND run.started_at > task.ended_at + interval '6 seconds' AND NOT excuses(run.id)
    AND NOT EXISTS (
        SELECT FROM stepped
        WHERE stepped.node = task.node AND task.ended_at BETWEEN stepped.began - interval '5 s' AND stepped.ended + interval '5 s'
    )
UNION ALL
SELECT run.node, run.id, format('began at %s; cancelled on %s at %s', run.started_at, over.node, over.at)
FROM run
CROSS JOIN round
INNER JOIN (
    SELECT run.id, run.node AS place, ended_task.node, ended_task.at, task.lead
    FROM ended_task
    INNER JOIN run ON ended_task.id = run.task_id
    INNER JOIN task ON task.id = ended_task.id AND task.node = ended_task.node AND task.led_here
    UNION ALL
    SELECT run.id, run.node, ended_run.node, ended_run.at, task.lead
    FROM ended_run
    INNER JOIN run ON ended_run.id = run.id
    INNER JOIN task ON task.id = run.task_id AND task.node = run.node
) AS over ON run.id = over.id AND run.node = over.place
WHERE
    run.measured AND NOT excuses(run.id) AND NOT forgot(over.node, over.at)
    AND CASE
        WHEN run.node = over.node THEN run.started_at > over.at + interval '6 seconds'
        ELSE calm(ARRAY[run.node, over.node, over.lead], over.at, run.started_at) > round.told
    END;

-- checks_archived --
-- Of every outcome that a task's archive asks for, the file has a line, and no line tells of a success that was none.
SELECT led.node, led.id, format('%s, and not in the file', led.state)
FROM led
WHERE
    led.archived IN ('all', CASE led.state WHEN 'finished' THEN 'succeeded' ELSE 'failed' END)
    AND led.state IN ('finished', 'failed', 'missed', 'displaced', 'unplaced')
    AND NOT EXISTS (
        SELECT FROM line
        WHERE
            line.node = led.node AND line.run_id = led.id AND line.state = led.state
            AND line.result IS NOT DISTINCT FROM led.result
    )
UNION ALL
SELECT line.node, line.run_id, format('%s in the file, and %s', line.state, led.state)
FROM line
INNER JOIN led ON line.run_id = led.id AND line.node = led.node
WHERE
    (
        line.state = 'finished' AND led.state <> 'finished' AND NOT excuses(led.id)
        -- What came late may have been forgotten since.
        AND NOT EXISTS (SELECT FROM restored WHERE restored.node = led.node AND restored.dumped_at > led.over_at)
    )
    OR led.archived = CASE line.state WHEN 'finished' THEN 'failed' ELSE 'succeeded' END;

-- figures --
SELECT 'tasks', count(*) FROM task WHERE led_here
UNION ALL
SELECT 'runs known to leads', count(*) FROM run INNER JOIN task ON run.task_id = task.id AND run.node = task.node WHERE led_here
UNION ALL
SELECT 'run rows on all nodes', count(*) FROM run
UNION ALL
SELECT 'runs committed', count(DISTINCT id) FROM run WHERE exchange = 'committed'
UNION ALL
SELECT 'tasks changed', count(*) FROM task WHERE led_here AND revision > 1
UNION ALL
SELECT 'runs displaced', count(DISTINCT id) FROM run WHERE state = 'displaced'
UNION ALL
SELECT 'runs cancelled', count(DISTINCT id) FROM run WHERE state = 'cancelled'
UNION ALL
SELECT 'runs still booked', count(DISTINCT id) FROM run WHERE state = 'booked'
UNION ALL
SELECT 'runs due', count(*) FROM led CROSS JOIN round WHERE exchange = 'committed' AND starts_at < round.now
UNION ALL
SELECT 'runs that began', count(DISTINCT id) FROM run WHERE started_at IS NOT NULL
UNION ALL
SELECT 'runs that began before a participant was lost', count(DISTINCT run.id)
FROM run
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
CROSS JOIN unnest(task.participants) AS other (node)
WHERE
    run.started_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM run AS there WHERE there.id = run.id AND there.node = other.node)
UNION ALL
SELECT 'runs finished', count(*) FROM run INNER JOIN task ON run.task_id = task.id AND run.node = task.node WHERE led_here AND run.state = 'finished'
UNION ALL
SELECT 'slots without time', count(DISTINCT id) FROM run WHERE state = 'unplaced'
UNION ALL
SELECT 'runs measured by all though taken back', count(*)
FROM led
WHERE
    state = 'displaced'
    AND cardinality(participants) = (
        SELECT count(part.result) FROM part WHERE part.node = led.node AND part.run_id = led.id
    )
UNION ALL
SELECT 'runs of which nodes may disagree (restores, clocks)', count(*) FROM excused
UNION ALL
SELECT 'results in files', count(DISTINCT run_id) FROM line
UNION ALL
SELECT 'tasks that participants alone take for open', count(DISTINCT task.id)
FROM task
WHERE
    NOT led_here AND state IN ('active', 'paused')
    AND NOT EXISTS (SELECT FROM task AS led WHERE led.id = task.id AND led.led_here AND led.state IN ('active', 'paused'));

-- failures --
-- What became of the runs that were due and are not finished; names and figures left out.
SELECT
    state || ': ' || regexp_replace(
        regexp_replace(reason, '\y[a-z]: ', '', 'g'), '[0-9][0-9:.TZ-]*', '…', 'g'
    ) AS failure,
    count(*)
FROM led
CROSS JOIN round
WHERE exchange = 'committed' AND starts_at < round.now AND state NOT IN ('finished', 'booked', 'running', 'merging')
GROUP BY failure;
