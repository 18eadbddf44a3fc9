-- The invariants of the database: one file for simulated worlds, `make points`, and `make chaos`.
--
-- Each is a query that returns (node, id, what) of every violation. It reads the tables below, in which the rows of all nodes
-- lie side by side. `…_here` returns the rows of one node in that form, so an invariant that begins with `always_` holds for
-- a node by itself at every instant, and can be asked in its own database with these for the tables. One that begins with
-- `settled_` holds once all faults are over and everybody had time to hear of everything.

-- tasks_here --
SELECT
    (SELECT node.name FROM node WHERE node.is_self) AS node,
    task.id,
    coalesce(node.name, task.lead) AS lead,
    coalesce(node.is_self, false) AS led_here,
    task.state::text AS state,
    ARRAY(
        SELECT coalesce(known.name, listed.value ->> 'name', listed.value ->> 'node')
        FROM jsonb_array_elements(task.participants) AS listed
        LEFT JOIN node AS known ON known.identity = listed.value ->> 'node'
    ) AS participants,
    task.reference #>> '{}' AS reference,
    task.duration,
    -- Only of a task whose slots follow from its schedule alone: the first slot, and the last one at the latest.
    CASE WHEN slots.known THEN slots.starts END AS starts,
    (task.schedule ->> 'repeat')::interval AS repeat,
    CASE
        WHEN slots.known AND task.schedule ->> 'repeat' IS NULL THEN slots.starts
        WHEN slots.known THEN coalesce((task.schedule ->> 'until')::timestamptz - interval '1 microsecond', 'infinity')
    END AS last,
    CASE
        WHEN task.schedule ->> 'repeat' IS NULL THEN coalesce((task.schedule ->> 'slip')::interval, interval '5 minutes')
        ELSE least(
            coalesce(
                (task.schedule ->> 'slip')::interval,
                least(interval '5 minutes', greatest(interval '30 seconds', (task.schedule ->> 'repeat')::interval / 10))
            ),
            greatest((task.schedule ->> 'repeat')::interval - task.duration, interval '0')
        )
    END AS slip,
    CASE WHEN jsonb_typeof(task.schedule -> 'max_runs') = 'number' THEN (task.schedule ->> 'max_runs')::integer END AS max_runs,
    task.created_at,
    planning.planned_to,
    planning.plan_at,
    planning.next_run_at,
    task.revision,
    task.ended_at,
    (SELECT archive.runs::text FROM archive WHERE archive.task_id = task.id AND archive.removed_at IS NULL) AS archived,
    task.test,
    jsonb_build_array(task.spec, task.schedule, task.priority, task.campaign, task.reference)::text AS terms,
    ARRAY(
        SELECT coalesce(known.name, listed.value ->> 'name')
        FROM jsonb_array_elements(task.participants) AS listed
        LEFT JOIN node AS known ON known.identity = listed.value ->> 'node'
        WHERE
            listed.value -> 'accepted' <> 'false' AND listed.value ->> 'reason' IS NOT NULL
            AND listed.value ->> 'reason' NOT LIKE '% cannot be reached%'
    ) AS refusing
FROM task
LEFT JOIN node ON task.lead = node.identity
LEFT JOIN planning ON planning.task_id = task.id
CROSS JOIN LATERAL (
    SELECT
        coalesce((task.schedule ->> 'start')::timestamptz, task.created_at + interval '2 seconds') AS starts,
        task.schedule ->> 'max_runs' IS NULL AND task.schedule ->> 'cron' IS NULL AND task.schedule ->> 'after' IS NULL
        AND NOT EXISTS (SELECT FROM pool_task WHERE pool_task.task_id = task.id) AS known
) AS slots

