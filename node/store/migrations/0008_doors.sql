-- Bound what others can make a host keep, and keep secrets, keys, and clones apart.
-- Oldest program: 7

-- What the program bounds first, and more narrowly: parts of runs come from other hosts.
ALTER TABLE part ADD CONSTRAINT part_is_bounded CHECK (
    pg_column_size(result) <= 8000000 AND octet_length(reason) <= 20000 AND octet_length(output) <= 200000
    AND octet_length(array_to_string(command, ' ')) <= 1000000
) NOT VALID;
---------------------------------------------------------------------------------------------------
-- Keys that are replaced
---------------------------------------------------------------------------------------------------

ALTER TABLE node ADD COLUMN lineage text;
COMMENT ON COLUMN node.lineage IS
'The identity, and the signed successions of keys that lead from it to the key of today; null if that is still the identity.';
ALTER TABLE node ADD COLUMN followed_at timestamptz [];
ALTER TABLE node ADD COLUMN revocations_told bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN node.followed_at IS '(For other nodes) when each succession in the lineage was heard.';
COMMENT ON COLUMN node.revocations_told IS '(For other nodes) the number of the last revocation that it was told.';

CREATE TABLE revocation (
    key text PRIMARY KEY,
    number bigint GENERATED ALWAYS AS IDENTITY,
    statement text NOT NULL CHECK (octet_length(statement) <= 8192),
    ends_node boolean NOT NULL,
    heard_at timestamptz NOT NULL
);
COMMENT ON TABLE revocation IS 'Keys that count for nothing any more, for good.';
COMMENT ON COLUMN revocation.statement IS 'The revocation, signed by the key itself or by a later one (JWS).';
COMMENT ON COLUMN revocation.ends_node IS 'No key that follows it counts either.';

COMMENT ON COLUMN node.identity IS
'ed25519:<its first public key>, which it is called by for ever; pscheduler://<host> for a host that runs pScheduler, which has no key.';
CREATE TABLE secret (
    name text PRIMARY KEY,
    sealed text NOT NULL,
    hosts text [] NOT NULL,
    users text [] NOT NULL,
    leads text [] NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    CONSTRAINT others_only_to_hosts CHECK (cardinality(hosts) > 0 OR (cardinality(users) = 0 AND cardinality(leads) = 0))
);
COMMENT ON TABLE secret IS 'Secrets of the owner that specs of tests name; tools of this host alone are told their values.';
COMMENT ON COLUMN secret.sealed IS 'The value, sealed by the key of the state directory.';
COMMENT ON COLUMN secret.hosts IS 'The hosts, or HOST:PORT, that it may be sent to; empty means any.';
COMMENT ON COLUMN secret.users IS 'Labels of tokens with the role run whose tasks may use it.';
COMMENT ON COLUMN secret.leads IS 'Identities of other nodes whose tasks may use it.';

-- What is believed of the clock, and by which instant age is judged.
ALTER TABLE generation
ADD COLUMN believed_at timestamptz, ADD COLUMN believed_boot text, ADD COLUMN believed_uptime bigint, ADD COLUMN aged_at timestamptz;
COMMENT ON COLUMN generation.believed_at IS
'The last of these readings that was not in doubt. A process whose first reading is far ahead of it begins and ends nothing before the
clock is confirmed.';
COMMENT ON COLUMN generation.believed_boot IS
'The boot of the host in which this reading was made. While it lasts, the kernel counts the time since then.';
COMMENT ON COLUMN generation.believed_uptime IS 'Microseconds from this boot to this reading.';
COMMENT ON COLUMN generation.aged_at IS
'The instant by which age is judged when something old is deleted: at most the clock, and at most a day later than an hour before.';

-- Copies of a node: the host that its data are on, and where the node goes on of which they are a copy.
ALTER TABLE generation ADD COLUMN host text, ADD COLUMN copy_of text;
COMMENT ON COLUMN generation.host IS 'Digests of what tells the host that it is on from others: machine, network cards, state directory.';
COMMENT ON COLUMN generation.copy_of IS
'Where the node goes on of which this is a copy: it begins nothing here. Empty until it is known that no other answers.';
-- The key by which the node's service seals.
ALTER TABLE generation ADD COLUMN sealed_by text;
COMMENT ON COLUMN generation.sealed_by IS
'The name of the key in the file secrets.key of the node''s service. Its other processes seal and open with no other one.';
-- Tasks of users with the role run are bound by the rules for targets.
ALTER TABLE task ADD COLUMN limit_bound boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN task.limit_bound IS
'(At the lead) whether that user is bound by the rules for targets, as those with the role run are.';

-- Which of a mesh's tasks are asked for stands once.
CREATE FUNCTION is_within(key text, requester text, first_key text, last_key text, creator text) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN (first_key IS NULL OR key >= first_key) AND (last_key IS NULL OR key <= last_key) AND (creator IS NULL OR requester = creator);
COMMENT ON FUNCTION is_within(text, text, text, text, text) IS
'Whether a task of a mesh has one of these keys and is of this user; all are meant where a bound or the user is null.';

