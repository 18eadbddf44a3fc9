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
    CASE
        WHEN served.state = 'finished' THEN 'delivered'
        WHEN served.state IN ('waiting', 'booked', 'running', 'merging', 'set-aside') THEN 'open'
        ELSE 'missing'
    END AS outcome,
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

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader') THEN
        GRANT SELECT ON run_gap, mesh_gap TO parley_reader;
    END IF;
END
$$;