-- runs_here --
SELECT
    (SELECT node.name FROM node WHERE node.is_self) AS node,
    run.id,
    run.task_id,
    run.slot,
    run.attempt,
    run.participant,
    run.scheduling_class::text AS scheduling_class,
    run.starts_at,
    run.ends_at,
    run.state::text AS state,
    run.reason,
    exchange.state::text AS exchange,
    exchange.decided_at,
    run.displaced_by,
    coalesce(part.started_at, run.started_at) AS started_at,
    -- A part without times was interrupted by a restart of its node, which freed the rest of the time.
    coalesce(
        part.finished_at, CASE WHEN part.reason IS NOT NULL THEN run.started_at END, run.finished_at, run.changed_at
    ) AS over_at,
    part.result IS NOT NULL AS measured,
    run.result,
    run.freed,
    -- It lives, or has brought a result.
    run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging', 'finished') AS has_slot
FROM run
LEFT JOIN exchange ON run.exchange_id = exchange.id
LEFT JOIN part ON part.run_id = run.id AND part.participant = run.participant

-- parts_here --
SELECT (SELECT node.name FROM node WHERE node.is_self) AS node, run_id, participant, result, reason FROM part

-- gaps_here --
SELECT (SELECT node.name FROM node WHERE node.is_self) AS node, id, task_id, first_slot, last_slot FROM gap

-- holds_here --
SELECT (SELECT node.name FROM node WHERE node.is_self) AS node, id, held_at, expires_at FROM exchange WHERE state = 'held'

-- letters_here --
SELECT (SELECT node.name FROM node WHERE node.is_self) AS node, id, kind, created_at FROM outbox

-- terms_here --
SELECT
    (SELECT node.name FROM node WHERE node.is_self) AS node, term.pool_task, term.starts_at, term.ends_at, term.over_at, term.seats,
    term.reason, term.try_at, wanted.state::text AS state
FROM term INNER JOIN public.task AS wanted ON term.pool_task = wanted.id

-- seats_here --
SELECT (SELECT node.name FROM node WHERE node.is_self) AS node, task_id, pool_task, term, node AS of_node, place, lost_at IS NOT NULL AS lost FROM seat

-- pool_tasks_here --
-- Those that go on; the last slot is infinity without an end, and unknown where a number of runs is the end.
SELECT
    (SELECT node.name FROM node WHERE node.is_self) AS node, wanted.id,
    coalesce((wanted.schedule ->> 'start')::timestamptz, wanted.created_at + interval '2 seconds') AS starts,
    (wanted.schedule ->> 'repeat')::interval AS repeat,
    CASE
        WHEN wanted.schedule ->> 'max_runs' IS NULL AND wanted.schedule ->> 'cron' IS NULL
            THEN coalesce((wanted.schedule ->> 'until')::timestamptz - interval '1 microsecond', 'infinity')
    END AS last,
    wanted.created_at
FROM pool_task INNER JOIN public.task AS wanted ON pool_task.task_id = wanted.id
WHERE wanted.state = 'active'

-- uses_here --
SELECT
    (SELECT node.name FROM node WHERE node.is_self) AS node, taken.run_id AS id, taken.resource, taken.amount,
    resource.number, taken.starts_at, taken.ends_at
FROM resource_taken AS taken INNER JOIN resource ON taken.resource = resource.name

-- occupied --
-- The time a run has, or had: to its booked end, or to when its part was over.
SELECT
    run.node, run.id, run.scheduling_class, run.starts_at,
    CASE
        WHEN run.state IN ('booked', 'running') THEN run.ends_at
        ELSE greatest(run.starts_at, least(run.ends_at, run.over_at))
    END AS until
FROM run
WHERE run.participant IS NOT NULL AND (run.state IN ('booked', 'running') OR run.started_at IS NOT NULL)

