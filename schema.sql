-- The whole schema of one node: an empty database is set up with this file in one transaction.
-- Core Postgres 15 to 18 only, no extension. Times are UTC; ranges are half-open.
-- Who reads the tables for people, reads the views at the end of this file.

CREATE TABLE schema_version (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE schema_version IS
'One row: the version of this file. A program of another version refuses the database.';
INSERT INTO schema_version (version) VALUES (3);

---------------------------------------------------------------------------------------------------
-- Types
---------------------------------------------------------------------------------------------------

CREATE TYPE scheduling_class AS ENUM ('exclusive', 'normal', 'background', 'background-multi');
COMMENT ON TYPE scheduling_class IS
'exclusive overlaps neither exclusive nor normal; normal overlaps normal; background* overlap all.';

CREATE TYPE task_state AS ENUM (
    'active',     -- is being planned, or has runs to come
    'paused',     -- keeps its schedule but gets no new runs
    'finished',   -- its schedule is over and its last run has ended
    'cancelled',  -- ended by its owner
    'refused'     -- a participant will not take part; "reason" says why
);

CREATE TYPE run_state AS ENUM (
    'waiting',    -- (at the lead) found no time yet; is tried again while its window lasts
    'booked',     -- blocks its time: held while its exchange is held, scheduled once committed
    'set-aside',  -- a hold of higher priority took its time; comes back, or becomes displaced
    'running',    -- this node's part is being prepared or measured
    'merging',    -- (at the lead) its own part is done; waits for the parts of the others
    'finished',   -- measured
    'failed',     -- started, but gave no result; "reason" says why
    'missed',     -- was scheduled, but this node was not there at the time
    'cancelled',  -- taken back by a person before its end
    'displaced',  -- lost its time to a run of higher priority
    'unplaced'    -- (at the lead) its window is over and no time was found
);

CREATE TYPE exchange_state AS ENUM ('held', 'committed', 'released');
CREATE TYPE negotiation_state AS ENUM ('open', 'committed', 'aborted');

---------------------------------------------------------------------------------------------------
-- Nodes and access
---------------------------------------------------------------------------------------------------

CREATE TABLE node (
    identity text PRIMARY KEY,
    name text NOT NULL UNIQUE,
    url text,
    address text NOT NULL,
    is_self boolean NOT NULL DEFAULT false,
    added_at timestamptz NOT NULL,
    seen_at timestamptz,
    unreachable_since timestamptz,
    last_error text,
    busy_until timestamptz,
    shortfall interval
);
COMMENT ON TABLE node IS 'This node and the nodes it knows, each pinned by its public key.';
COMMENT ON COLUMN node.identity IS 'ed25519:<public key>, as written in every signature.';
COMMENT ON COLUMN node.url IS 'Where its API listens; null if nobody reaches it there and it fetches its work itself.';
COMMENT ON COLUMN node.address IS 'The address that measurements to and from it use.';
COMMENT ON COLUMN node.busy_until IS '(Of one that fetches its work) no exclusive run can begin earlier there, by its own word.';
COMMENT ON COLUMN node.shortfall IS '(Of the same) how much of its horizon it could still give to exclusive runs.';
CREATE UNIQUE INDEX node_self ON node (is_self) WHERE is_self;

CREATE TABLE access_token (
    digest text PRIMARY KEY,
    label text NOT NULL,
    created_at timestamptz NOT NULL
);
COMMENT ON TABLE access_token IS 'Bearer tokens of users, as SHA-256; the token itself is not kept.';

CREATE TABLE idempotency (
    key text PRIMARY KEY,
    request_digest text NOT NULL,
    task_id uuid NOT NULL,
    created_at timestamptz NOT NULL
);
COMMENT ON TABLE idempotency IS 'POSTs already served, by Idempotency-Key; kept for a day.';

---------------------------------------------------------------------------------------------------
-- Tasks
---------------------------------------------------------------------------------------------------

CREATE TABLE task (
    id uuid PRIMARY KEY,
    lead text NOT NULL,
    state task_state NOT NULL DEFAULT 'active',
    reason text,
    test text NOT NULL,
    spec jsonb NOT NULL,
    tool text,
    tools text [] NOT NULL DEFAULT '{}',
    scheduling_class scheduling_class NOT NULL,
    duration interval NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    participants jsonb NOT NULL,
    participant smallint,
    addresses jsonb NOT NULL DEFAULT '{}',
    schedule jsonb NOT NULL DEFAULT '{}',
    campaign text,
    reference jsonb,
    lease_epoch bigint NOT NULL DEFAULT 0,
    revision integer NOT NULL DEFAULT 1,
    freeing jsonb,
    paused_at timestamptz,
    created_at timestamptz NOT NULL,
    ended_at timestamptz,
    CHECK (duration > interval '0')
);
COMMENT ON TABLE task IS 'Every task this node leads or takes part in.';
COMMENT ON COLUMN task.lead IS 'Identity of the node that plans it.';
COMMENT ON COLUMN task.participants IS
'In order: [{node, name, url, address, accepted, reason, tools}]; accepted is null until it answered.';
COMMENT ON COLUMN task.participant IS 'This node''s place among them; null where it only leads.';
COMMENT ON COLUMN task.addresses IS 'Host as written in the spec -> address that is measured.';
COMMENT ON COLUMN task.schedule IS 'The schedule as asked for, defaults filled in.';
COMMENT ON COLUMN task.lease_epoch IS 'Highest lease epoch seen for it; older messages are refused.';
COMMENT ON COLUMN task.revision IS 'Counts its changes at the lead: edits, pauses, resumptions. Older introductions and holds are refused.';
COMMENT ON COLUMN task.freeing IS
'(At the lead) which runs the last change gave up, for participants that have not heard of it: {before_epoch, starting, slots_from}.';
COMMENT ON COLUMN task.paused_at IS 'Since when it is paused, if it is.';
CREATE INDEX task_created ON task (created_at DESC, id);

CREATE TABLE planning (
    task_id uuid PRIMARY KEY REFERENCES task ON DELETE CASCADE,
    next_run_at timestamptz,
    plan_at timestamptz,
    planned_to timestamptz,
    failures integer NOT NULL DEFAULT 0,
    waits_for text,
    waits_until timestamptz,
    lease_owner text,
    lease_until timestamptz,
    lease_epoch bigint NOT NULL DEFAULT 0,
    added_at timestamptz NOT NULL
) WITH (fillfactor = 70);
COMMENT ON TABLE planning IS 'The lead''s agenda: one row for each task it leads and still plans.';
COMMENT ON COLUMN planning.next_run_at IS 'Nominal start of the first slot without a run.';
COMMENT ON COLUMN planning.plan_at IS
'When to plan next; null when there is nothing left to plan. While it is leased: the end of the lease, or earlier if
somebody wants it planned again.';
COMMENT ON COLUMN planning.planned_to IS 'Every slot up to and including this one has been asked for.';
COMMENT ON COLUMN planning.added_at IS 'When the task was created: of tasks due at the same time the older goes first.';
COMMENT ON COLUMN planning.failures IS 'Attempts in a row that placed nothing; sets the pause.';
COMMENT ON COLUMN planning.waits_for IS 'Identity of the participant that does not answer, or has too many questions.';
COMMENT ON COLUMN planning.waits_until IS 'It is planned then even if that participant is still silent.';
CREATE INDEX planning_next ON planning (next_run_at, added_at, plan_at, lease_until) WHERE plan_at IS NOT NULL;
CREATE INDEX planning_due ON planning (greatest(plan_at, lease_until)) WHERE plan_at IS NOT NULL;
CREATE INDEX planning_waits ON planning (waits_for) WHERE waits_for IS NOT NULL;

---------------------------------------------------------------------------------------------------
-- Bookings and runs
---------------------------------------------------------------------------------------------------

CREATE TABLE negotiation (
    id uuid PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    state negotiation_state NOT NULL DEFAULT 'open',
    lease_epoch bigint NOT NULL,
    run_ids uuid [] NOT NULL,
    commit_message jsonb,
    opened_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    decided_at timestamptz
);
COMMENT ON TABLE negotiation IS
'The lead''s side of an exchange. Written before the first hold goes out; its state is the decision.';
CREATE INDEX negotiation_task ON negotiation (task_id);
CREATE INDEX negotiation_open ON negotiation (expires_at) WHERE state = 'open';

CREATE TABLE exchange (
    id uuid PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    state exchange_state NOT NULL DEFAULT 'held',
    lease_epoch bigint NOT NULL,
    answer jsonb NOT NULL DEFAULT '{}',
    data jsonb NOT NULL DEFAULT '{}',
    held_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    asked_at timestamptz,
    decided_at timestamptz
);
COMMENT ON TABLE exchange IS 'This node''s side of an exchange: its runs are held, then kept or dropped.';
COMMENT ON COLUMN exchange.answer IS 'What was answered to the hold; a repeat gets the same.';
COMMENT ON COLUMN exchange.data IS 'Participant data of all: place -> {port: …}; complete once committed.';
CREATE INDEX exchange_held ON exchange (expires_at) WHERE state = 'held';
CREATE INDEX exchange_task ON exchange (task_id);

CREATE SEQUENCE lane;
COMMENT ON SEQUENCE lane IS 'Numbers the lanes of normal runs; each run gets one of its own.';

CREATE TABLE run (
    id uuid PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    exchange_id uuid REFERENCES exchange ON DELETE CASCADE,
    slot timestamptz NOT NULL,
    attempt smallint NOT NULL,
    participant smallint,
    scheduling_class scheduling_class NOT NULL,
    priority integer NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    during tstzrange GENERATED ALWAYS AS (tstzrange(starts_at, ends_at)) STORED,
    lane int8range,
    state run_state NOT NULL,
    reason text,
    displaced_by uuid,
    freed boolean NOT NULL DEFAULT false,
    spec jsonb,
    tool text,
    started_at timestamptz,
    finished_at timestamptz,
    process_id integer,
    process_ticks bigint,
    result jsonb,
    summary text,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    CHECK (starts_at < ends_at),
    CHECK (state NOT IN ('failed', 'missed', 'cancelled', 'displaced', 'unplaced', 'waiting') OR reason IS NOT NULL),
    CONSTRAINT run_slot_once UNIQUE (task_id, slot, attempt),
    CONSTRAINT run_no_overlap EXCLUDE USING gist (during WITH &&, lane WITH &&)
    WHERE (state IN ('booked', 'running') AND lane IS NOT NULL)
);
COMMENT ON TABLE run IS
'The run table: every run this node leads or takes part in, with this node''s view of its state.';
COMMENT ON COLUMN run.slot IS 'Nominal start: the slot of the task that this run serves.';
COMMENT ON COLUMN run.attempt IS 'Counts the runs of one slot from 1; another attempt is another run.';
COMMENT ON COLUMN run.participant IS 'This node''s place in the run; null where it only leads.';
COMMENT ON COLUMN run.lane IS
'What it occupies beside its time: everything (exclusive), one number (normal), nothing (background).';
COMMENT ON COLUMN run.reason IS 'Why it did not happen, or what went wrong: one sentence.';
COMMENT ON COLUMN run.freed IS 'Given up because the task was changed: its slot may be planned again, as another attempt.';
COMMENT ON COLUMN run.spec IS 'What it was booked to measure, where the task was edited since; null: what the task says.';
COMMENT ON COLUMN run.tool IS 'The tool it was booked with, where the task was edited since.';
COMMENT ON COLUMN run.started_at IS 'When this node''s part really started.';
COMMENT ON COLUMN run.result IS 'The merged result (at the lead).';
COMMENT ON CONSTRAINT run_no_overlap ON run IS
'Promise 1: two runs whose classes may not overlap never hold the same time.';
CREATE INDEX run_exchange ON run (exchange_id);
CREATE INDEX run_starts ON run (starts_at, id);
CREATE INDEX run_open ON run (starts_at) WHERE state IN ('booked', 'running', 'merging', 'set-aside');
CREATE INDEX run_waiting ON run (task_id) WHERE state = 'waiting';
CREATE INDEX run_set_aside ON run (displaced_by) WHERE state = 'set-aside';

CREATE FUNCTION tell_freed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley', format(
        'freed %s %s',
        (extract(EPOCH FROM OLD.starts_at) * 1000000)::bigint, (extract(EPOCH FROM OLD.ends_at) * 1000000)::bigint
    ));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_freed() IS
