-- Tell slots that were never planned as ranges instead of one by one.
-- Oldest program: 5

CREATE TYPE uuid_range AS RANGE (subtype = uuid);
COMMENT ON TYPE uuid_range IS 'Ranges of ids: with them a constraint can exclude overlaps of one task, without an extension.';

CREATE TABLE gap (
    id uuid PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    first_slot timestamptz NOT NULL,
    last_slot timestamptz NOT NULL,
    slots bigint NOT NULL CHECK (slots > 0),
    reason text NOT NULL,
    told_at timestamptz NOT NULL,
    CHECK (first_slot <= last_slot),
    CONSTRAINT gap_no_overlap EXCLUDE USING gist (
        uuid_range(task_id, task_id, '[]') WITH &&, tstzrange(first_slot, last_slot, '[]') WITH &&
    )
);
COMMENT ON TABLE gap IS
'(At the lead) slots of a task that were never planned in time, for example during an absence: told as a range, not one by one.
For these slots, runs of earlier attempts count no more.';
COMMENT ON COLUMN gap.slots IS 'The number of slots from the first to the last one, by the schedule of that time.';
COMMENT ON COLUMN gap.told_at IS 'When planning noticed it.';
COMMENT ON CONSTRAINT gap_no_overlap ON gap IS 'No slot of a task is in two gaps. Gaps may be adjacent: each has its own reason.';
CREATE INDEX gap_task ON gap (task_id, first_slot);
CREATE INDEX gap_first ON gap (first_slot, id);

CREATE TABLE lead_absence (
    since timestamptz PRIMARY KEY,
    until timestamptz NOT NULL,
    CHECK (since < until)
);
COMMENT ON TABLE lead_absence IS
'When no process planned the tasks led here, from the last sign of one to the next: it was stopped, or had no database, or the
clock was set forward.';