-- tables --
-- What all nodes have, side by side, in a database of our own.
DROP SCHEMA public CASCADE;
CREATE SCHEMA public;
-- What the checks depend on: the true time, and that of the clock of a node; how far clocks may be apart that are right; the
-- life of holds, and the time after a start in which none is looked at; the time for a lost run to be noticed, for everybody
-- to hear of something, for a message to be delivered, and for differences to be repaired; when the last fault was over, and
-- for how long after it participants may have tasks that their leads do not; how far ahead leads plan; how often tables are
-- looked at; since when nothing was deleted.
CREATE TABLE round (
    now timestamptz, clock timestamptz, precision interval, hold_life interval, starting interval, grace interval, told interval,
    delivery interval, repair interval, healed_at timestamptz, asking interval, horizon interval, look interval,
    kept_since timestamptz
);
CREATE TABLE restored (node text, dumped_at timestamptz, restored_at timestamptz);
CREATE TABLE stepped (node text, began timestamptz, ended timestamptz, right_at timestamptz);
CREATE TABLE trouble (one text, other text, began timestamptz, ended timestamptz);
CREATE TABLE task (
    node text, id uuid, lead text, led_here boolean, state text, participants text [], reference text,
    duration interval, starts timestamptz, repeat interval, last timestamptz, slip interval, max_runs integer,
    created_at timestamptz, planned_to timestamptz, plan_at timestamptz, next_run_at timestamptz, revision integer, ended_at timestamptz,
    archived text, test text, terms text, refusing text []
);
CREATE TABLE run (
    node text, id uuid, task_id uuid, slot timestamptz, attempt integer, participant integer, scheduling_class text,
    starts_at timestamptz, ends_at timestamptz, state text, reason text, exchange text, decided_at timestamptz,
    displaced_by uuid, started_at timestamptz, over_at timestamptz, measured boolean, result jsonb, freed boolean,
    has_slot boolean
);
CREATE TABLE part (node text, run_id uuid, participant integer, result jsonb, reason text);
CREATE TABLE gap (node text, id uuid, task_id uuid, first_slot timestamptz, last_slot timestamptz);
CREATE TABLE hold (node text, id uuid, held_at timestamptz, expires_at timestamptz);
CREATE TABLE letter (node text, id bigint, kind text, created_at timestamptz);
CREATE TABLE term (
    node text, pool_task uuid, starts_at timestamptz, ends_at timestamptz, over_at timestamptz, seats integer, reason text,
    try_at timestamptz, state text
);
CREATE TABLE seat (
    node text, task_id uuid, pool_task uuid, term timestamptz, of_node text, place integer, lost boolean
);
CREATE TABLE pool_task (
    node text, id uuid, starts timestamptz, repeat interval, last timestamptz, created_at timestamptz
);
CREATE TABLE use (
    node text, id uuid, resource text, amount integer, number integer, starts_at timestamptz, ends_at timestamptz
);
-- Attempts that are known to have been planned, though their lead may have deleted them since.
CREATE TABLE known (node text, task_id uuid, slot timestamptz, attempt integer);
-- What users were told, and what was delivered to files.
CREATE TABLE promised (id uuid, node text, at timestamptz);
CREATE TABLE ended_task (id uuid, node text, at timestamptz);
CREATE TABLE ended_run (id uuid, node text, at timestamptz);
CREATE TABLE line (node text, run_id uuid, state text, result jsonb);

-- ready --
CREATE INDEX ON task (id, node);
CREATE INDEX ON run (id, node);
CREATE INDEX ON run (task_id, slot);
CREATE INDEX ON part (run_id, node);
CREATE INDEX ON line (run_id, node);
CREATE INDEX ON known (task_id, slot);
-- What is promised to happen; runs that are beginning or ending just now change while one looks.
CREATE VIEW coming AS
SELECT run.* FROM run CROSS JOIN round
WHERE
    run.state IN ('booked', 'set-aside') AND run.exchange = 'committed'
    AND run.starts_at > round.now + round.precision;
-- Runs about which nodes may disagree: their time is one that a restored database forgot, or came before its node had asked
-- the others; or it came while the clock of a node was wrong, which is from as long before right_at as that clock told. What
-- began after it was right is nobody's excuse.
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
WHERE
    run.starts_at < stepped.right_at
    AND run.ends_at > stepped.right_at - (stepped.ended - stepped.began) - interval '5 seconds';
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