-- Of sums that are counted anew, only those of their tasks are read, whatever the planner's estimates are.
CREATE OR REPLACE FUNCTION mesh_slots(
    named text, since timestamptz, until timestamptz, first_key text, last_key text, creator text
) RETURNS TABLE (task_id uuid, key text, state text, cause text, slots bigint, latest timestamptz) LANGUAGE sql STABLE AS $$
    WITH own AS MATERIALIZED ( -- read once, whatever the planner's estimates are
        SELECT mesh_task.task_id, mesh_task.key
        FROM mesh_task
        WHERE
            mesh_task.mesh = named
            AND is_within(mesh_task.key, mesh_task.requester, first_key, last_key, creator)
    ),
    looked_at AS (
        SELECT mesh_recount.task_id, mesh_recount.hour
        FROM mesh_recount INNER JOIN own ON mesh_recount.task_id = own.task_id
        WHERE mesh_recount.hour > since - interval '1 hour' AND mesh_recount.hour < until
        UNION -- a task that was another mesh's, user's or key's when it was summed up; its sums are read by its id, not its mesh
        SELECT mesh_recount.task_id, mesh_recount.hour
        FROM mesh_recount
        CROSS JOIN LATERAL (
            SELECT mesh_day.*
            FROM mesh_day
            WHERE mesh_day.task_id = mesh_recount.task_id AND mesh_day.day = date_bin('1 day', mesh_recount.hour, 'epoch')
            OFFSET 0
        ) AS summed
        WHERE
            summed.mesh = named
            AND mesh_recount.hour > since - interval '1 hour' AND mesh_recount.hour < until
            AND is_within(summed.key, summed.requester, first_key, last_key, creator)
        UNION -- the first hour, if only a part of it is in the span, and the last one, where it has slots after the span
        SELECT mesh_day.task_id, edge.hour
        FROM (
            SELECT
                span.instant, date_bin('1 hour', span.instant, 'epoch') AS hour, date_bin('1 day', span.instant, 'epoch') AS day,
                extract(HOUR FROM span.instant AT TIME ZONE 'UTC')::integer AS number
            FROM (VALUES (since), (until)) AS span (instant)
        ) AS edge
        INNER JOIN mesh_day ON edge.day = mesh_day.day
        WHERE
            edge.hour < edge.instant AND (edge.instant = since OR mesh_day.last_slot >= until)
            AND slots_within(mesh_day.sums, edge.number, edge.number + 1) > 0
            AND mesh_day.mesh = named
            AND is_within(mesh_day.key, mesh_day.requester, first_key, last_key, creator)
    ),
    missed AS (
        SELECT
            mesh_gap.task_id, mesh_gap.key, mesh_gap.reason, mesh_gap.last_slot,
            slots_before(until, mesh_gap.first_slot, mesh_gap.last_slot, mesh_gap.slots)
            - slots_before(since, mesh_gap.first_slot, mesh_gap.last_slot, mesh_gap.slots) AS slots
        FROM mesh_gap
        WHERE
            mesh_gap.mesh = named AND mesh_gap.last_slot >= since AND mesh_gap.first_slot < until
            AND is_within(mesh_gap.key, mesh_gap.requester, first_key, last_key, creator)
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
            AND is_within(mesh_day.key, mesh_day.requester, first_key, last_key, creator)
    ) AS summed_up
    WHERE summed_up.slots > 0
    UNION ALL
    -- … without the hours that are looked at …
    SELECT
        summed.task_id, summed.key, summed.state::text, summed.cause,
        -slots_within(summed.sums, edge.number, edge.number + 1)::bigint, NULL
    FROM looked_at
    CROSS JOIN LATERAL (
        SELECT
            date_bin('1 day', looked_at.hour, 'epoch') AS day,
            (extract(EPOCH FROM looked_at.hour - date_bin('1 day', looked_at.hour, 'epoch')) / 3600)::integer AS number
    ) AS edge
    CROSS JOIN LATERAL (
        SELECT mesh_day.* FROM mesh_day WHERE mesh_day.task_id = looked_at.task_id AND mesh_day.day = edge.day OFFSET 0
    ) AS summed
    WHERE
        summed.mesh = named AND slots_within(summed.sums, edge.number, edge.number + 1) > 0
        AND is_within(summed.key, summed.requester, first_key, last_key, creator)
    UNION ALL
    -- … with their slots instead, …
    SELECT
        looked_at.task_id, slot.key, slot.state, slot.cause, 1, slot.slot
    FROM looked_at
    CROSS JOIN LATERAL (
        SELECT mesh_delivery.*
        FROM mesh_delivery
        WHERE
            mesh_delivery.task_id = looked_at.task_id
            AND mesh_delivery.slot >= greatest(since, looked_at.hour)
            AND mesh_delivery.slot < least(until, looked_at.hour + interval '1 hour')
        OFFSET 0
    ) AS slot
    WHERE
        slot.outcome <> 'open' AND slot.mesh = named
        AND is_within(slot.key, slot.requester, first_key, last_key, creator)
    UNION ALL
    -- … what is open, …
    SELECT open.task_id, open.key, slot.state, NULL, 1, slot.slot
    FROM (
        SELECT DISTINCT own.task_id, own.key, run.slot
        FROM run INNER JOIN own ON run.task_id = own.task_id
        WHERE run.state IN ('waiting', 'booked', 'set-aside', 'running', 'merging') AND run.slot >= since AND run.slot < until
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

-- Postgres 17 alters no table whose row type a function's parsed body uses: a text is parsed when it is called.
CREATE OR REPLACE FUNCTION may_have_begun(run run) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT
        run.started_at IS NOT NULL
        OR (run.participant IS NULL AND (run.state = 'failed' OR coalesce(run.finished_at, run.changed_at) >= run.starts_at))
$$;

-- What is to be thought of a run: judged once, when it ends, and asked for everywhere.
ALTER TABLE run ADD COLUMN judgement text, ADD COLUMN judgement_code text, ADD COLUMN judgement_reason text,
    ADD COLUMN every interval;
COMMENT ON COLUMN run.judgement IS
'(At the lead) what is to be thought of the figures of a finished run, by the thresholds of its task when it ended. See judgement_of().';
COMMENT ON COLUMN run.judgement_code IS 'The code of the reason why it is not good; null if its state says all.';
COMMENT ON COLUMN run.judgement_reason IS 'Why the figures are not good, in a sentence; why there are none is the reason of the run.';
COMMENT ON COLUMN run.every IS
'(At the lead) the mean of the two intervals after it, of a run that is concluded and whose task has a cron schedule. See task_interval().';

CREATE FUNCTION judgement_of(state text, judged text, has_result boolean) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN state = 'finished' THEN coalesce(judged, CASE WHEN has_result THEN 'good' ELSE 'unknown' END)
    WHEN state IN ('failed', 'missed') THEN state
    WHEN state IN ('cancelled', 'displaced', 'unplaced') THEN 'not-planned'
END;
COMMENT ON FUNCTION judgement_of(text, text, boolean) IS
'What is to be thought of a run: good, fair, bad, no-answer, failed, missed, not-planned, or unknown; null while it is open. Judged
is what its lead kept with it (run.judgement); without that a result counts as good, and without a result its lead has it.';

CREATE FUNCTION judgement_at(judgement text, ended_at timestamptz, every interval, instant timestamptz) RETURNS text
LANGUAGE sql STABLE
RETURN CASE WHEN instant > ended_at + 2 * every THEN 'stale' ELSE judgement END;
COMMENT ON FUNCTION judgement_at(text, timestamptz, interval, timestamptz) IS
'What is to be thought at an instant of a run that ended before: nothing any more if it is older than twice the interval of its
task. Without an interval, nothing grows stale.';

CREATE FUNCTION task_interval(task uuid, repeat text, every interval, instant timestamptz) RETURNS interval LANGUAGE sql STABLE
RETURN coalesce(
    repeat::interval,
    every,
    (
        SELECT max(known.slot - known.previous)
        FROM (
            SELECT newest.slot, lag(newest.slot) OVER (ORDER BY newest.slot) AS previous
            FROM (
                SELECT DISTINCT run.slot FROM run WHERE run.task_id = task AND run.slot < instant ORDER BY run.slot DESC LIMIT 10
            ) AS newest
        ) AS known
    )
);
COMMENT ON FUNCTION task_interval(uuid, text, interval, timestamptz) IS
'The interval of a task after a run: that of its schedule, or the one that the run has (run.every), or else the longest one between
its last slots. Null of a task with one slot.';

CREATE FUNCTION newest_outcome(task uuid, repeat text, instant timestamptz)
RETURNS TABLE (run_id uuid, slot timestamptz, ended_at timestamptz, judgement text, code text, reason text)
LANGUAGE sql STABLE AS $$
    SELECT
        newest.id, newest.slot, newest.ends_at,
        judgement_at(newest.judgement, newest.ends_at, task_interval(task, repeat, newest.every, instant), instant),
        coalesce(newest.judgement_code, newest.state), newest.reason
    FROM (
        (
            SELECT
                run.id, run.slot, run.ends_at, run.state::text AS state, run.judgement_code, run.every,
                judgement_of(run.state::text, run.judgement, run.result IS NOT NULL) AS judgement,
                coalesce(run.judgement_reason, run.reason) AS reason
            FROM run
            WHERE
                run.task_id = task AND run.slot <= instant AND NOT run.freed
                AND run.state NOT IN ('waiting', 'booked', 'set-aside', 'running', 'merging')
                AND NOT (
                    run.state = 'displaced'
                    AND EXISTS (
                        SELECT FROM run AS later
                        WHERE later.task_id = task AND later.slot = run.slot AND later.attempt > run.attempt
                    )
                )
            ORDER BY run.slot DESC, (run.state = 'finished') DESC, run.attempt DESC
            LIMIT 1
        )
        UNION ALL
        (
            SELECT
                gap.id, gap.last_slot, gap.last_slot, 'unplaced', NULL, NULL, judgement_of('unplaced', NULL, false), gap.reason
            FROM gap
            WHERE gap.task_id = task AND gap.last_slot <= instant
            ORDER BY gap.first_slot DESC
            LIMIT 1
        )
    ) AS newest
    ORDER BY newest.slot DESC
    LIMIT 1
$$;
COMMENT ON FUNCTION newest_outcome(uuid, text, timestamptz) IS
'What is to be thought of a task at an instant: the judgement of the newest slot that is over, stale if it is old. Slots that were
taken back because the task was edited or paused do not count. No row if none is over.';

DROP VIEW run_now, run_upcoming, run_missed, run_history, interval_history, run_known, run_gap;
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
    run.changed_at,
    judgement_of(run.state::text, run.judgement, run.result IS NOT NULL) AS judgement,
    run.judgement_code,
    coalesce(run.judgement_reason, run.reason) AS judgement_reason
FROM run
INNER JOIN task ON run.task_id = task.id
LEFT JOIN exchange ON run.exchange_id = exchange.id
LEFT JOIN planning ON run.task_id = planning.task_id AND run.state = 'waiting'
LEFT JOIN node AS lead ON task.lead = lead.identity;
COMMENT ON VIEW run_known IS
'Every run that this node knows, with its task and the names of its participants; the other run views are based on it.';

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
    gap.told_at AS changed_at,
    judgement_of('unplaced', NULL, false) AS judgement
FROM gap
INNER JOIN task ON gap.task_id = task.id
LEFT JOIN node AS lead ON task.lead = lead.identity;
COMMENT ON VIEW run_gap IS
'(At the lead) ranges of slots that were never planned in time, for example while no lead was running: one row for each task and
range, with the number of slots. None of these slots has a row of its own in the other views.';

CREATE VIEW run_now AS
SELECT
    *,
    greatest(interval '0', ends_at - now()) AS remaining
FROM run_known
WHERE state IN ('running', 'merging');
COMMENT ON VIEW run_now IS 'Runs that are being measured now, with the remaining time.';

CREATE VIEW run_upcoming AS
SELECT
    *,
    starts_at - now() AS starts_in
FROM run_known
WHERE state IN ('held', 'scheduled', 'waiting', 'set-aside') AND ends_at > now();
COMMENT ON VIEW run_upcoming IS
'Future runs, including held ones; "waiting" runs have no time yet and say why.';

CREATE VIEW run_missed AS
SELECT
    *,
    1::bigint AS slots,
    slot AS last_slot
FROM run_known
WHERE state IN ('missed', 'failed', 'cancelled', 'displaced', 'unplaced')
UNION ALL
SELECT
    run_id, task_id, test, tool, scheduling_class, priority, state, starts_at, ends_at, slot, 0::smallint, NULL, NULL, reason,
    NULL, NULL, NULL, '{}', NULL, NULL, participant, participants, lead, campaign, requester, changed_at, judgement, NULL, reason,
    slots, last_slot
FROM run_gap;
COMMENT ON VIEW run_missed IS
'Runs that did not take place or have no result, each with its reason. A gap is one row for all its slots (see run_gap): to count
slots, sum up the column slots.';

CREATE VIEW run_history AS
SELECT
    *,
    extract(EPOCH FROM started_at - starts_at) * 1000 AS start_error_ms
FROM run_known
WHERE state IN ('finished', 'failed', 'missed', 'cancelled', 'displaced', 'unplaced');
COMMENT ON VIEW run_history IS
'Runs that are over: result or reason, and how late the start was. Slots in gaps have no runs (see run_gap).';

CREATE VIEW interval_history AS
SELECT
    run_known.run_id,
    run_known.task_id,
    run_known.test,
    run_known.participants,
    run_interval.number,
    run_interval.starts_at,
    run_interval.ends_at,
    run_interval.summary,
    run_interval.reason,
    run_interval.result
FROM run_interval
INNER JOIN run_known ON run_interval.run_id = run_known.run_id
WHERE run_interval.merged_at IS NOT NULL;
COMMENT ON VIEW interval_history IS
'The intervals of long runs, while they last and afterwards; gaps have a reason and no result.';

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
    coalesce(served.judgement_reason, served.reason) AS reason,
    CASE
        WHEN served.state <> 'finished' THEN plain_cause(served.reason)
        WHEN served.judgement IN ('bad', 'no-answer') THEN served.judgement
    END AS cause
FROM mesh_task
CROSS JOIN LATERAL (
    SELECT DISTINCT ON (run.slot)
        run.slot,
        run.state,
        run.reason,
        run.judgement,
        run.judgement_reason
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
without times, lengths and ids, for counting), or open. The cause of a delivered slot is its judgement if it is bad or no-answer,
otherwise null. Slots that were taken back before their time, because the task was
edited, paused or cancelled, are not included, nor those in gaps (see mesh_gap).';
COMMENT ON COLUMN mesh_day.cause IS 'The cause as in mesh_delivery; of delivered slots bad, no-answer, or null.';

CREATE TABLE mesh_refusal (
    mesh text NOT NULL,
    key text NOT NULL,
    source text NOT NULL,
    dest text NOT NULL,
    test text NOT NULL,
    reason text NOT NULL,
    requester text,
    told_at timestamptz NOT NULL,
    PRIMARY KEY (mesh, key),
    CHECK (length(mesh) <= 63 AND length(key) <= 400 AND octet_length(reason) <= 4000)
);
COMMENT ON TABLE mesh_refusal IS
'(At the lead) pairs of meshes for which no task was created when one was posted last, each with the reason.';
CREATE INDEX mesh_refusal_told ON mesh_refusal (told_at);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader') THEN
        GRANT SELECT ON run_known, run_now, run_upcoming, run_missed, run_history, interval_history, run_gap TO parley_reader;
    END IF;
END
$$;

-- Alerts on what is measured.
CREATE TABLE alert (
    id uuid PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    rule text NOT NULL,
    run_id uuid NOT NULL,
    raised_at timestamptz NOT NULL,
    over_at timestamptz,
    sentence text NOT NULL,
    value double precision,
    acknowledged_at timestamptz,
    acknowledged_by text,
    silent_until timestamptz
);
COMMENT ON TABLE alert IS 'Rules of tasks that were raised by what was measured, and when they were over.';
COMMENT ON COLUMN alert.rule IS 'The figure with its labels (loss.forward), with :change if it is unusual; or outcome, or path.';
COMMENT ON COLUMN alert.run_id IS 'The run that raised it, which may be deleted by now.';
COMMENT ON COLUMN alert.silent_until IS 'No webhook is told until then; the next alert of this rule begins with it.';
CREATE UNIQUE INDEX alert_raised_once ON alert (task_id, rule) WHERE over_at IS NULL;
CREATE INDEX alert_by_time ON alert (raised_at, id);

CREATE TABLE alert_memory (
    task_id uuid PRIMARY KEY REFERENCES task ON DELETE CASCADE,
    marks jsonb NOT NULL,
    raised text [] NOT NULL,
    paths jsonb NOT NULL
);
COMMENT ON TABLE alert_memory IS
'What decides on the next alert of a task: by rule the marks of its last runs (x hit, . calm, - between), the rules that are
raised, and the last paths of a trace.';

CREATE TABLE alert_usual (
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    figure text NOT NULL,
    hour smallint NOT NULL,
    samples double precision [] NOT NULL,
    last_at timestamptz NOT NULL,
    PRIMARY KEY (task_id, figure, hour)
);
COMMENT ON TABLE alert_usual IS 'Values of a figure at an hour of the day (UTC), the latest last, for rules about what is usual.';

-- What failed after measuring has both.
ALTER TABLE part DROP CONSTRAINT part_check;
ALTER TABLE part ADD CONSTRAINT part_check CHECK (result IS NOT NULL OR reason IS NOT NULL);
COMMENT ON TABLE part IS
'Each participant''s part of a run: a result, or a reason, or both if it failed after measuring. The lead has all parts, the other nodes their own.';

CREATE FUNCTION is_tried_again(task uuid, slot timestamptz, attempt integer, state text) RETURNS boolean LANGUAGE sql STABLE
RETURN state IN ('failed', 'missed') AND EXISTS (
    SELECT FROM run AS later
    WHERE
        later.task_id = task AND later.slot = is_tried_again.slot AND later.attempt > is_tried_again.attempt
        AND NOT later.freed AND later.state NOT IN ('cancelled', 'displaced')
);
COMMENT ON FUNCTION is_tried_again(uuid, timestamptz, integer, text) IS
'Whether a run came to nothing and a later attempt has its slot: people are told of the slot once, by its last attempt.';

---------------------------------------------------------------------------------------------------
-- Options of policy sets
---------------------------------------------------------------------------------------------------

ALTER TABLE pool ADD COLUMN options jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN pool.options IS 'The options of the policy set, by name.';

---------------------------------------------------------------------------------------------------
-- Durations in words
---------------------------------------------------------------------------------------------------

CREATE OR REPLACE FUNCTION plain_cause(reason text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN regexp_replace(
    reason,
    '[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:.]+Z|\mPT?\d[0-9WDHMST.]*\M|(?<=\s)\d[0-9.,]*( (d|h|min|s|ms)\M( \d[0-9.,]* (h|min|s)\M)*)?',
    '…', 'g'
);

ALTER TABLE task ADD COLUMN keepers jsonb NOT NULL DEFAULT '[]';
COMMENT ON COLUMN task.keepers IS
'The nodes that keep the counted resources which its runs take: [{node, name, url, address, accepted, reason, takes: {resource: amount}}].
At its lead all of them, at a keeper only itself. A keeper that is none of the participants holds the runs, and runs nothing.';
CREATE FUNCTION parties(task task) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN task.keepers = '[]' OR task.participants = '[]' THEN task.participants ELSE task.participants || task.keepers END
$$;
COMMENT ON FUNCTION parties(task) IS 'The nodes that book the runs of a task: participants and keepers. A pool task has none of its own.';
ALTER TABLE run ADD COLUMN takes boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN run.takes IS 'Whether it takes of resources that this node keeps (resource_use).';

---------------------------------------------------------------------------------------------------
-- Resources: what this node counts for the whole fleet (node/model/resources.py)
---------------------------------------------------------------------------------------------------

CREATE TABLE resource (
    name text PRIMARY KEY,
    number integer NOT NULL CHECK (number > 0)
);
COMMENT ON TABLE resource IS 'The counted resources that this node keeps, as they were read from the file of its limits.';

CREATE TABLE resource_use (
    run_id uuid NOT NULL REFERENCES run ON DELETE CASCADE,
    resource text NOT NULL,
    amount integer NOT NULL CHECK (amount > 0),
    during tstzrange NOT NULL,
    PRIMARY KEY (run_id, resource)
);
COMMENT ON TABLE resource_use IS
'What runs take of the resources kept here, from the hold until they are over. A hold locks the resources that it takes, in the order
of their names, before anything else that others may lock.';
CREATE INDEX resource_use_during ON resource_use USING gist (during);

CREATE VIEW resource_taken AS
SELECT
    resource_use.resource, resource_use.amount, resource_use.during, run.id AS run_id, run.task_id, run.starts_at, run.ends_at,
    run.priority, run.rank, run.state
FROM resource_use
INNER JOIN run ON resource_use.run_id = run.id
WHERE run.state IN ('booked', 'running', 'merging');
COMMENT ON VIEW resource_taken IS 'What counts of a resource: a run that is set aside for another one takes nothing meanwhile.';

CREATE FUNCTION exceeded_resource(runs uuid []) RETURNS text LANGUAGE sql STABLE
RETURN (
    SELECT instant.resource
    FROM (
        SELECT own.resource, greatest(own.starts_at, other.starts_at) AS at
        FROM resource_taken AS own
        INNER JOIN resource_taken AS other ON own.resource = other.resource AND own.during && other.during
        WHERE own.run_id = ANY(runs)
    ) AS instant
    INNER JOIN resource ON instant.resource = resource.name
    WHERE resource.number < (
        SELECT sum(taken.amount) FROM resource_taken AS taken
        WHERE taken.resource = instant.resource AND taken.during @> instant.at
    )
    LIMIT 1
);
COMMENT ON FUNCTION exceeded_resource(uuid []) IS 'A resource of which more than its number is taken at an instant of one of these runs; null if none is.';

CREATE FUNCTION check_resource_use() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE exceeded text;
BEGIN
    PERFORM FROM resource WHERE name IN (SELECT added.resource FROM added) ORDER BY name FOR NO KEY UPDATE;
    exceeded := exceeded_resource(ARRAY(SELECT DISTINCT added.run_id FROM added));
    IF exceeded IS NOT NULL THEN
        RAISE EXCEPTION 'more is taken of resource % than there is', exceeded
        USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'run_within_resources', TABLE = 'resource_use';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION check_resource_use() IS
'Never more than its number is taken of a resource, whoever books. node/sharing/resources.py explains in advance what this refuses.';
CREATE TRIGGER run_within_resources AFTER INSERT ON resource_use REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION check_resource_use();

CREATE FUNCTION has_resources(run uuid) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM FROM resource
    WHERE name IN (SELECT used.resource FROM resource_use AS used WHERE used.run_id = run)
    ORDER BY name
    FOR NO KEY UPDATE;
    RETURN NOT EXISTS (
        SELECT
        FROM resource_use AS own
        INNER JOIN resource ON own.resource = resource.name
        CROSS JOIN LATERAL (
            SELECT greatest(lower(own.during), taken.starts_at) AS at FROM resource_taken AS taken
            WHERE taken.resource = own.resource AND taken.during && own.during
        ) AS instant
        WHERE
            own.run_id = run
            AND resource.number < own.amount + (
                SELECT sum(taken.amount) FROM resource_taken AS taken
                WHERE taken.resource = own.resource AND taken.during @> instant.at
            )
    );
END
$$;
COMMENT ON FUNCTION has_resources(uuid) IS
'Whether a run that was set aside finds again what it takes. Volatile: of several that come back, each sees those before it.';

CREATE FUNCTION give_back_resources() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM resource_use WHERE run_id = NEW.id;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION give_back_resources() IS 'A run that is over takes nothing any more.';
CREATE TRIGGER run_left_resources AFTER UPDATE ON run FOR EACH ROW
WHEN (
    old.takes AND old.state IN ('booked', 'set-aside', 'running', 'merging')
    AND new.state NOT IN ('booked', 'set-aside', 'running', 'merging')
)
EXECUTE FUNCTION give_back_resources();

CREATE FUNCTION tell_given_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley', format(
        'freed %s %s',
        (extract(EPOCH FROM lower(OLD.during)) * 1000000)::bigint, (extract(EPOCH FROM upper(OLD.during)) * 1000000)::bigint
    ));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_given_back() IS 'Notifies of the span in which there is more of a resource, as tell_freed() does.';
