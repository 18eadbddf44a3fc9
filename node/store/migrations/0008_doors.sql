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

-- Of sums that are counted anew, only those of their tasks are read, whatever the planner's estimates are.
CREATE OR REPLACE FUNCTION mesh_slots(
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
            AND (first_key IS NULL OR summed.key >= first_key) AND (last_key IS NULL OR summed.key <= last_key)
            AND (creator IS NULL OR summed.requester = creator)
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
        AND (first_key IS NULL OR summed.key >= first_key) AND (last_key IS NULL OR summed.key <= last_key)
        AND (creator IS NULL OR summed.requester = creator)
    UNION ALL
    -- … with their slots instead, …
    SELECT
        looked_at.task_id, slot.key, slot.state, CASE WHEN slot.outcome = 'missing' THEN slot.cause END, 1, slot.slot
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
        AND (first_key IS NULL OR slot.key >= first_key) AND (last_key IS NULL OR slot.key <= last_key)
        AND (creator IS NULL OR slot.requester = creator)
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