-- always_overlaps --
-- On no node did an exclusive run share its time with an exclusive or a normal one.
SELECT lived.node, lived.id::text, format('%s from %s, and another is booked for the same time', lived.scheduling_class, lived.starts_at) AS what
FROM (
    SELECT
        occupied.*,
        max(occupied.until) FILTER (WHERE occupied.scheduling_class = 'exclusive') OVER before AS exclusive_until,
        max(occupied.until) FILTER (WHERE occupied.scheduling_class = 'normal') OVER before AS normal_until
    FROM occupied
    WHERE occupied.starts_at < occupied.until
    WINDOW before AS (
        PARTITION BY occupied.node ORDER BY occupied.starts_at, occupied.until, occupied.id
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
) AS lived
WHERE
    lived.scheduling_class = 'exclusive' AND lived.starts_at < greatest(lived.exclusive_until, lived.normal_until)
    OR lived.scheduling_class = 'normal' AND lived.starts_at < lived.exclusive_until

-- always_resources --
-- Never more than its number was taken of a resource: a sum can only be too large where a run begins.
SELECT use.node, use.id::text, format('%s of %s taken of resource %s at %s', sum(other.amount), use.number, use.resource, use.starts_at) AS what
FROM use
INNER JOIN use AS other
    ON
        use.node = other.node AND use.resource = other.resource
        AND other.starts_at <= use.starts_at AND use.starts_at < other.ends_at
GROUP BY use.node, use.id, use.resource, use.number, use.starts_at
HAVING sum(other.amount) > use.number

-- always_old_holds --
-- No hold is older than twice its life.
SELECT hold.node, hold.id::text, format('still holds exchange %s, since %s', hold.id, hold.held_at) AS what
FROM hold CROSS JOIN round
WHERE round.clock > hold.held_at + 2 * (hold.expires_at - hold.held_at) + round.starting

-- always_over_too_early --
-- No run is over, or under way, before its start: by which clock could it be? (Whoever cannot measure says so while the run
-- is prepared, 20 s before.)
SELECT run.node, run.id::text, format('%s before its start at %s: %s', run.state, run.starts_at, run.reason) AS what
FROM run CROSS JOIN round
WHERE
    run.state IN ('running', 'merging', 'finished', 'failed', 'missed')
    AND run.starts_at > round.now + round.precision
    + CASE WHEN run.state IN ('failed', 'merging') THEN interval '20 s' ELSE interval '0' END

-- always_seated_twice --
-- No node has two seats of a term, no seat is given twice, and no term has more seats than were asked for.
SELECT
    seat.node, seat.pool_task::text,
    format('term %s has a node, or a number, twice, or more seats than %s', seat.term, min(term.seats)) AS what
FROM seat INNER JOIN term ON seat.node = term.node AND seat.pool_task = term.pool_task AND seat.term = term.starts_at
WHERE NOT seat.lost
GROUP BY seat.node, seat.pool_task, seat.term
HAVING
    count(*) > count(DISTINCT seat.of_node) OR count(*) > count(DISTINCT seat.place)
    OR bool_or(seat.place < 1 OR seat.place > term.seats)

-- always_blocked_for_nothing --
-- Time that is blocked belongs to an exchange that is held or committed, and a run set aside to a hold.
SELECT run.node, run.id::text, format('%s, its exchange is %s', run.state, coalesce(run.exchange, 'absent')) AS what
FROM run
WHERE
    (run.state = 'booked' AND run.exchange IS DISTINCT FROM 'held' AND run.exchange IS DISTINCT FROM 'committed')
    OR (
        run.state = 'set-aside'
        AND NOT EXISTS (
            SELECT FROM run AS winner
            WHERE
                winner.node = run.node AND winner.id = run.displaced_by
                AND winner.state IN ('booked', 'set-aside') AND winner.exchange = 'held'
        )
    )

-- always_two_of_a_slot --
-- A lead has one run of a slot that lives, or has brought a result.
SELECT run.node, run.task_id::text, format('slot %s has %s runs', run.slot, count(*)) AS what
FROM run INNER JOIN task ON run.node = task.node AND run.task_id = task.id
WHERE task.led_here AND run.has_slot
GROUP BY run.node, run.task_id, run.slot
HAVING count(*) > 1

-- always_surplus --
-- No task has more runs than it may have. (One that was changed may have had more before.)
SELECT task.node, task.id::text, format('%s slots have runs, and it may have %s', count(DISTINCT run.slot), task.max_runs) AS what
FROM task INNER JOIN run ON task.node = run.node AND task.id = run.task_id
WHERE task.led_here AND task.revision = 1 AND run.state NOT IN ('cancelled', 'displaced', 'unplaced', 'waiting')
GROUP BY task.node, task.id, task.max_runs
HAVING count(DISTINCT run.slot) > task.max_runs

-- settled_all_or_none --
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
    )