CREATE TRIGGER resource_given_back AFTER DELETE ON resource_use FOR EACH ROW EXECUTE FUNCTION tell_given_back();

CREATE OR REPLACE FUNCTION archive_outcome() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    destination integer;
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.state = NEW.state THEN
        RETURN NULL;
    END IF;
    FOR destination IN
        INSERT INTO archiving (archive_id, destination_id, run_id, edition, outcome, series, created_at, next_at)
        SELECT
            archive.id, destination.id, NEW.id,
            1 + (
                SELECT coalesce(max(earlier.edition), 0) FROM archiving AS earlier
                WHERE
                    earlier.run_id = NEW.id AND earlier.archive_id = archive.id AND earlier.interval_number IS NULL
            ),
            NEW.state, CASE WHEN destination.ordered THEN NEW.task_id END, NEW.changed_at, NEW.changed_at
        FROM task
        INNER JOIN node ON task.lead = node.identity AND node.is_self
        INNER JOIN archive ON archive.task_id IS NULL OR archive.task_id = coalesce(task.parent, task.id)
        INNER JOIN destination ON archive.destination_id = destination.id
        WHERE
            task.id = NEW.task_id AND archive.removed_at IS NULL
            AND archive.runs IN ('all', CASE WHEN NEW.state = 'finished' THEN 'succeeded' ELSE 'failed' END::archived_runs)
        RETURNING destination_id
    LOOP
        PERFORM pg_notify('parley', 'result ' || destination);
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION archive_outcome() IS 'Queues the delivery of a run led here to each archive that wants such a one, in the transaction that ends it.';
DROP FUNCTION deliver_outcome(run);