'Notifies of the span, in microseconds since 1970, that a run has given back: those who were refused it may want it.';
CREATE TRIGGER run_freed AFTER UPDATE ON run FOR EACH ROW
WHEN (
    old.lane IS NOT NULL AND old.state IN ('booked', 'running')
    AND new.state NOT IN ('booked', 'running', 'set-aside')
)
EXECUTE FUNCTION tell_freed();
CREATE TRIGGER run_dropped AFTER DELETE ON run FOR EACH ROW
WHEN (old.lane IS NOT NULL AND old.state IN ('booked', 'running'))
EXECUTE FUNCTION tell_freed();

CREATE FUNCTION tell_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley', format(
        'changed %s %s',
        (extract(EPOCH FROM NEW.starts_at) * 1000000)::bigint, (extract(EPOCH FROM NEW.ends_at) * 1000000)::bigint
    ));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_changed() IS
'Notifies of the span of a run that was set aside, came back, or got another priority: who keeps it in memory reads it again.';
CREATE TRIGGER run_changed AFTER UPDATE ON run FOR EACH ROW
WHEN (
    new.lane IS NOT NULL
    AND (
        (old.state = 'booked' AND new.state = 'set-aside')
        OR (old.state = 'set-aside' AND new.state = 'booked')
        OR (new.state IN ('booked', 'running') AND new.priority <> old.priority)
    )
)
EXECUTE FUNCTION tell_changed();