-- settled_begun_on_all --
-- A run that began somewhere was booked on all. One that began before its lead could reach everybody may lack a
-- participant: they had heard each other for less than twice the hold's life since the decision, or it had been cancelled or
-- displaced meanwhile, or its lead was not there at its start (or its database): nobody could tell the others. Then its lead
-- says why, and does not take it for measured.
SELECT run.node, run.id, format('begun here, absent on %s', other.node)
FROM run
CROSS JOIN round
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
CROSS JOIN unnest(task.participants || task.lead) AS other (node)
LEFT JOIN run AS there ON there.id = run.id AND there.node = other.node
LEFT JOIN run AS led ON led.id = run.id AND led.node = task.lead
WHERE
    run.started_at IS NOT NULL
    AND run.ends_at > round.kept_since
    AND there.id IS NULL
    AND NOT excuses(run.id)
    AND (
        led.reason IS NULL
        OR (
            led.state NOT IN ('cancelled', 'displaced', 'missed')
            AND calm(task.participants || task.lead, run.decided_at, run.starts_at) > 2 * round.hold_life
        )
    )

-- settled_due --
-- A run whose time is over has a result, or a stored reason.
SELECT run.node, run.id, format('%s since %s', run.state, run.ends_at)
FROM run
CROSS JOIN round
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
WHERE
    run.ends_at + CASE WHEN run.state = 'waiting' THEN task.slip ELSE interval '0' END + round.grace < round.now
    AND run.state <> 'finished'
    AND (coalesce(run.reason, '') = '' OR run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging'))

-- settled_slots --
-- Every slot of a task that is neither cancelled nor refused, due or planned already, has a run at its lead, or is in a gap
-- that the lead tells of because it was away. (A task that was changed had other slots before.)
SELECT task.node, task.id, format('nothing for the slot of %s', slot.starts)
FROM task
CROSS JOIN round
CROSS JOIN LATERAL
    generate_series(
        task.starts,
        least(task.last, greatest(task.starts, task.planned_to, round.now)),
        coalesce(task.repeat, interval '1 day')
    ) AS slot (starts)
WHERE
    task.led_here
    AND task.state IN ('active', 'finished')
    AND task.revision = 1
    AND (slot.starts > task.created_at OR task.repeat IS NULL)
    AND (slot.starts <= task.planned_to OR slot.starts + task.duration + task.slip + round.grace < round.now)
    AND NOT EXISTS (SELECT FROM run WHERE run.node = task.node AND run.task_id = task.id AND run.slot = slot.starts)
    AND NOT EXISTS (SELECT FROM known WHERE known.task_id = task.id AND known.slot = slot.starts)
    AND NOT EXISTS (
        SELECT FROM gap
        WHERE gap.node = task.node AND gap.task_id = task.id AND slot.starts BETWEEN gap.first_slot AND gap.last_slot
    )

-- settled_once --
-- No slot has two runs that live or have begun to be measured, but for those that their lead took for failed or missed before
-- it tried again, or has taken for measured since, when the further attempt was cancelled. (A restored lead may have forgotten
-- an attempt after the one it knows.)
SELECT min(run.node), run.task_id, format('slot %s is served by %s', run.slot, array_agg(DISTINCT run.id))
FROM run
WHERE
    (run.state IN ('booked', 'set-aside', 'running', 'merging', 'finished') OR run.measured)
    AND NOT (excuses(run.id) AND NOT EXISTS (SELECT FROM led WHERE led.id = run.id))
    AND NOT EXISTS (SELECT FROM led WHERE led.id = run.id AND led.state IN ('failed', 'missed'))
    AND NOT EXISTS (
        SELECT FROM led INNER JOIN led AS before ON led.node = before.node AND led.task_id = before.task_id AND led.slot = before.slot
        WHERE led.id = run.id AND led.state = 'cancelled' AND before.attempt < led.attempt AND before.state = 'finished'
    )
GROUP BY run.task_id, run.slot
HAVING count(DISTINCT run.id) > 1

-- settled_at_once --
-- No slot was measured by two of its runs at the same time, on whatever nodes.
SELECT later.node, later.id, format('began at %s, while run %s of its slot was measured', later.started_at, run.id)
FROM run
CROSS JOIN round
INNER JOIN run AS later ON later.task_id = run.task_id AND later.slot = run.slot AND later.attempt > run.attempt
WHERE
    run.participant IS NOT NULL AND later.participant IS NOT NULL
    AND later.started_at + round.precision < CASE WHEN run.state = 'running' THEN 'infinity' ELSE run.over_at END
    AND run.started_at IS NOT NULL
    AND NOT excuses(run.id) AND NOT excuses(later.id)

-- settled_displaced --
-- What was displaced is planned again: a later attempt is there, and if it waits, it will be planned. (But not what may have
-- begun before its lead heard of it: no slot is run twice. Where a database was restored only what still has time.)
SELECT run.node, run.id, format('displaced run of slot %s: the last attempt is %s, planned again at %s', run.slot, run.state, task.plan_at)
FROM run
CROSS JOIN round
INNER JOIN task ON task.node = run.node AND task.id = run.task_id AND task.led_here AND task.state = 'active'
WHERE
    (
        run.slot + task.slip > round.now + round.precision
        OR (
            run.state = 'displaced' AND NOT EXISTS (SELECT FROM restored WHERE restored.node = ANY(task.participants || task.lead))
        )
    )
    AND NOT EXISTS (
        SELECT FROM run AS later
        WHERE later.node = run.node AND later.task_id = run.task_id AND later.slot = run.slot AND later.attempt > run.attempt
    )
    AND NOT EXISTS (
        SELECT FROM known
        WHERE known.task_id = run.task_id AND known.slot = run.slot AND known.attempt > run.attempt
    )
    AND (
        (run.state = 'displaced' AND task.revision = 1 AND run.reason NOT LIKE '%so it is not placed again')
        OR (run.state = 'waiting' AND task.plan_at IS NULL)
    )

-- settled_changed --
-- Every node knows a task that goes on in the same revision, state, and terms as its lead, unless it refuses the change, which
-- its lead knows then; and nothing of a paused one is to come.
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
    AND (there.state <> led.state OR NOT there.node = ANY(led.refusing))
UNION ALL
SELECT coming.node, coming.id, 'to come, and its task is paused'
FROM coming
INNER JOIN task AS led ON coming.task_id = led.id
WHERE led.led_here AND led.state = 'paused'

-- settled_promised --
-- Every task whose POST was acknowledged is there.
SELECT promised.node, promised.id, 'acknowledged, and not there'
FROM promised
WHERE
    NOT forgot(promised.node, promised.at)
    AND NOT EXISTS (SELECT FROM task WHERE task.node = promised.node AND task.id = promised.id AND task.led_here)

-- settled_asked_once --
-- One Idempotency-Key made one task, however often it was sent.
SELECT min(task.node), min(task.id::text)::uuid, format('%s made %s tasks', task.reference, count(*))
FROM task
WHERE task.led_here AND task.reference IS NOT NULL
GROUP BY task.reference
HAVING count(*) > 1

-- settled_cancelled_tasks --
-- A task whose cancel was acknowledged is over at its lead and where it was cancelled. (Other participants may have to
-- ask first: see orphans.)
SELECT task.node, task.id, format('cancelled on %s, and %s here', ended_task.node, task.state)
FROM ended_task
INNER JOIN task ON ended_task.id = task.id
WHERE
    task.state IN ('active', 'paused') AND (task.led_here OR task.node = ended_task.node)
    AND NOT forgot(task.node, ended_task.at) AND NOT forgot(ended_task.node, ended_task.at)

-- settled_cancelled_runs --
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
    )