CREATE FUNCTION absence_sentence(since timestamptz, until timestamptz) RETURNS text LANGUAGE sql STABLE
RETURN format(
    'no lead of this node was heard from %s to %s',
    to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    to_char(until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
);
COMMENT ON FUNCTION absence_sentence(timestamptz, timestamptz) IS 'The reason of a gap because of an absence of all leads.';

CREATE FUNCTION slots_before(instant timestamptz, first_slot timestamptz, last_slot timestamptz, slots bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN instant <= first_slot THEN 0
    WHEN instant > last_slot THEN slots
    ELSE greatest(
        1, least(slots - 1, ceil(extract(EPOCH FROM instant - first_slot) * (slots - 1) / extract(EPOCH FROM last_slot - first_slot)))
    )
END::bigint;
COMMENT ON FUNCTION slots_before(timestamptz, timestamptz, timestamptz, bigint) IS
'How many slots of a gap are before an instant. Exact if they are evenly spaced, as those of "repeat" are; otherwise, as on days
when clocks change, an estimate. Of adjacent spans the differences always add up to the whole.';

CREATE VIEW run_gap AS
SELECT
    gap.id AS run_id,
    gap.task_id,
    task.test,
    task.tool,
    task.scheduling_class,
    task.priority,
    'unplaced'::text AS state,
    gap.first_slot AS starts_at,
    gap.last_slot + task.duration AS ends_at,
    gap.first_slot AS slot,
    gap.last_slot,
    gap.slots,
    format(
        '%s slot%s from %s to %s: %s', gap.slots, CASE WHEN gap.slots > 1 THEN 's' END,
        to_char(gap.first_slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        to_char(gap.last_slot AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), gap.reason
    ) AS reason,
    task.participant,
    (SELECT array_agg(participant.value ->> 'name' ORDER BY participant.ordinality)
        FROM jsonb_array_elements(task.participants) WITH ORDINALITY AS participant) AS participants,
    lead.name AS lead,
    task.campaign,
    task.requester,
    gap.told_at AS changed_at
FROM gap
INNER JOIN task ON gap.task_id = task.id
LEFT JOIN node AS lead ON task.lead = lead.identity;
COMMENT ON VIEW run_gap IS
'(At the lead) ranges of slots that were never planned in time, for example while no lead was running: one row for each task and
range, with the number of slots. None of these slots has a row of its own in the other views.';

CREATE OR REPLACE VIEW run_missed AS
SELECT
    *,
    1::bigint AS slots,
    slot AS last_slot
FROM run_known
WHERE state IN ('missed', 'failed', 'cancelled', 'displaced', 'unplaced')
UNION ALL
SELECT
    run_id, task_id, test, tool, scheduling_class, priority, state, starts_at, ends_at, slot, 0::smallint, NULL, NULL, reason,
    NULL, NULL, NULL, '{}', NULL, NULL, participant, participants, lead, campaign, requester, changed_at, slots, last_slot
FROM run_gap;
COMMENT ON VIEW run_missed IS
'Runs that did not take place or have no result, each with its reason. A gap is one row for all its slots (see run_gap): to count
slots, sum up the column slots.';
COMMENT ON VIEW run_history IS
'Runs that are over: result or reason, and how late the start was. Slots in gaps have no runs (see run_gap).';

CREATE FUNCTION plain_cause(reason text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN regexp_replace(
    reason,
    '[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:.]+Z|\mPT?\d[0-9WDHMST.]*\M|(?<=\s)\d[0-9.,]*', '…', 'g'
);
COMMENT ON FUNCTION plain_cause(text) IS 'A reason without times, lengths and ids, for counting.';

CREATE FUNCTION slot_outcome(state text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN state = 'finished' THEN 'delivered'
    WHEN state IN ('waiting', 'booked', 'running', 'merging', 'set-aside') THEN 'open'
    ELSE 'missing'
END;
COMMENT ON FUNCTION slot_outcome(text) IS 'What a run in this state means for its slot: delivered, missing, or open.';

CREATE OR REPLACE VIEW mesh_delivery AS
SELECT
    mesh_task.mesh,
    mesh_task.key,
    mesh_task.source,
    mesh_task.dest,
    mesh_task.test,
    mesh_task.requester,
    mesh_task.task_id,
    served.slot,
    slot_outcome(served.state::text) AS outcome,
    served.state::text AS state,
    served.reason,
    plain_cause(served.reason) AS cause
FROM mesh_task
CROSS JOIN LATERAL (
    SELECT DISTINCT ON (run.slot)
        run.slot,
        run.state,
        run.reason
    FROM run
    WHERE
        run.task_id = mesh_task.task_id
        AND NOT (run.freed AND run.changed_at <= run.slot)
        AND NOT (
            (run.freed OR run.state = 'displaced') -- no others are in gaps, and few runs need be looked up
            AND EXISTS (
                SELECT FROM gap
                WHERE gap.task_id = run.task_id AND gap.first_slot <= run.slot AND gap.last_slot >= run.slot
            )
        )
        AND (mesh_task.ended_at IS NULL OR mesh_task.state = 'finished' OR run.slot < mesh_task.ended_at)
    ORDER BY run.slot, (run.state = 'finished') DESC, run.attempt DESC
) AS served;
COMMENT ON VIEW mesh_delivery IS
'The outcome of each slot of a mesh''s tasks (at the lead): delivered, missing with its state, reason and cause (the reason
without times, lengths and ids, for counting), or open. Slots that were taken back before their time, because the task was
edited, paused or cancelled, are not included, nor those in gaps (see mesh_gap).';

CREATE VIEW mesh_gap AS
SELECT
    mesh_task.mesh,
    mesh_task.key,
    mesh_task.source,
    mesh_task.dest,
    mesh_task.test,
    mesh_task.requester,
    mesh_task.task_id,
    gap.first_slot,
    gap.last_slot,
    gap.slots,
    gap.reason,
    plain_cause(gap.reason) AS cause
FROM mesh_task
INNER JOIN gap ON mesh_task.task_id = gap.task_id
WHERE mesh_task.ended_at IS NULL OR mesh_task.state = 'finished' OR gap.first_slot < mesh_task.ended_at;
COMMENT ON VIEW mesh_gap IS
'The gaps of a mesh''s tasks (at the lead): all their slots are missing, as "unplaced", and none of them is in mesh_delivery.
slots_before() tells how many of them are before an instant.';

CREATE INDEX run_open_slot ON run (slot) WHERE state IN ('waiting', 'booked', 'set-aside', 'running', 'merging');

CREATE TABLE mesh_day (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    day timestamptz NOT NULL,
    mesh text NOT NULL,
    key text NOT NULL,
    requester text,
    state run_state NOT NULL,
    cause text,
    sums integer [] NOT NULL CHECK (cardinality(sums) = 24),
    last_slot timestamptz NOT NULL
);
ALTER TABLE mesh_day ALTER COLUMN sums SET STORAGE PLAIN; -- read in place
COMMENT ON TABLE mesh_day IS
'The view mesh_delivery summed up, without open slots: for each task of a mesh, day in UTC, state and cause. The hours in
mesh_recount have changed since.';
COMMENT ON COLUMN mesh_day.cause IS 'The cause as in mesh_delivery; null of delivered slots.';
COMMENT ON COLUMN mesh_day.sums IS 'The number of slots before the end of each hour of the day: a running sum, so that two of them tell any span.';
COMMENT ON COLUMN mesh_day.last_slot IS 'No slot that is counted here is later.';
CREATE INDEX mesh_day_mesh ON mesh_day (mesh, day);
CREATE INDEX mesh_day_key ON mesh_day (mesh, key, day);
CREATE INDEX mesh_day_last ON mesh_day (mesh, last_slot);
CREATE INDEX mesh_day_task ON mesh_day (task_id, day);

CREATE TABLE mesh_recount (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id uuid NOT NULL,
    hour timestamptz NOT NULL
);
COMMENT ON TABLE mesh_recount IS
'The hours of tasks whose slots have changed since mesh_day was written: until they are summed up again, their slots are counted
one by one. Only added to by what changes slots, so that transactions do not wait for each other.';

CREATE FUNCTION recount_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO mesh_recount (task_id, hour)
    SELECT mesh_task.task_id, changed.hour
    FROM mesh_task
    CROSS JOIN (
        SELECT date_bin('1 hour', OLD.slot, 'epoch') AS hour UNION SELECT date_bin('1 hour', NEW.slot, 'epoch')
    ) AS changed
    WHERE mesh_task.task_id = NEW.task_id;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION recount_run() IS 'Lets the hour of a run be summed up again, if its task is one of a mesh.';
CREATE TRIGGER run_recounted AFTER UPDATE ON run FOR EACH ROW
WHEN (
    (
        old.state <> new.state OR old.reason IS DISTINCT FROM new.reason OR old.slot <> new.slot OR old.attempt <> new.attempt
        OR old.freed <> new.freed OR (old.freed AND old.changed_at <= old.slot) <> (new.freed AND new.changed_at <= new.slot)
    )
    AND NOT ( -- an open slot that stays open
        old.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
        AND new.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
        AND old.attempt <= 1 AND new.attempt <= 1
    )
)
EXECUTE FUNCTION recount_run();

CREATE FUNCTION recount_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM changed
        WHERE attempt > 1 OR state NOT IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
    ) THEN
        INSERT INTO mesh_recount (task_id, hour)
        SELECT DISTINCT mesh_task.task_id, date_bin('1 hour', changed.slot, 'epoch')
        FROM changed INNER JOIN mesh_task ON changed.task_id = mesh_task.task_id
        WHERE changed.attempt > 1 OR changed.state NOT IN ('waiting', 'booked', 'set-aside', 'running', 'merging');
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION recount_runs() IS
'Lets the hours of new or deleted runs be summed up again, but for first attempts that are open: they are in no sum.';
CREATE TRIGGER run_counted AFTER INSERT ON run REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION recount_runs();
CREATE TRIGGER run_uncounted AFTER DELETE ON run REFERENCING OLD TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION recount_runs();

CREATE FUNCTION recount_gaps() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO mesh_recount (task_id, hour)
    SELECT DISTINCT run.task_id, date_bin('1 hour', run.slot, 'epoch')
    FROM changed
    INNER JOIN mesh_task ON changed.task_id = mesh_task.task_id
    INNER JOIN run ON changed.task_id = run.task_id AND run.slot BETWEEN changed.first_slot AND changed.last_slot;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION recount_gaps() IS 'Lets the hours of the runs in new or deleted gaps be summed up again. The gaps themselves are in no sum.';
CREATE TRIGGER gap_counted AFTER INSERT ON gap REFERENCING NEW TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION recount_gaps();
CREATE TRIGGER gap_uncounted AFTER DELETE ON gap REFERENCING OLD TABLE AS changed FOR EACH STATEMENT
EXECUTE FUNCTION recount_gaps();

CREATE FUNCTION recount_task() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    since timestamptz = '-infinity';
BEGIN
    IF (OLD.reference, OLD.requester, OLD.lead, OLD.parent) IS NOT DISTINCT FROM (NEW.reference, NEW.requester, NEW.lead, NEW.parent) THEN
        since = least(
            CASE WHEN OLD.state <> 'finished' THEN OLD.ended_at END, CASE WHEN NEW.state <> 'finished' THEN NEW.ended_at END
        );
    END IF;
    INSERT INTO mesh_recount (task_id, hour)
    SELECT DISTINCT NEW.id, date_bin('1 hour', run.slot, 'epoch')
    FROM run
    WHERE run.task_id = NEW.id AND run.slot >= since;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION recount_task() IS
'Lets the hours of a task be summed up again: those since its end, after which it owes nothing, or all if it is another mesh''s.';
CREATE TRIGGER task_recounted AFTER UPDATE OF state, ended_at, reference, requester, lead, parent ON task FOR EACH ROW
WHEN (
    (old.reference ? 'mesh' OR new.reference ? 'mesh')
    AND (
        old.reference IS DISTINCT FROM new.reference OR old.requester IS DISTINCT FROM new.requester
        OR old.lead <> new.lead OR old.parent IS DISTINCT FROM new.parent
        OR CASE WHEN old.state <> 'finished' THEN old.ended_at END
        IS DISTINCT FROM CASE WHEN new.state <> 'finished' THEN new.ended_at END
    )
)
EXECUTE FUNCTION recount_task();

CREATE FUNCTION running_sums(hours integer [], slots bigint []) RETURNS integer [] LANGUAGE sql IMMUTABLE
RETURN (
    SELECT array_agg(summed.slots ORDER BY summed.hour)
    FROM (
        SELECT every.hour, coalesce(sum(given.slots), 0)::integer AS slots
        FROM generate_series(0, 23) AS every (hour)
        LEFT JOIN unnest(hours, slots) AS given (hour, slots) ON every.hour >= given.hour
        GROUP BY every.hour
    ) AS summed
);
COMMENT ON FUNCTION running_sums(integer [], bigint []) IS 'Slots by hour of a day, in any order, as in mesh_day.sums.';

CREATE FUNCTION slots_within(sums integer [], from_hour integer, to_hour integer) RETURNS integer LANGUAGE sql IMMUTABLE
RETURN coalesce(sums[to_hour], 0) - coalesce(sums[from_hour], 0);
COMMENT ON FUNCTION slots_within(integer [], integer, integer) IS
'The slots of a row of mesh_day in these hours of the day, the last one excluded; from 0 to 24.';

CREATE FUNCTION mesh_slots(
    named text, since timestamptz, until timestamptz, first_key text, last_key text, creator text
) RETURNS TABLE (task_id uuid, key text, state text, cause text, slots bigint, latest timestamptz) LANGUAGE sql STABLE AS $$
    WITH looked_at AS (
        SELECT mesh_recount.task_id, mesh_recount.hour
        FROM mesh_recount INNER JOIN mesh_task ON mesh_recount.task_id = mesh_task.task_id
        WHERE
            mesh_task.mesh = named
            AND mesh_recount.hour > since - interval '1 hour' AND mesh_recount.hour < until
            AND (first_key IS NULL OR mesh_task.key >= first_key) AND (last_key IS NULL OR mesh_task.key <= last_key)
            AND (creator IS NULL OR mesh_task.requester = creator)
        UNION -- a task that was another mesh's, user's or key's when it was summed up
        SELECT mesh_recount.task_id, mesh_recount.hour
        FROM mesh_recount
        INNER JOIN mesh_day
            ON mesh_recount.task_id = mesh_day.task_id AND date_bin('1 day', mesh_recount.hour, 'epoch') = mesh_day.day
        WHERE
            mesh_day.mesh = named
            AND mesh_recount.hour > since - interval '1 hour' AND mesh_recount.hour < until
            AND (first_key IS NULL OR mesh_day.key >= first_key) AND (last_key IS NULL OR mesh_day.key <= last_key)
            AND (creator IS NULL OR mesh_day.requester = creator)
        UNION -- the first hour, if only a part of it is in the span
        SELECT mesh_day.task_id, edge.hour
        FROM (
            SELECT
                date_bin('1 hour', since, 'epoch') AS hour, date_bin('1 day', since, 'epoch') AS day,
                extract(HOUR FROM since AT TIME ZONE 'UTC')::integer AS number
        ) AS edge
        INNER JOIN mesh_day ON edge.day = mesh_day.day
        WHERE
            edge.hour < since
            AND mesh_day.mesh = named AND slots_within(mesh_day.sums, edge.number, edge.number + 1) > 0
            AND (first_key IS NULL OR mesh_day.key >= first_key) AND (last_key IS NULL OR mesh_day.key <= last_key)
            AND (creator IS NULL OR mesh_day.requester = creator)
        UNION -- the last hour likewise, where it has slots after the span
        SELECT mesh_day.task_id, edge.hour
        FROM (
            SELECT
                date_bin('1 hour', until, 'epoch') AS hour, date_bin('1 day', until, 'epoch') AS day,
                extract(HOUR FROM until AT TIME ZONE 'UTC')::integer AS number
        ) AS edge
        INNER JOIN mesh_day ON edge.day = mesh_day.day
        WHERE
            edge.hour < until
            AND mesh_day.mesh = named AND mesh_day.last_slot >= until
            AND slots_within(mesh_day.sums, edge.number, edge.number + 1) > 0
            AND (first_key IS NULL OR mesh_day.key >= first_key) AND (last_key IS NULL OR mesh_day.key <= last_key)
            AND (creator IS NULL OR mesh_day.requester = creator)
    ),
    missed AS (
        SELECT
            mesh_gap.task_id, mesh_gap.key, mesh_gap.reason, mesh_gap.last_slot,
            slots_before(until, mesh_gap.first_slot, mesh_gap.last_slot, mesh_gap.slots)
            - slots_before(since, mesh_gap.first_slot, mesh_gap.last_slot, mesh_gap.slots) AS slots
        FROM mesh_gap
        WHERE
            mesh_gap.mesh = named AND mesh_gap.last_slot >= since AND mesh_gap.first_slot < until
            AND (first_key IS NULL OR mesh_gap.key >= first_key) AND (last_key IS NULL OR mesh_gap.key <= last_key)
            AND (creator IS NULL OR mesh_gap.requester = creator)
    )

    -- What is summed up …
    SELECT
        summed_up.task_id, summed_up.key, summed_up.state::text, summed_up.cause, summed_up.slots::bigint, summed_up.last_slot
    FROM (
        SELECT
            mesh_day.*,
            slots_within(
                mesh_day.sums,
                CASE
                    WHEN mesh_day.day = date_bin('1 day', since, 'epoch') THEN extract(HOUR FROM since AT TIME ZONE 'UTC')::integer
                    ELSE 0
                END,
                CASE
                    WHEN mesh_day.day = date_bin('1 day', until - interval '1 microsecond', 'epoch')
                        THEN extract(HOUR FROM (until - interval '1 microsecond') AT TIME ZONE 'UTC')::integer + 1
                    ELSE 24
                END
            ) AS slots
        FROM mesh_day
        WHERE
            mesh_day.mesh = named AND mesh_day.day >= date_bin('1 day', since, 'epoch') AND mesh_day.day < until
            AND (first_key IS NULL OR mesh_day.key >= first_key) AND (last_key IS NULL OR mesh_day.key <= last_key)
            AND (creator IS NULL OR mesh_day.requester = creator)
    ) AS summed_up
    WHERE summed_up.slots > 0
    UNION ALL
    -- … without the hours that are looked at …
    SELECT
        mesh_day.task_id, mesh_day.key, mesh_day.state::text, mesh_day.cause,
        -slots_within(mesh_day.sums, edge.number, edge.number + 1)::bigint, NULL
    FROM looked_at
    CROSS JOIN LATERAL (
        SELECT
            date_bin('1 day', looked_at.hour, 'epoch') AS day,
            (extract(EPOCH FROM looked_at.hour - date_bin('1 day', looked_at.hour, 'epoch')) / 3600)::integer AS number
    ) AS edge
    INNER JOIN mesh_day ON looked_at.task_id = mesh_day.task_id AND edge.day = mesh_day.day
    WHERE
        mesh_day.mesh = named AND slots_within(mesh_day.sums, edge.number, edge.number + 1) > 0
        AND (first_key IS NULL OR mesh_day.key >= first_key) AND (last_key IS NULL OR mesh_day.key <= last_key)
        AND (creator IS NULL OR mesh_day.requester = creator)
    UNION ALL
    -- … with their slots instead, …
    SELECT
        looked_at.task_id, slot.key, slot.state, CASE WHEN slot.outcome = 'missing' THEN slot.cause END, 1, slot.slot
    FROM looked_at
    CROSS JOIN LATERAL (
        SELECT mesh_delivery.*
        FROM mesh_delivery
        WHERE
            mesh_delivery.task_id = looked_at.task_id AND mesh_delivery.mesh = named
            AND (first_key IS NULL OR mesh_delivery.key >= first_key) AND (last_key IS NULL OR mesh_delivery.key <= last_key)
            AND (creator IS NULL OR mesh_delivery.requester = creator)
            AND mesh_delivery.slot >= greatest(since, looked_at.hour)
            AND mesh_delivery.slot < least(until, looked_at.hour + interval '1 hour')
        OFFSET 0
    ) AS slot
    WHERE slot.outcome <> 'open'
    UNION ALL
    -- … what is open, …
    SELECT open.task_id, open.key, slot.state, NULL, 1, slot.slot
    FROM (
        SELECT DISTINCT mesh_task.task_id, mesh_task.key, run.slot
        FROM run INNER JOIN mesh_task ON run.task_id = mesh_task.task_id
        WHERE
            run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging') AND run.slot >= since AND run.slot < until
            AND mesh_task.mesh = named
            AND (first_key IS NULL OR mesh_task.key >= first_key) AND (last_key IS NULL OR mesh_task.key <= last_key)
            AND (creator IS NULL OR mesh_task.requester = creator)
    ) AS open
    CROSS JOIN LATERAL (
        SELECT mesh_delivery.* FROM mesh_delivery WHERE mesh_delivery.task_id = open.task_id AND mesh_delivery.slot = open.slot OFFSET 0
    ) AS slot
    WHERE slot.outcome = 'open'
    UNION ALL
    -- … and the gaps: each reason is shortened once.
    SELECT missed.task_id, missed.key, 'unplaced', shortened.cause, missed.slots, missed.last_slot
    FROM missed
    INNER JOIN (
        SELECT reasons.reason, plain_cause(reasons.reason) AS cause FROM (SELECT DISTINCT missed.reason FROM missed) AS reasons
    ) AS shortened ON missed.reason = shortened.reason
    WHERE missed.slots > 0
$$;
COMMENT ON FUNCTION mesh_slots(text, timestamptz, timestamptz, text, text, text) IS
'The slots of a mesh''s tasks from one instant to another, as mesh_delivery and mesh_gap tell them, as terms of a sum by task, state
and cause. Whole hours are read from mesh_day, those in mesh_recount and parts of hours slot by slot. All keys if the first
and the last one are null, the tasks of all users if the creator is.';

INSERT INTO mesh_day (task_id, day, mesh, key, requester, state, cause, sums, last_slot)
SELECT
    counted.task_id, counted.day, counted.mesh, counted.key, counted.requester, counted.state::run_state, counted.cause,
    running_sums(array_agg(counted.hour), array_agg(counted.slots)), max(counted.last_slot)
FROM (
    SELECT
        task_id, mesh, key, requester, state,
        CASE WHEN outcome = 'missing' THEN cause END AS cause,
        date_bin('1 day', slot, 'epoch') AS day,
        (extract(EPOCH FROM date_bin('1 hour', slot, 'epoch') - date_bin('1 day', slot, 'epoch')) / 3600)::integer AS hour,
        count(*) AS slots,
        max(slot) AS last_slot
    FROM mesh_delivery
    WHERE outcome <> 'open'
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
) AS counted
GROUP BY counted.task_id, counted.day, counted.mesh, counted.key, counted.requester, counted.state, counted.cause;

ALTER TABLE lead_process
    ADD COLUMN started_at timestamptz,
    ADD COLUMN stopped_at timestamptz,
    ADD COLUMN version text,
    ADD COLUMN workers integer,
    ADD COLUMN takeovers bigint NOT NULL DEFAULT 0,
    ADD COLUMN took_over_at timestamptz,
    ADD COLUMN figures text;
COMMENT ON COLUMN lead_process.stopped_at IS 'When it was told to stop; null while it works, and if it was killed.';
COMMENT ON COLUMN lead_process.takeovers IS 'Number of tasks that it took over from other processes whose leases had run out.';
COMMENT ON COLUMN lead_process.figures IS 'What it has counted and timed since its start, in the text format of Prometheus.';

ALTER TABLE generation ADD COLUMN successor text;
COMMENT ON COLUMN generation.successor IS
'A later announcement of this node, signed with its key: it goes on at another host, and begins nothing here any more.';

ALTER TABLE node ADD COLUMN announcement text;
COMMENT ON COLUMN node.announcement IS 'The latest statement where it is, signed with its key (JWS).';

CREATE TABLE webhook (
    name text PRIMARY KEY,
    url text NOT NULL,
    secret text NOT NULL,
    events text [] NOT NULL,
    failures integer NOT NULL,
    mesh text,
    percent double precision NOT NULL,
    span interval NOT NULL,
    created_at timestamptz NOT NULL,
    delivered_at timestamptz,
    last_error text
);
COMMENT ON TABLE webhook IS 'Addresses of the owner that are told when something is wrong; their messages wait in the outbox.';
COMMENT ON COLUMN webhook.failures IS 'Number of failed runs in a row after which a task is told of.';
COMMENT ON COLUMN webhook.percent IS 'The part of what was due in the last span that a mesh has to deliver.';

CREATE TABLE webhook_told (
    webhook text NOT NULL REFERENCES webhook ON DELETE CASCADE,
    event text NOT NULL,
    subject text NOT NULL,
    since timestamptz NOT NULL,
    PRIMARY KEY (webhook, event, subject)
);
COMMENT ON TABLE webhook_told IS 'What a webhook was told of, and not yet that it is over: the node, task or mesh.';

COMMENT ON COLUMN run.rank IS
'Whom it displaces before priorities are compared: 0 for tasks of this host, -1 for those of other nodes after them, 1 for what gives way to nobody.';

COMMENT ON FUNCTION tell_changed() IS
'Notifies of the span of a run that was set aside, came back, or got another priority or rank, so that caches read it again.';
DROP TRIGGER run_changed ON run;
CREATE TRIGGER run_changed AFTER UPDATE ON run FOR EACH ROW
WHEN (
    new.lane IS NOT NULL
    AND (
        (old.state = 'booked' AND new.state = 'set-aside')
        OR (old.state = 'set-aside' AND new.state = 'booked')
        OR (new.state IN ('booked', 'running') AND (new.priority, new.rank) <> (old.priority, old.rank))
    )
)
EXECUTE FUNCTION tell_changed();

CREATE TABLE pscheduler_run (
    run_id uuid PRIMARY KEY REFERENCES run ON DELETE CASCADE,
    part_data jsonb NOT NULL
);
COMMENT ON TABLE pscheduler_run IS 'What leads from outside have told with their commits: the data of all participants, in their order.';

CREATE FUNCTION lead_name(name text, identity text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN coalesce(name, 'pScheduler at ' || substring(identity FROM '^pscheduler:([^/].*)$'));
COMMENT ON FUNCTION lead_name(text, text) IS
'The lead of a task for people: the name of a node, or the address of one of pScheduler, which has no key. Null if it is unknown.';

CREATE OR REPLACE VIEW run_known AS
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
    run.verdict,
    run.verdict_reasons,
    run.displaced_by,
    run.exchange_id,
    run.participant,
    (SELECT array_agg(participant.value ->> 'name' ORDER BY participant.ordinality)
        FROM jsonb_array_elements(task.participants) WITH ORDINALITY AS participant) AS participants,
    lead_name(lead.name, task.lead) AS lead,
    task.campaign,
    task.requester,
    run.changed_at
FROM run
INNER JOIN task ON run.task_id = task.id
LEFT JOIN exchange ON run.exchange_id = exchange.id
LEFT JOIN planning ON run.task_id = planning.task_id AND run.state = 'waiting'
LEFT JOIN node AS lead ON task.lead = lead.identity;
COMMENT ON COLUMN node.identity IS
'ed25519:<public key>, as written in every signature; pscheduler://<host> for a host that runs pScheduler, which has no key.';

CREATE TABLE pscheduler_membership (
    task_there uuid PRIMARY KEY,
    task_id uuid NOT NULL,
    node text NOT NULL,
    revision integer NOT NULL,
    attempt smallint NOT NULL,
    key text NOT NULL,
    test text NOT NULL,
    spec jsonb NOT NULL,
    test_there jsonb NOT NULL,
    participant smallint NOT NULL,
    tool text NOT NULL,
    state text NOT NULL CHECK (state IN ('posting', 'standing', 'lost', 'ending')),
    duration interval,
    written_at timestamptz NOT NULL,
    UNIQUE (task_id, node, revision, attempt)
);
COMMENT ON TABLE pscheduler_membership IS
'Tasks led here, as they were posted to hosts that run pScheduler: a revision is a task of its own there.';
COMMENT ON COLUMN pscheduler_membership.node IS 'The host, by its identity. The row stays if the node is removed, until its task there has ended.';
COMMENT ON COLUMN pscheduler_membership.attempt IS 'Counts the tasks of a revision: a task that was deleted there cannot be posted again.';
COMMENT ON COLUMN pscheduler_membership.key IS 'Whoever has it may change the task there.';
COMMENT ON COLUMN pscheduler_membership.test_there IS 'The test with its spec in the words of the host.';
COMMENT ON COLUMN pscheduler_membership.participant IS
'The place of the host; 0 if it measures alone, so that it leads each run as a task of its own.';
COMMENT ON COLUMN pscheduler_membership.tool IS 'Name of the tool there; empty if it measures alone.';
COMMENT ON COLUMN pscheduler_membership.state IS
'posting: written before it is sent; lost: the host does not know it any more; ending: it is to be deleted there.';
COMMENT ON COLUMN pscheduler_membership.duration IS 'How long the host books for a run.';

CREATE TABLE pscheduler_booking (
    run_there uuid PRIMARY KEY,
    task_there uuid NOT NULL REFERENCES pscheduler_membership,
    run_id uuid NOT NULL,
    exchange uuid NOT NULL,
    slot timestamptz NOT NULL,
    lease_epoch bigint NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    state text NOT NULL CHECK (state IN ('booking', 'held', 'kept', 'begun', 'lost', 'dropping')),
    data jsonb NOT NULL DEFAULT '{}',
    reason text,
    next_at timestamptz NOT NULL
);
COMMENT ON TABLE pscheduler_booking IS 'Runs as they are booked on hosts that run pScheduler, from before the request until their results came.';
COMMENT ON COLUMN pscheduler_booking.ends_at IS 'The end of the booking there, which is longer than the run.';
COMMENT ON COLUMN pscheduler_booking.state IS
'booking: written before the request; held: booked there, not decided here; kept: decided; begun: looked at shortly before its start;
lost: the host took it away; dropping: it is to be deleted there.';
COMMENT ON COLUMN pscheduler_booking.data IS 'The participant data of the host.';
COMMENT ON COLUMN pscheduler_booking.next_at IS 'When to look at it next.';
CREATE INDEX pscheduler_booking_due ON pscheduler_booking (next_at);
CREATE INDEX pscheduler_booking_exchange ON pscheduler_booking (exchange);
CREATE INDEX pscheduler_booking_run ON pscheduler_booking (run_id);
CREATE INDEX pscheduler_booking_task ON pscheduler_booking (task_there);

-- The longest run tells how long before a span the first run that reaches into it may have begun.
CREATE INDEX run_length ON run ((ends_at - starts_at));

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader') THEN
        GRANT SELECT ON run_gap, mesh_gap TO parley_reader;
    END IF;
END
$$;

ALTER TABLE archive ADD COLUMN form jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN archive.form IS
'{format, ttl, note, uri_host}, those that are set: the form of the documents, and how long after the end of a run they are sent.';
COMMENT ON COLUMN archive.transform IS
'{jmespath} or {jq}, and perhaps {raw}: produces the document to deliver; nothing is delivered if it has no output.';

CREATE TABLE pscheduler_task (
    task_id uuid PRIMARY KEY REFERENCES task ON DELETE CASCADE,
    document jsonb,
    secret jsonb,
    detail jsonb NOT NULL,
    participant smallint NOT NULL,
    key text,
    requester text NOT NULL
);
COMMENT ON TABLE pscheduler_task IS 'Tasks that were posted in the form of pScheduler, by its clients and nodes.';
COMMENT ON COLUMN pscheduler_task.document IS
'As it was posted: what is given back, so that a client recognises it. Null once the task was edited by other means.';
COMMENT ON COLUMN pscheduler_task.secret IS 'The document with its private members, which are null in the other one; null if it has none.';
COMMENT ON COLUMN pscheduler_task.detail IS 'The facts about it that do not change, as pScheduler tells them.';
COMMENT ON COLUMN pscheduler_task.participant IS 'This node''s number in it: 0 if it was posted to be led here.';
COMMENT ON COLUMN pscheduler_task.key IS 'Who knows it may end the task, from everywhere; null if there is none.';
COMMENT ON COLUMN pscheduler_task.requester IS 'The address from which it was posted.';
CREATE INDEX pscheduler_task_document ON pscheduler_task USING gin (document jsonb_path_ops);

CREATE FUNCTION forget_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE pscheduler_task SET document = NULL, secret = NULL WHERE task_id = NEW.id AND document IS NOT NULL;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION forget_document() IS 'A task that was edited is no longer what was posted.';
CREATE TRIGGER task_edited AFTER UPDATE OF spec, tools, schedule, priority, reference ON task FOR EACH ROW
WHEN (
    old.spec IS DISTINCT FROM new.spec OR old.tools IS DISTINCT FROM new.tools
    OR old.schedule IS DISTINCT FROM new.schedule OR old.priority IS DISTINCT FROM new.priority
    OR old.reference IS DISTINCT FROM new.reference
)
EXECUTE FUNCTION forget_document();