CREATE FUNCTION tell_taken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley', concat_ws(
        ' ', 'taken', page.scheduling_class, page.priority,
        encode(
            string_agg(
                timestamptz_send(page.starts_at) || timestamptz_send(page.ends_at), ''
                ORDER BY page.starts_at, page.ends_at
            ), 'hex'
        )
    ))
    FROM (
        SELECT
            scheduling_class, priority, starts_at, ends_at,
            (row_number() OVER (PARTITION BY scheduling_class, priority ORDER BY starts_at, ends_at) - 1) / 240 AS number
        FROM added
        WHERE lane IS NOT NULL AND state IN ('booked', 'running')
    ) AS page -- a notification holds less than 8,000 bytes
    GROUP BY page.scheduling_class, page.priority, page.number;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_taken() IS
'Notifies of the spans that new runs take, by class and priority; each is sixteen bytes, start and end as Postgres sends them.';
CREATE TRIGGER run_taken AFTER INSERT ON run REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION tell_taken();

CREATE TABLE part (
    run_id uuid NOT NULL REFERENCES run ON DELETE CASCADE,
    participant smallint NOT NULL,
    name text NOT NULL,
    result jsonb,
    reason text,
    started_at timestamptz,
    finished_at timestamptz,
    command text [],
    output text,
    PRIMARY KEY (run_id, participant),
    CHECK ((result IS NULL) <> (reason IS NULL))
);
COMMENT ON TABLE part IS
'What each participant measured: a result or a reason. The lead has all parts, the others their own.';
COMMENT ON COLUMN part.output IS 'What the program printed, size-limited; kept where it ran.';