-- settled_forgotten --
-- What is to be planned is planned: no slot within the horizon is long overdue.
SELECT task.node, task.id, format('was to be planned at %s', task.plan_at)
FROM task CROSS JOIN round
WHERE
    task.led_here AND task.state = 'active' AND task.plan_at + round.grace < round.now
    AND task.next_run_at + round.grace < round.now + round.horizon

-- settled_orphans --
-- What a participant takes for open is open at its lead, once everybody had time to ask.
SELECT there.node, there.id, format('%s here, %s at %s', there.state, coalesce(led.state, 'unknown'), there.lead)
FROM task AS there
CROSS JOIN round
LEFT JOIN task AS led ON led.id = there.id AND led.led_here
WHERE
    NOT there.led_here AND there.state IN ('active', 'paused')
    AND round.now > greatest(round.healed_at, there.created_at) + round.asking
    AND (led.id IS NULL OR led.state NOT IN ('active', 'paused'))

-- settled_ended --
-- A task is over at its lead when its last slot is, and its last run.
SELECT task.node, task.id, 'its slots and runs are over, and it is active'
FROM task
CROSS JOIN round
WHERE
    task.led_here AND task.state = 'active'
    AND greatest(
        task.last + task.duration + task.slip,
        (SELECT max(run.ends_at) FROM run WHERE run.node = task.node AND run.task_id = task.id)
    ) + round.grace < round.now
    AND NOT EXISTS (
        SELECT FROM run
        WHERE
            run.node = task.node AND run.task_id = task.id
            AND run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
    )