-- A campaign bounds what it borrows beyond its promise, and what it lends of it.
ALTER TABLE campaign
ADD COLUMN target_borrow integer CHECK (target_borrow >= 0),
ADD COLUMN target_lend numeric(7, 6) CHECK (target_lend >= 0 AND target_lend <= 1),
ADD CONSTRAINT campaign_target_bounds CHECK (
    num_nonnulls(target_seats, target_share) = 1 OR num_nonnulls(target_borrow, target_lend) = 0
);
COMMENT ON COLUMN campaign.target_borrow IS 'Maximum seats that it may hold at once beyond its promise; null if there is none.';
COMMENT ON COLUMN campaign.target_lend IS 'Maximum part of its promise that others may hold while it does not want it; null is all.';

-- A campaign has a budget of seat-time, and hears of what is given back.
ALTER TABLE campaign
ADD COLUMN budget jsonb,
ADD COLUMN bounded boolean NOT NULL GENERATED ALWAYS AS (
    limits <> '{}' OR quotas <> '{}' OR seats_max IS NOT NULL OR budget IS NOT NULL
) STORED;
COMMENT ON COLUMN campaign.bounded IS 'Whether it has a limit on what is booked.';
COMMENT ON COLUMN campaign.budget IS '{seat_hours, since, until}: what it and those below it may have of the time between both; without since from the beginning of the campaign.';
CREATE OR REPLACE FUNCTION tell_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley', format('room %s', holder.name)) FROM (
        WITH RECURSIVE line AS (
            SELECT campaign.* FROM planning
            INNER JOIN campaign ON planning.campaign_id = campaign.id
            WHERE planning.task_id = NEW.task_id
            UNION
            SELECT campaign.* FROM line INNER JOIN campaign ON line.parent_id = campaign.id
        )

        SELECT line.name FROM line
        WHERE line.bounded
        ORDER BY line.parent_depth NULLS FIRST
        LIMIT 1
    ) AS holder;
    PERFORM pg_notify('parley', format(
        'unbooked %s %s',
        (extract(EPOCH FROM freed.starts_at) * 1000000)::bigint, (extract(EPOCH FROM OLD.ends_at) * 1000000)::bigint
    ))
    FROM (SELECT greatest(OLD.starts_at, NEW.changed_at) AS starts_at) AS freed
    WHERE
        OLD.ends_at - freed.starts_at >= interval '10 s' -- less is freed by almost every run that ends
        AND EXISTS (SELECT FROM planning WHERE planning.task_id = NEW.task_id)
        AND EXISTS (
            SELECT FROM term
            WHERE
                term.try_at > NEW.changed_at AND term.tries > 0
                AND term.starts_at < OLD.ends_at AND term.over_at > freed.starts_at
        );
    RETURN NULL;