---------------------------------------------------------------------------------------------------
-- Why, and what still has to be told
---------------------------------------------------------------------------------------------------

CREATE TABLE decision (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    exchange_id uuid,
    first_at timestamptz NOT NULL,
    decided_at timestamptz NOT NULL,
    times integer NOT NULL DEFAULT 1,
    outcome text NOT NULL,
    sentence text NOT NULL,
    asked integer NOT NULL,
    placed integer NOT NULL,
    first_slot timestamptz,
    last_slot timestamptz,
    trace jsonb NOT NULL
);
COMMENT ON TABLE decision IS
'Every planning attempt: windows asked, what each participant offered, what stood in the way, the choice.';
COMMENT ON COLUMN decision.times IS
'How often it came out so in a row: first at first_at, last at decided_at; the trace is that of the last time.';
COMMENT ON COLUMN decision.trace IS
'{windows: [[start, end]], offers: [{node, free, free_displacing, obstacles, reason}], choices, refusals}.';
CREATE INDEX decision_task ON decision (task_id, id);

CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node text NOT NULL,
    kind text NOT NULL,
    message jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL,
    last_error text
);
COMMENT ON TABLE outbox IS 'Messages to other nodes that leave until they are acknowledged.';
CREATE INDEX outbox_due ON outbox (next_at);

---------------------------------------------------------------------------------------------------
-- Views for people and for dashboards, readable by the role parley_reader
---------------------------------------------------------------------------------------------------