-- settled_parts --
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
HAVING count(part.result) < cardinality(led.participants)

-- settled_merged --
-- A run is finished with a result, and that is what an idle one is when all of its parts have results; other tests may make
-- no result of them. (Not one whose slot was placed again, because its lead took it back, or its parts did not come in time.)
SELECT led.node, led.id, 'finished without a result'
FROM led
WHERE led.state = 'finished' AND led.result IS NULL
UNION ALL
SELECT led.node, led.id, format('%s, although all parts have results', led.state)
FROM led
INNER JOIN part ON part.node = led.node AND part.run_id = led.id
WHERE
    led.test = 'idle' AND led.state NOT IN ('finished', 'cancelled', 'displaced') AND NOT excuses(led.id)
    AND NOT EXISTS (
        SELECT FROM run AS other
        WHERE other.node = led.node AND other.task_id = led.task_id AND other.slot = led.slot AND other.has_slot
    )
GROUP BY led.node, led.id, led.state, led.participants
HAVING count(part.result) = cardinality(led.participants)

-- settled_alone --
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
    AND (other.state = 'finished' OR coalesce(other.reason, '') = '')

-- settled_after_end --
-- Nothing is measured after its end: where it was cancelled, unless it was prepared already and the look that finds that out
-- was yet to come, and elsewhere once everybody could hear of it.
SELECT run.node, run.id, format('began at %s; its task ended here at %s', run.started_at, task.ended_at)
FROM run
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
CROSS JOIN round
WHERE
    run.measured AND run.started_at > task.ended_at + round.look AND NOT excuses(run.id)
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
        WHEN run.node = over.node THEN run.started_at > over.at + round.look
        ELSE calm(ARRAY[run.node, over.node, over.lead], over.at, run.started_at) > round.told
    END