END
$$;

-- What was given up for lost after a day is delivered once its destination accepts anything again. What was parked before
-- by an older version says so in its error.
ALTER TABLE archiving ADD COLUMN given_up boolean NOT NULL DEFAULT false;
UPDATE archiving SET given_up = true WHERE state = 'parked' AND last_error LIKE 'given up after a day: %';
ALTER TABLE archiving ADD CONSTRAINT archiving_given_up_parked CHECK (state = 'parked' OR NOT given_up);
COMMENT ON COLUMN archiving.given_up IS
'It was parked after a day of attempts: it is delivered once its destination accepts anything again.';
CREATE INDEX archiving_given_up ON archiving (destination_id, number) WHERE given_up;

-- The runs of one task in their order, however many there are of others.
CREATE INDEX run_of_task ON run (task_id, starts_at, id) INCLUDE (state, judgement);

-- Where the node was before stays known to processes that start later.
ALTER TABLE generation ADD COLUMN former_url text;
COMMENT ON COLUMN generation.former_url IS
'Where this node was before it announced the place where it is. A clone finds its original there.';

-- A series may bound how many of its runs in a row give way.
ALTER TABLE run ADD COLUMN spare_priority integer, ADD COLUMN spared boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN run.spare_priority IS
'The priority as which it counts here while it is spared; null for tasks without a budget of displacements.';
COMMENT ON COLUMN run.spared IS
'Whether its task may lose no further run near it: as many as its budget of displacements allows have given way. See spare_runs().';
CREATE FUNCTION standing(run run) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN run.spared THEN greatest(run.priority, run.spare_priority) ELSE run.priority END
$$;
COMMENT ON FUNCTION standing(run) IS 'The priority as which a run counts where it could give way.';