CREATE VIEW run_known AS
SELECT
    run.id AS run_id,
    run.task_id,
    task.test,
    coalesce(run.tool, task.tool) AS tool,
    run.scheduling_class,
    run.priority,
    CASE
        WHEN run.state <> 'booked' THEN run.state::text
        WHEN exchange.state = 'held' THEN 'held'
        ELSE 'scheduled'
    END AS state,
    run.starts_at,
    run.ends_at,
    run.slot,
    run.attempt,
    run.started_at,
    run.finished_at,
    CASE
        WHEN run.state = 'waiting' AND planning.waits_for IS NOT NULL
            THEN
                format(
                    '%s; asked again at %s', run.reason,
                    to_char(planning.plan_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                )
        ELSE run.reason
    END AS reason,
    run.summary,
    run.result,
    run.displaced_by,
    run.exchange_id,
    run.participant,
    (SELECT array_agg(participant.value ->> 'name' ORDER BY participant.ordinality)
        FROM jsonb_array_elements(task.participants) WITH ORDINALITY AS participant) AS participants,
    lead.name AS lead,
    task.campaign,
    run.changed_at
FROM run
INNER JOIN task ON run.task_id = task.id
LEFT JOIN exchange ON run.exchange_id = exchange.id
LEFT JOIN planning ON run.task_id = planning.task_id AND run.state = 'waiting'
LEFT JOIN node AS lead ON task.lead = lead.identity;
COMMENT ON VIEW run_known IS
'Every run this node knows, with its task and the names of its participants; the others build on it.';

CREATE VIEW run_now AS
SELECT
    *,
    greatest(interval '0', ends_at - now()) AS remaining
FROM run_known
WHERE state IN ('running', 'merging');
COMMENT ON VIEW run_now IS 'What is being measured at this moment, and how long it still takes.';

CREATE VIEW run_upcoming AS
SELECT
    *,
    starts_at - now() AS starts_in
FROM run_known
WHERE state IN ('held', 'scheduled', 'waiting', 'set-aside') AND ends_at > now();
COMMENT ON VIEW run_upcoming IS
'Runs to come, held ones included; "waiting" ones have found no time yet and say why.';

CREATE VIEW run_missed AS
SELECT * FROM run_known
WHERE state IN ('missed', 'failed', 'cancelled', 'displaced', 'unplaced');
COMMENT ON VIEW run_missed IS 'Runs that did not happen or gave no result, each with its reason.';

CREATE VIEW run_history AS
SELECT
    *,
    extract(EPOCH FROM started_at - starts_at) * 1000 AS start_error_ms
FROM run_known
WHERE state IN ('finished', 'failed', 'missed', 'cancelled', 'displaced', 'unplaced');
COMMENT ON VIEW run_history IS
'Runs that are over: result or reason, and how far the start was off the agreed instant.';

CREATE VIEW node_occupancy AS
SELECT
    hour.starts_at,
    class.scheduling_class,
    count(run.id) AS runs,
    coalesce(
        extract(EPOCH FROM (
            SELECT sum(upper(piece) - lower(piece))
            FROM unnest(range_agg(run.during * tstzrange(hour.starts_at, hour.starts_at + interval '1 hour'))) AS piece
        )) / 3600, 0
    )::double precision AS share
FROM generate_series(date_trunc('hour', now()), now() + interval '24 hours', interval '1 hour') AS hour (starts_at)
CROSS JOIN unnest(enum_range(NULL::scheduling_class)) AS class (scheduling_class)
LEFT JOIN run
    ON
        run.during && tstzrange(hour.starts_at, hour.starts_at + interval '1 hour')
        AND run.scheduling_class = class.scheduling_class
        AND run.participant IS NOT NULL
        AND run.state IN ('booked', 'running')
GROUP BY hour.starts_at, class.scheduling_class;
COMMENT ON VIEW node_occupancy IS
'How full this node is: for each of the next 24 hours and each class, the share of time in which a run is booked.';

CREATE VIEW decision_trace AS
SELECT
    decision.id AS decision_id,
    decision.task_id,
    task.test,
    decision.first_at,
    decision.decided_at,
    decision.times,
    decision.outcome,
    decision.sentence,
    decision.asked,
    decision.placed,
    decision.first_slot,
    decision.last_slot,
    decision.exchange_id,
    decision.trace
FROM decision
INNER JOIN task ON decision.task_id = task.id;
COMMENT ON VIEW decision_trace IS 'Why runs were placed where they are, or not at all: every planning attempt.';

-- Roles belong to the whole server: the owner of this database may not be allowed to make one.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader') THEN
        BEGIN
            CREATE ROLE parley_reader NOLOGIN;
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'no right to create the role parley_reader; an administrator can: createuser --no-login parley_reader';
            WHEN duplicate_object OR unique_violation THEN NULL; -- another node of this server made it
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader') THEN
        GRANT SELECT ON run_known, run_now, run_upcoming, run_missed, run_history, node_occupancy, decision_trace
        TO parley_reader;
    END IF;
END
$$;