-- settled_over_too_early --
-- Nor was one that has started since, as far as its node had a clock to tell that.
SELECT run.node, run.id, format('%s at %s, before its start at %s: %s', run.state, run.over_at, run.starts_at, run.reason)
FROM run
CROSS JOIN round
WHERE
    run.state IN ('merging', 'finished', 'failed', 'missed')
    AND run.over_at < run.starts_at - round.precision
    - CASE WHEN run.state IN ('failed', 'merging') THEN interval '20 s' ELSE interval '0' END
    AND NOT EXISTS (
        SELECT FROM stepped
        WHERE
            stepped.node = run.node
            AND run.over_at BETWEEN stepped.began - interval '5 seconds' AND stepped.ended + interval '5 seconds'
    )

-- settled_archived --
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
    OR led.archived = CASE line.state WHEN 'finished' THEN 'failed' ELSE 'succeeded' END

-- settled_in_a_gap --
-- No slot is in a gap although it has a run that is over.
SELECT run.node, run.id, format('%s, and its slot is in gap %s', run.state, gap.id)
FROM gap
INNER JOIN run ON gap.node = run.node AND gap.task_id = run.task_id AND run.slot BETWEEN gap.first_slot AND gap.last_slot
WHERE NOT run.freed AND run.state IN ('finished', 'failed', 'missed', 'cancelled', 'unplaced')

-- settled_delivered --
-- Every message is delivered.
SELECT letter.node, letter.id::text, format('could not deliver message %s (%s) of %s', letter.id, letter.kind, letter.created_at)
FROM letter CROSS JOIN round
WHERE letter.created_at + round.delivery < round.now

-- settled_measured_too_often --
-- No slot of a pool task is measured more often than it has seats, or twice by a node.
SELECT measured.node, measured.pool_task, format('slot %s was measured too often', measured.slot)
FROM (
    SELECT seat.node, seat.pool_task, run.slot, seat.of_node, count(*) AS results
    FROM seat INNER JOIN run ON seat.node = run.node AND seat.task_id = run.task_id
    WHERE run.state = 'finished'
    GROUP BY seat.node, seat.pool_task, run.slot, seat.of_node
) AS measured
GROUP BY measured.node, measured.pool_task, measured.slot
HAVING
    max(measured.results) > 1
    OR sum(measured.results) > (
        SELECT max(term.seats) FROM term WHERE term.node = measured.node AND term.pool_task = measured.pool_task
    )

-- settled_terms --
-- The search for nodes ends with the term, and every empty seat has its reason.
SELECT term.node, term.pool_task, format('term %s has ended, but its node search still runs', term.starts_at)
FROM term CROSS JOIN round
WHERE term.state IN ('active', 'finished', 'unplaced') AND term.over_at + interval '10 minutes' <= round.now AND term.try_at IS NOT NULL
UNION ALL
SELECT term.node, term.pool_task, format('a seat of term %s is empty without a reason', term.starts_at)
FROM term CROSS JOIN round
WHERE
    term.state IN ('active', 'finished', 'unplaced') AND term.over_at + interval '10 minutes' <= round.now
    AND term.reason IS NULL
    AND term.seats > (
        SELECT count(*) FROM seat
        WHERE seat.node = term.node AND seat.pool_task = term.pool_task AND seat.term = term.starts_at AND NOT seat.lost
    )
    AND NOT EXISTS (
        SELECT FROM seat
        WHERE seat.node = term.node AND seat.pool_task = term.pool_task AND seat.term = term.starts_at AND seat.lost
    )

-- settled_in_no_term --
-- Every slot of a pool task lies in a term.
SELECT pool_task.node, pool_task.id, format('slot %s is in no term', slot.starts)
FROM pool_task
CROSS JOIN round
CROSS JOIN LATERAL
    generate_series(
        pool_task.starts, least(pool_task.last, round.healed_at), coalesce(pool_task.repeat, interval '1000 years')
    ) AS slot (starts)
WHERE
    slot.starts > round.kept_since
    AND (slot.starts > pool_task.created_at OR pool_task.repeat IS NULL)
    AND NOT EXISTS (
        SELECT FROM term
        WHERE
            term.node = pool_task.node AND term.pool_task = pool_task.id
            AND slot.starts >= term.starts_at AND slot.starts < term.ends_at
    )