-- Of any so many runs of a series in a row, no more than its budget of displacements says are lost. A run is lost that gave
-- way and was not placed again. Runs count that were booked here, by the order of their slots.
CREATE FUNCTION spare_runs(series uuid []) RETURNS void LANGUAGE sql AS $$
    WITH budget AS (
        SELECT
            task.id, split_part(task.schedule ->> 'displacement_budget', '/', 1)::integer AS runs,
            split_part(task.schedule ->> 'displacement_budget', '/', 2)::integer AS of_runs,
            (
                SELECT min(run.slot) FROM run
                WHERE run.task_id = task.id AND run.state IN ('booked', 'set-aside')
            ) AS first
        FROM task
        WHERE task.id = ANY(series) AND task.schedule ->> 'displacement_budget' IS NOT NULL
    ),

    slot AS (
        SELECT
            budget.id, budget.runs, budget.of_runs, run.slot, row_number() OVER (PARTITION BY budget.id ORDER BY run.slot) AS number,
            bool_or(run.state IN ('displaced', 'set-aside'))
            AND bool_and(run.state IN ('displaced', 'set-aside', 'cancelled', 'waiting', 'unplaced')) AS lost
        FROM budget
        INNER JOIN run ON budget.id = run.task_id
        WHERE
            run.slot >= coalesce(
                (
                    SELECT earlier.slot FROM run AS earlier
                    WHERE earlier.task_id = budget.id AND earlier.slot < budget.first
                    ORDER BY earlier.slot DESC
                    OFFSET 2 * budget.of_runs LIMIT 1
                ), '-infinity'
            )
        GROUP BY budget.id, budget.runs, budget.of_runs, run.slot
    ),

    loss AS (
        SELECT id, number AS first, lead(number, runs - 1) OVER (PARTITION BY id ORDER BY number) AS last
        FROM slot
        WHERE lost
    )

    UPDATE run SET spared = decided.spared
    FROM (
        SELECT
            slot.id, slot.slot, EXISTS (
                SELECT FROM loss
                WHERE
                    loss.id = slot.id AND loss.last IS NOT NULL -- as many as may be lost
                    AND greatest(loss.last, slot.number) - least(loss.first, slot.number) < slot.of_runs
            ) AS spared
        FROM slot
    ) AS decided
    WHERE run.task_id = decided.id AND run.slot = decided.slot AND run.state = 'booked' AND run.spared <> decided.spared
$$;
COMMENT ON FUNCTION spare_runs(uuid []) IS
'Marks the booked runs of these tasks that may not be lost as well, by their budgets of displacements.';
CREATE FUNCTION spare_series() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM spare_runs(ARRAY[NEW.task_id]);
    RETURN NULL;
END
$$;
CREATE TRIGGER run_lost AFTER UPDATE ON run FOR EACH ROW
WHEN (
    new.spare_priority IS NOT NULL
    AND (old.state IN ('displaced', 'set-aside')) <> (new.state IN ('displaced', 'set-aside'))
)
EXECUTE FUNCTION spare_series();
COMMENT ON FUNCTION tell_changed() IS
'Notifies of the span of a run that was set aside, came back, is spared, or got another priority or rank, so that caches read it again.';
DROP TRIGGER run_changed ON run;
CREATE TRIGGER run_changed AFTER UPDATE ON run FOR EACH ROW
WHEN (
    new.lane IS NOT NULL
    AND (
        (old.state = 'booked' AND new.state = 'set-aside')
        OR (old.state = 'set-aside' AND new.state = 'booked')
        OR (new.state IN ('booked', 'running') AND (new.priority, new.rank, new.spared) <> (old.priority, old.rank, old.spared))
    )
)
EXECUTE FUNCTION tell_changed();
CREATE OR REPLACE VIEW resource_taken AS
SELECT
    resource_use.resource, resource_use.amount, resource_use.during, run.id AS run_id, run.task_id, run.starts_at, run.ends_at,
    run.priority, run.rank, run.state, standing(run)
FROM resource_use
INNER JOIN run ON resource_use.run_id = run.id
WHERE run.state IN ('booked', 'running', 'merging');

-- A campaign may have other weights at times of day.
ALTER TABLE campaign ADD COLUMN timed_weights jsonb NOT NULL DEFAULT '[]';
COMMENT ON COLUMN campaign.timed_weights IS 'Other weights at recurring times, {weight, cron, duration, timezone} each; the first that applies counts.';

-- A campaign may be one with those of its name at other leads, which tell what they have used.
ALTER TABLE campaign ADD COLUMN leads text [] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN campaign.leads IS 'Identities of other leads whose campaign of this name counts as one with it.';
ALTER TABLE charge_hour ADD COLUMN lead text NOT NULL DEFAULT '';
ALTER TABLE charge_hour DROP CONSTRAINT charge_hour_pkey;
ALTER TABLE charge_hour ADD PRIMARY KEY (hour, campaign_id, node, lead);
COMMENT ON TABLE charge_hour IS
'The ledger summed by hour; a trigger on charge keeps it up to date. Beside it, what other leads have told of campaigns that they share.';
COMMENT ON COLUMN charge_hour.lead IS 'Identity of the lead that has told it; empty for what was charged here.';
CREATE TABLE campaign_lead (
    campaign_id integer NOT NULL REFERENCES campaign ON DELETE CASCADE,
    lead text NOT NULL,
    told_at timestamptz,
    whole_at timestamptz,
    reason text,
    PRIMARY KEY (campaign_id, lead)
);
COMMENT ON TABLE campaign_lead IS 'What is known of the use of a shared campaign by another lead (at the lead); the hours are in charge_hour.';
COMMENT ON COLUMN campaign_lead.lead IS 'Identity of the lead.';
COMMENT ON COLUMN campaign_lead.told_at IS 'When it last told the hours in progress and to come.';
COMMENT ON COLUMN campaign_lead.whole_at IS 'When it last told all hours that may count.';
COMMENT ON COLUMN campaign_lead.reason IS 'Why it has told nothing since.';
CREATE OR REPLACE FUNCTION sum_up_charges() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO charge_hour (hour, campaign_id, node, amount, bytes)
    SELECT
        begun.hour, made.campaign_id, made.node,
        sum(
            made.weight * extract(
                EPOCH FROM least(made.ends_at, begun.hour + interval '1 hour') - greatest(made.starts_at, begun.hour)
            ) * 1000000
        ),
        sum(CASE WHEN begun.hour <= made.starts_at THEN made.bytes ELSE 0 END)
    FROM made
    CROSS JOIN LATERAL generate_series(
        date_bin('1 hour', made.starts_at, 'epoch'),
        CASE WHEN made.weight = 0 THEN made.starts_at ELSE made.ends_at - interval '1 microsecond' END,
        interval '1 hour'
    ) AS begun (hour)
    GROUP BY begun.hour, made.campaign_id, made.node
    ORDER BY begun.hour, made.campaign_id, made.node -- all transactions lock in the same order
    ON CONFLICT (hour, campaign_id, node, lead) DO UPDATE
    SET amount = charge_hour.amount + excluded.amount, bytes = charge_hour.bytes + excluded.bytes;
    RETURN NULL;
END
$$;
