-- The schema of a node's database. An empty database is set up with this file in one transaction.
-- Core Postgres 15 to 18 only, no extension. Times are UTC; ranges are half-open.
-- Tools and dashboards should use the views at the end of this file, not the tables.

CREATE TABLE schema_version (
    version integer PRIMARY KEY,
    digest text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    migration text,
    oldest_program integer NOT NULL
);
COMMENT ON TABLE schema_version IS
'The version in which the database was set up, and each that it was migrated to. The last row tells which programs may use it.';
COMMENT ON COLUMN schema_version.digest IS
'SHA-256 of the schema.sql of the program that did it, without comments and spacing.';
COMMENT ON COLUMN schema_version.migration IS
'SHA-256 of the migration''s statements, likewise; null where the database was set up.';
COMMENT ON COLUMN schema_version.oldest_program IS
'Programs whose schema has this version or a later one may use the database.';

CREATE TABLE generation (
    id uuid NOT NULL,
    place text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    marked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    clock_at timestamptz,
    one_row boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    successor text,
    believed_at timestamptz,
    believed_boot text,
    believed_uptime bigint,
    aged_at timestamptz,
    host text,
    copy_of text,
    sealed_by text,
    former_url text
);
COMMENT ON TABLE generation IS
'One row: the name of this history of the data. It is made anew when the database was restored from a backup, so that what is
asked of other nodes from then on has other names than what was asked after the backup.';
COMMENT ON COLUMN generation.place IS
'Server with its time line, database, and table in which it was made. A restored copy is in another place.';
COMMENT ON COLUMN generation.successor IS
'A later announcement of this node, signed with its key: it goes on at another host, and begins nothing here any more.';
COMMENT ON COLUMN generation.host IS 'Digests of what tells the host that it is on from others: machine, network cards, state directory.';
COMMENT ON COLUMN generation.sealed_by IS
'The name of the key in the file secrets.key of the node''s service. Its other processes seal and open with no other one.';
COMMENT ON COLUMN generation.copy_of IS
'Where the node goes on of which this is a copy: it begins nothing here. Empty until it is known that no other answers.';
COMMENT ON COLUMN generation.former_url IS
'Where this node was before it announced the place where it is. A clone finds its original there.';
COMMENT ON COLUMN generation.marked_at IS
'Raised every minute, at most up to the clock, and copied to a file and to other nodes. If they have a later one, the database
went back to an earlier state.';
COMMENT ON COLUMN generation.clock_at IS
'What the clock of this node said last. If it says less now, it was set back, and what it chose when it was ahead is repaired.';
COMMENT ON COLUMN generation.believed_at IS
'The last of these readings that was not in doubt. A process whose first reading is far ahead of it begins and ends nothing before the
clock is confirmed.';
COMMENT ON COLUMN generation.believed_boot IS
'The boot of the host in which this reading was made. While it lasts, the kernel counts the time since then.';
COMMENT ON COLUMN generation.believed_uptime IS 'Microseconds from this boot to this reading.';
COMMENT ON COLUMN generation.aged_at IS
'The instant by which age is judged when something old is deleted: at most the clock, and at most a day later than an hour before.';

---------------------------------------------------------------------------------------------------
-- Types
---------------------------------------------------------------------------------------------------

CREATE TYPE scheduling_class AS ENUM ('exclusive', 'normal', 'background', 'background-multi');
COMMENT ON TYPE scheduling_class IS
'exclusive overlaps neither exclusive nor normal; normal overlaps normal; background* overlap all.';

CREATE TYPE task_state AS ENUM (
    'active',     -- is being planned, or has future runs
    'paused',     -- keeps its schedule but gets no new runs
    'finished',   -- its schedule is over and its last run has ended
    'cancelled',  -- ended by its owner
    'refused',    -- a participant refuses to take part; "reason" says why
    'unplaced'    -- its time is over and no node ever had a seat of it; "reason" says why
);

CREATE TYPE run_state AS ENUM (
    'waiting',    -- (at the lead) has no time yet; retried while its window lasts
    'booked',     -- occupies its time: shown as held while its exchange is held, scheduled once committed
    'set-aside',  -- a hold of higher priority took its time; comes back, or becomes displaced
    'running',    -- this node's part is being prepared or measured
    'merging',    -- (at the lead) its own part has ended; waits for the parts of the others
    'finished',   -- measured
    'failed',     -- started, but has no result; "reason" says why
    'missed',     -- was scheduled, but this node was down at the time, or too late to begin its part
    'cancelled',  -- taken back before its end, by a person or because of the run that it follows
    'displaced',  -- lost its time to a run of higher priority
    'unplaced'    -- (at the lead) its window ended before a time was found
);

CREATE TYPE reservation_kind AS ENUM ('maintenance', 'demo', 'quiet');
CREATE TYPE exchange_state AS ENUM ('held', 'committed', 'released');
CREATE TYPE negotiation_state AS ENUM ('open', 'committed', 'aborted');

CREATE TYPE campaign_state AS ENUM (
    'active',     -- accepts tasks
    'closed'      -- accepts no new tasks; existing ones continue
);

CREATE TYPE charge_cause AS ENUM (
    'booked',     -- a run was committed
    'unused',     -- it ended early, was cancelled, displaced or missed: the rest is refunded
    'measured',   -- its result says what it has moved: the difference from what was expected
    'moved'       -- its task was moved to another campaign: refunded to the old one, charged to the new one
);

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
    heard_at timestamptz,
    unreachable_since timestamptz,
    last_error text,
    busy_until timestamptz,
    shortfall interval,
    attributes jsonb NOT NULL DEFAULT '{}',
    set_attributes jsonb NOT NULL DEFAULT '{}',
    lanes smallint NOT NULL DEFAULT 8 CHECK (lanes BETWEEN 1 AND 1000),
    marked_at timestamptz,
    uncompared boolean NOT NULL DEFAULT false,
    pardoned_at timestamptz,
    announcement text,
    lineage text,
    followed_at timestamptz [],
    revocations_told bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE node IS 'This node and the nodes it knows, each pinned by its public key.';
COMMENT ON COLUMN node.identity IS
'ed25519:<its first public key>, which it is called by for ever; pscheduler://<host> for a host that runs pScheduler, which has no key.';
COMMENT ON COLUMN node.url IS 'URL of its API; null if no other node can reach it, so that it fetches its work.';
COMMENT ON COLUMN node.address IS 'The address that measurements to and from it use.';
COMMENT ON COLUMN node.seen_at IS 'When it answered last, as anybody can who reaches it.';
COMMENT ON COLUMN node.heard_at IS
'When it last sent or answered a signed request, to the minute. The tasks that it leads end here if that is long ago.';
COMMENT ON COLUMN node.busy_until IS 'The end of its bookings in a row from now on, as it told last: the earliest start of an exclusive run there.';
COMMENT ON COLUMN node.shortfall IS 'Its free time for exclusive runs up to its horizon, as it told last.';
COMMENT ON COLUMN node.attributes IS 'Its attributes by name: text, numbers, true or false. Pools are predicates over these.';
COMMENT ON COLUMN node.set_attributes IS '(For this node only) the attributes that were set with "parley node set".';
COMMENT ON COLUMN node.lanes IS 'This many concurrent normal runs are charged like one exclusive run.';
COMMENT ON COLUMN node.marked_at IS '(For other nodes) the latest mark of its database that it has told (see generation.marked_at).';
COMMENT ON COLUMN node.uncompared IS
'(For other nodes) this database was restored, and has not been compared with that node since: it may not know what is over.';
COMMENT ON COLUMN node.pardoned_at IS 'Runs that failed there before this do not count against it.';
COMMENT ON COLUMN node.lineage IS
'The identity, and the signed successions of keys that lead from it to the key of today; null if that is still the identity.';
COMMENT ON COLUMN node.followed_at IS '(For other nodes) when each succession in the lineage was heard.';
COMMENT ON COLUMN node.revocations_told IS '(For other nodes) the number of the last revocation that it was told.';
COMMENT ON COLUMN node.announcement IS 'The latest statement where it is, signed with its key (JWS).';

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

CREATE UNIQUE INDEX node_self ON node (is_self) WHERE is_self;
CREATE INDEX node_uncompared ON node (identity) WHERE uncompared;

CREATE FUNCTION url_host(url text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN lower(translate(substring(url FROM '://(\[[^]]*\]|[^:/]*)'), '[]', ''));
COMMENT ON FUNCTION url_host IS 'The host of a URL, without port and brackets.';

-- An address or a host may belong to several nodes, as behind one NAT; a name stands for one node only. node/model/naming.py
-- explains in advance what this refuses. The lock lets one transaction at a time add or rename nodes, so that two cannot
-- take each other's words.
CREATE FUNCTION refuse_foreign_name() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE other text;
BEGIN
    PERFORM pg_advisory_xact_lock(6427018312);
    SELECT node.name INTO other FROM node
    WHERE
        node.identity <> NEW.identity
        AND (NEW.name IN (lower(node.address), url_host(node.url)) OR node.name IN (lower(NEW.address), url_host(NEW.url)))
    LIMIT 1;
    IF FOUND THEN
        RAISE unique_violation USING MESSAGE = format('the name of one of the nodes %s and %s is an address of the other', NEW.name, other);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER node_named AFTER INSERT OR UPDATE OF name, url, address ON node FOR EACH ROW
EXECUTE FUNCTION refuse_foreign_name();

CREATE TYPE token_role AS ENUM (
    'read',       -- reads
    'run',        -- creates tasks, and sees and changes its own only
    'operate',    -- reads, and changes all tasks, campaigns, pools, archives and reservations
    'own'         -- and changes nodes, shares and tokens
);

CREATE TABLE access_token (
    id uuid PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    label text NOT NULL,
    role token_role NOT NULL,
    created_at timestamptz NOT NULL,
    created_by text NOT NULL,
    expires_at timestamptz,
    used_at timestamptz,
    revoked_at timestamptz
);
COMMENT ON TABLE access_token IS 'Bearer tokens of users, as SHA-256; the tokens themselves are not stored.';
COMMENT ON COLUMN access_token.label IS 'Whom it is for; tokens of one label are those of one user.';
COMMENT ON COLUMN access_token.created_by IS 'The label of the token with which it was made.';
COMMENT ON COLUMN access_token.used_at IS 'When it was used last, to the minute.';

CREATE TYPE principal_kind AS ENUM (
    'token',      -- a user, by a token
    'host',       -- a program on this host, which may read without a token
    'node',       -- a node, by its signature; this node itself, for what no request asked for
    'stranger'    -- anybody else
);

CREATE TYPE audit_outcome AS ENUM (
    'done',       -- it was done
    'refused',    -- the caller may not, or asked for something that cannot be
    'failed'      -- this node or another one could not do it
);

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    kind principal_kind NOT NULL,
    principal text,
    key text,
    role token_role,
    origin text,
    verb text NOT NULL,
    thing text,
    outcome audit_outcome NOT NULL,
    status smallint,
    problem text,
    count integer NOT NULL DEFAULT 1 CHECK (count > 0)
);
COMMENT ON TABLE audit IS
'Who did what here, and who was refused: only added to, and deleted by age alone. It has no secrets and no bodies of requests.';
COMMENT ON COLUMN audit.principal IS 'Label of the token, or name of the node; null for a stranger.';
COMMENT ON COLUMN audit.key IS 'Id of the token, or key of the node.';
COMMENT ON COLUMN audit.origin IS 'Address from which the request came: that of a proxy, if there is one.';
COMMENT ON COLUMN audit.verb IS 'The operationId of /v1/openapi.json, or what the node did by itself.';
COMMENT ON COLUMN audit.thing IS 'Id or name of the task, campaign, node, token … that it is about.';
COMMENT ON COLUMN audit.status IS 'HTTP status of the answer; null if no request asked for it.';
COMMENT ON COLUMN audit.problem IS 'The last word of the type of the problem, if it was refused or failed.';
COMMENT ON COLUMN audit.count IS 'How many requests it stands for: more than one where a flood of them was left out.';
CREATE INDEX audit_at ON audit (at);

CREATE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('parley.retention', true) = 'audit' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit table is only added to' USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION keep_audit() IS 'Prevents changes of the audit table, and deletions but for those of the retention.';
CREATE TRIGGER audit_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION keep_audit();

CREATE FUNCTION purge_audit(before timestamptz, at_most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    gone bigint;
BEGIN
    -- Not as SET of the function, which needs a superuser from Postgres 15 on.
    PERFORM set_config('parley.retention', 'audit', true);
    DELETE FROM audit
    WHERE id IN (SELECT old.id FROM audit AS old WHERE old.at < before ORDER BY old.at, old.id LIMIT at_most);
    GET DIAGNOSTICS gone = ROW_COUNT;
    PERFORM set_config('parley.retention', '', true);
    RETURN gone;
END
$$;
COMMENT ON FUNCTION purge_audit(timestamptz, bigint) IS 'Deletes rows that are older; returns how many.';

-- Readers that wait for what comes after an id must not miss a row with a lower one that is committed later.
CREATE FUNCTION order_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(6427018313);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION order_audit() IS 'Lets one transaction at a time add to the audit table, so that ids are committed in their order.';
CREATE TRIGGER audit_ordered BEFORE INSERT ON audit FOR EACH STATEMENT EXECUTE FUNCTION order_audit();

CREATE FUNCTION tell_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley', concat_ws(' ', 'audit', NEW.id, NEW.verb, NEW.outcome, coalesce(NEW.principal, NEW.kind::text)));
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_audit() IS 'Notifies of each row.';
CREATE TRIGGER audit_told AFTER INSERT ON audit FOR EACH ROW EXECUTE FUNCTION tell_audit();

CREATE TABLE idempotency (
    key text PRIMARY KEY,
    request_digest text NOT NULL,
    made uuid NOT NULL,
    created_at timestamptz NOT NULL
);
COMMENT ON TABLE idempotency IS 'POST requests already served, by Idempotency-Key; kept for a day by default.';
COMMENT ON COLUMN idempotency.made IS 'The task or reservation that was created.';

---------------------------------------------------------------------------------------------------
-- Campaigns and pools: for whom the tasks led here measure, and which nodes they share
---------------------------------------------------------------------------------------------------

CREATE TABLE campaign (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z][a-z0-9-]{0,62}$'),
    parent_id integer,
    parent_depth smallint,
    depth smallint GENERATED ALWAYS AS (coalesce(parent_depth, 0) + 1) STORED,
    weight numeric(12, 6) NOT NULL DEFAULT 1 CHECK (weight >= 0),
    level smallint NOT NULL DEFAULT 5 CHECK (level BETWEEN 0 AND 10),
    priority integer NOT NULL DEFAULT 0,
    preemptor boolean NOT NULL DEFAULT false,
    preemptee boolean NOT NULL DEFAULT false,
    seats_max integer CHECK (seats_max > 0),
    target_seats integer CHECK (target_seats > 0),
    target_share numeric(7, 6) CHECK (target_share > 0 AND target_share <= 1),
    target_kind int4range GENERATED ALWAYS AS (
        CASE WHEN target_seats IS NOT NULL THEN int4range(0, 1) WHEN target_share IS NOT NULL THEN int4range(1, 2) END
    ) STORED,
    fairshare jsonb,
    limits jsonb NOT NULL DEFAULT '{}',
    quotas jsonb NOT NULL DEFAULT '{}',
    queue jsonb,
    owner text,
    contact text,
    description text,
    state campaign_state NOT NULL DEFAULT 'active',
    revision integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    target_borrow integer CHECK (target_borrow >= 0),
    target_lend numeric(7, 6) CHECK (target_lend >= 0 AND target_lend <= 1),
    budget jsonb,
    bounded boolean NOT NULL GENERATED ALWAYS AS (
        limits <> '{}' OR quotas <> '{}' OR seats_max IS NOT NULL OR budget IS NOT NULL
    ) STORED,
    timed_weights jsonb NOT NULL DEFAULT '[]',
    leads text [] NOT NULL DEFAULT '{}',
    UNIQUE (id, depth),
    FOREIGN KEY (parent_id, parent_depth) REFERENCES campaign (id, depth) ON UPDATE CASCADE,
    CHECK ((parent_id IS NULL) = (parent_depth IS NULL)),
    CHECK (num_nonnulls(target_seats, target_share) <= 1),
    CONSTRAINT campaign_target_bounds CHECK (
        num_nonnulls(target_seats, target_share) = 1 OR num_nonnulls(target_borrow, target_lend) = 0
    ),
    CONSTRAINT campaign_depth CHECK (depth <= 8),
    CONSTRAINT campaign_targets_alike EXCLUDE USING gist (target_kind WITH -|-)
);
COMMENT ON TABLE campaign IS 'For whom the tasks led here measure; each task belongs to one campaign. Campaigns share by weight, and have levels, limits and promises.';
COMMENT ON COLUMN campaign.depth IS 'One more than its parent''s.';
COMMENT ON COLUMN campaign.level IS '0 is suspended, 9 the highest, 10 urgent: served before all others.';
COMMENT ON COLUMN campaign.preemptor IS 'Whether its runs may displace those of preemptee campaigns.';
COMMENT ON COLUMN campaign.seats_max IS 'Maximum seats that it may hold at once.';
COMMENT ON COLUMN campaign.target_seats IS 'The number of seats that it is promised.';
COMMENT ON COLUMN campaign.target_share IS 'The share of a pool''s seats that it is promised.';
COMMENT ON COLUMN campaign.target_borrow IS 'Maximum seats that it may hold at once beyond its promise; null if there is none.';
COMMENT ON COLUMN campaign.target_lend IS 'Maximum part of its promise that others may hold while it does not want it; null is all.';
COMMENT ON COLUMN campaign.bounded IS 'Whether it has a limit on what is booked.';
COMMENT ON COLUMN campaign.timed_weights IS 'Other weights at recurring times, {weight, cron, duration, timezone} each; the first that applies counts.';
COMMENT ON COLUMN campaign.leads IS 'Identities of other leads whose campaign of this name counts as one with it.';
COMMENT ON COLUMN campaign.budget IS '{seat_hours, since, until}: what it and those below it may have of the time between both; without since from the beginning of the campaign.';
COMMENT ON COLUMN campaign.fairshare IS '{part, kind}: the part of what is delivered that it should get, as a target, floor or ceiling.';
COMMENT ON COLUMN campaign.limits IS 'By limited quantity: {soft, hard}; the soft limit applies while others want the pool.';
COMMENT ON COLUMN campaign.quotas IS 'By counted resource, such as mbps: the maximum that it may use at once.';
COMMENT ON COLUMN campaign.queue IS '{floor, ceiling, gap, gain, price, passes}: how its priority moves where shares are by starts.';
COMMENT ON COLUMN campaign.revision IS 'Counts its changes.';
COMMENT ON CONSTRAINT campaign_depth ON campaign IS
'Prevents cycles: a parent''s depth is stored beside its id and follows it, so the depths in a cycle would grow without bound.';
COMMENT ON CONSTRAINT campaign_targets_alike ON campaign IS
'Promises are all in seats or all in shares. The two kinds are adjacent ranges, and no two rows may have adjacent ranges.';
CREATE INDEX campaign_parent ON campaign (parent_id) WHERE parent_id IS NOT NULL;
INSERT INTO campaign (name, description, created_at, changed_at)
VALUES ('default', 'Tasks that name no campaign belong to this one.', '2000-01-01Z', '2000-01-01Z');

CREATE TABLE pool (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[a-z][a-z0-9-]{0,62}$'),
    match jsonb NOT NULL,
    policy_set text NOT NULL,
    overrides jsonb NOT NULL DEFAULT '{}',
    choice text NOT NULL DEFAULT 'sticky' CHECK (choice IN ('sticky', 'rotating')),
    term interval NOT NULL DEFAULT interval '6 hours' CHECK (term > interval '0'),
    patience interval NOT NULL DEFAULT interval '10 minutes' CHECK (patience > interval '0'),
    description text,
    revision integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    options jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE pool IS 'Named sets of nodes that this node plans: a node belongs to a pool while its attributes meet the predicate.';
COMMENT ON COLUMN pool.match IS 'The predicate over node attributes: {"country": "DE", "cpu_mbps": {">=": 1000}}.';
COMMENT ON COLUMN pool.policy_set IS 'The policy set by which its seats are assigned.';
COMMENT ON COLUMN pool.overrides IS 'By axis: the overrides of the policy set.';
COMMENT ON COLUMN pool.options IS 'The options of the policy set, by name.';
COMMENT ON COLUMN pool.term IS 'How long nodes are chosen for at a time.';
COMMENT ON COLUMN pool.patience IS 'A node that does not answer for this long loses its seats.';
COMMENT ON COLUMN pool.choice IS 'sticky: a node that measured a target measures it again; rotating: the nodes take turns.';

CREATE TABLE charge (
    id bigint GENERATED ALWAYS AS IDENTITY,
    campaign_id integer NOT NULL,
    run_id uuid NOT NULL,
    participant smallint NOT NULL,
    node text NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    weight integer NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,
    cause charge_cause NOT NULL,
    made_at timestamptz NOT NULL,
    PRIMARY KEY (starts_at, run_id, id),
    CHECK (starts_at < ends_at),
    CHECK (weight <> 0 OR bytes <> 0)
);
COMMENT ON TABLE charge IS
'The ledger (at the lead): the seats and bytes charged to campaigns. It is append-only: a refund is a negative charge.';
COMMENT ON COLUMN charge.node IS 'Identity of the node.';
COMMENT ON COLUMN charge.weight IS 'Thousandths of a seat: 1000 for an exclusive run, one lane for a normal one; runs that cost nothing have no row.';
COMMENT ON COLUMN charge.bytes IS
'Payload that the node sends and receives: as expected, until the result of the run says more. Charges and refunds of bytes have
the start and end of the run.';

CREATE TABLE charge_hour (
    hour timestamptz NOT NULL,
    campaign_id integer NOT NULL,
    node text NOT NULL,
    amount bigint NOT NULL,
    bytes bigint NOT NULL,
    lead text NOT NULL DEFAULT '',
    PRIMARY KEY (hour, campaign_id, node, lead)
) WITH (fillfactor = 50);
COMMENT ON TABLE charge_hour IS
'The ledger summed by hour; a trigger on charge keeps it up to date. Beside it, what other leads have told of campaigns that they share.';
COMMENT ON COLUMN charge_hour.lead IS 'Identity of the lead that has told it; empty for what was charged here.';
COMMENT ON COLUMN charge_hour.amount IS 'Thousandths of a seat times microseconds; 1000 million are a seat-second.';
COMMENT ON COLUMN charge_hour.bytes IS 'The bytes of the runs that start in this hour.';

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

CREATE FUNCTION sum_up_charges() RETURNS trigger LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION sum_up_charges() IS 'Adds new charges to the sums of the hours that they span.';
CREATE TRIGGER charge_summed_up AFTER INSERT ON charge REFERENCING NEW TABLE AS made
FOR EACH STATEMENT EXECUTE FUNCTION sum_up_charges();

CREATE FUNCTION keep_charge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the ledger is only added to' USING ERRCODE = 'integrity_constraint_violation';
END
$$;
COMMENT ON FUNCTION keep_charge() IS 'Prevents changes of existing charges.';
CREATE TRIGGER charge_kept BEFORE UPDATE ON charge FOR EACH STATEMENT EXECUTE FUNCTION keep_charge();

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
    follows uuid GENERATED ALWAYS AS ((schedule -> 'after' ->> 'task')::uuid) STORED,
    campaign text,
    reference jsonb,
    lease_epoch bigint NOT NULL DEFAULT 0,
    generation uuid,
    revision integer NOT NULL DEFAULT 1,
    freeing jsonb,
    paused_at timestamptz,
    created_at timestamptz NOT NULL,
    ended_at timestamptz,
    parent uuid REFERENCES task ON DELETE CASCADE,
    pool_task uuid,
    yielding uuid [],
    starts timestamptz [],
    limit_rule text,
    limit_refusal text,
    limit_caps jsonb NOT NULL DEFAULT '[]',
    run_bytes bigint,
    requester text,
    limit_user text,
    limit_address text,
    limit_bound boolean NOT NULL DEFAULT false,
    keepers jsonb NOT NULL DEFAULT '[]',
    CHECK (duration > interval '0')
);
COMMENT ON TABLE task IS 'Every task this node leads or takes part in.';
COMMENT ON COLUMN task.lead IS 'Identity of the node that plans it.';
COMMENT ON COLUMN task.participants IS
'In order: [{node, name, url, address, accepted, reason, tools}]; accepted is null until the node has answered.';
COMMENT ON COLUMN task.participant IS 'This node''s index among them; null if it only leads.';
COMMENT ON COLUMN task.addresses IS 'Host as written in the spec -> address that is measured.';
COMMENT ON COLUMN task.schedule IS 'The schedule as posted, with defaults filled in.';
COMMENT ON COLUMN task.follows IS
'The task whose runs lead to runs of this one, which then has no times of its own; from the schedule.';
COMMENT ON COLUMN task.lease_epoch IS 'Highest lease epoch seen for it; messages of older epochs are refused.';
COMMENT ON COLUMN task.generation IS
'The generation of the lead''s database when the task was first held here. Under another one the lead may not know its runs.';
COMMENT ON COLUMN task.revision IS 'Counts its changes at the lead: edits, pauses, resumptions. Introductions and holds of older revisions are refused.';
COMMENT ON COLUMN task.freeing IS
'(At the lead) the runs that the last change gave up, for participants that do not know of it yet: {before_epoch, starting, slots_from}.';
COMMENT ON COLUMN task.paused_at IS 'When it was paused; null if it is not.';
COMMENT ON COLUMN task.parent IS '(At the lead) the pool task that this task has seats of; null for tasks that a user posted.';
COMMENT ON COLUMN task.pool_task IS
'(At other participants) the pool task that this task has seats of, as reported by its lead.';
COMMENT ON COLUMN task.yielding IS
'(At the lead) the runs that may give way to its own, by the policies of its pool; null means any of lower priority.';
COMMENT ON COLUMN task.starts IS
'(At the lead) the start times found for a seat''s runs when it was assigned; used if they are still free.';
COMMENT ON COLUMN task.limit_rule IS
'The rule of this host''s limits that admits it; null of a task that is led here for a user without limits.';
COMMENT ON COLUMN task.run_bytes IS
'(Of a task with a rule) payload that a run is expected to move here; null if that is unknown.';
COMMENT ON COLUMN task.limit_caps IS
'(Of a task that another node leads) [[cap, network, rate]]: the caps of this host''s limits for which its runs count, each with the network of a target, and their rate (b/s).';
COMMENT ON COLUMN task.requester IS
'(At the lead) the label of the token with which it was created; the tasks of seats have that of their pool task.';
COMMENT ON COLUMN task.limit_user IS
'(At the lead) the label of the token with which it was created, or edited last: its runs count for this user.';
COMMENT ON COLUMN task.limit_address IS '(At the lead) the address from which it was created, or edited last.';
COMMENT ON COLUMN task.limit_bound IS
'(At the lead) whether that user is bound by the rules for targets, as those with the role run are.';
COMMENT ON COLUMN task.limit_refusal IS
'Why the limits, as they are by now, do not admit it: it gets no time. Null if they do.';
COMMENT ON COLUMN task.keepers IS
'The nodes that keep the counted resources which its runs take: [{node, name, url, address, accepted, reason, takes: {resource: amount}}].
At its lead all of them, at a keeper only itself. A keeper that is none of the participants holds the runs, and runs nothing.';
CREATE FUNCTION parties(task task) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN task.keepers = '[]' OR task.participants = '[]' THEN task.participants ELSE task.participants || task.keepers END
$$;
COMMENT ON FUNCTION parties(task) IS 'The nodes that book the runs of a task: participants and keepers. A pool task has none of its own.';
CREATE INDEX task_follows ON task (follows) WHERE follows IS NOT NULL;
CREATE INDEX task_parent ON task (parent) WHERE parent IS NOT NULL;
CREATE INDEX task_open ON task (lead) WHERE state IN ('active', 'paused');
CREATE INDEX task_created ON task (created_at DESC, id);
CREATE INDEX task_ended ON task (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX task_ended_of ON task (lead, ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX task_capped ON task USING gin (limit_caps jsonb_path_ops) WHERE limit_caps <> '[]';
CREATE INDEX task_requester ON task (requester, created_at DESC, id DESC) WHERE requester IS NOT NULL;
CREATE INDEX task_mesh ON task ((reference ->> 'mesh'), (reference ->> 'key'), created_at DESC, id DESC)
WHERE length(reference ->> 'mesh') <= 63 AND length(reference ->> 'key') <= 400;
COMMENT ON INDEX task_mesh IS 'Finds the tasks of a mesh by their reference: {mesh, key}.';

-- node/tasks/dependencies.py explains in advance what this refuses. The lock lets one transaction at a time change what tasks
-- follow, so that two cannot close a cycle together. A node answers for its own tasks only.
CREATE FUNCTION refuse_cycle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM node WHERE is_self AND identity = NEW.lead) THEN
        PERFORM pg_advisory_xact_lock(6427018313);
        IF EXISTS (
            WITH RECURSIVE followed AS (
                SELECT NEW.follows AS id
                UNION
                SELECT task.follows FROM task INNER JOIN followed ON task.id = followed.id WHERE task.follows IS NOT NULL
            )

            SELECT FROM followed WHERE followed.id = NEW.id
        ) THEN
            RAISE EXCEPTION 'task % would follow itself', NEW.id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'task_no_cycle', TABLE = 'task';
        END IF;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION refuse_cycle() IS 'Refuses tasks that follow themselves, directly or by way of others.';
CREATE TRIGGER task_no_cycle AFTER INSERT OR UPDATE OF schedule ON task FOR EACH ROW
WHEN (new.schedule -> 'after' ->> 'task' IS NOT NULL)
EXECUTE FUNCTION refuse_cycle();

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

CREATE TABLE planning (
    task_id uuid PRIMARY KEY REFERENCES task ON DELETE CASCADE,
    campaign_id integer NOT NULL REFERENCES campaign,
    next_run_at timestamptz,
    plan_at timestamptz,
    planned_to timestamptz,
    failures integer NOT NULL DEFAULT 0,
    waits_for text,
    waits_until timestamptz,
    lease_owner text,
    lease_until timestamptz,
    lease_epoch bigint NOT NULL DEFAULT 0,
    added_at timestamptz NOT NULL,
    follower boolean NOT NULL DEFAULT false,
    wants_room boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);
COMMENT ON TABLE planning IS 'The lead''s agenda: one row for each task that it leads and still plans.';
COMMENT ON COLUMN planning.next_run_at IS 'Nominal start of the first slot without a run.';
COMMENT ON COLUMN planning.plan_at IS
'When to plan next; null when nothing is left to plan. During a lease: the end of the lease, or earlier if planning was
requested again.';
COMMENT ON COLUMN planning.planned_to IS 'Every slot up to and including this one has been planned.';
COMMENT ON COLUMN planning.added_at IS 'Creation of the task: of tasks due at the same time, the oldest goes first.';
COMMENT ON COLUMN planning.failures IS 'Consecutive attempts that placed nothing; determines the pause.';
COMMENT ON COLUMN planning.waits_for IS 'Identity of the participant that does not answer, or has too many questions.';
COMMENT ON COLUMN planning.waits_until IS 'The task is planned then even if that participant is still silent.';
COMMENT ON COLUMN planning.follower IS 'Whether its task follows another one, so that it ends after that one.';
COMMENT ON COLUMN planning.wants_room IS 'Whether limits of its campaign left less time for the slots that wait.';
CREATE INDEX planning_follower ON planning (task_id) WHERE follower;
CREATE INDEX planning_campaign ON planning (campaign_id);
CREATE INDEX planning_next ON planning (next_run_at, added_at, plan_at, lease_until) WHERE plan_at IS NOT NULL;
CREATE INDEX planning_due ON planning (greatest(plan_at, lease_until)) WHERE plan_at IS NOT NULL;
CREATE INDEX planning_waits ON planning (waits_for) WHERE waits_for IS NOT NULL;
CREATE INDEX planning_room ON planning (campaign_id, next_run_at) WHERE wants_room;

CREATE FUNCTION keep_following() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE planning SET follower = NEW.follows IS NOT NULL
    WHERE task_id = NEW.id AND follower <> (NEW.follows IS NOT NULL);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION keep_following() IS 'Keeps planning.follower up to date when a task is edited.';
CREATE TRIGGER task_following AFTER UPDATE OF schedule ON task FOR EACH ROW
WHEN (old.schedule IS DISTINCT FROM new.schedule)
EXECUTE FUNCTION keep_following();

CREATE TABLE lead_process (
    owner text PRIMARY KEY,
    seen_at timestamptz NOT NULL,
    started_at timestamptz,
    stopped_at timestamptz,
    version text,
    workers integer,
    takeovers bigint NOT NULL DEFAULT 0,
    took_over_at timestamptz,
    figures text
);
COMMENT ON TABLE lead_process IS
'The processes that plan the tasks led here. Each writes when it was last alive, several times a minute.';
COMMENT ON COLUMN lead_process.stopped_at IS 'When it was told to stop; null while it works, and if it was killed.';
COMMENT ON COLUMN lead_process.takeovers IS 'Number of tasks that it took over from other processes whose leases had run out.';
COMMENT ON COLUMN lead_process.figures IS 'What it has counted and timed since its start, in the text format of Prometheus.';

---------------------------------------------------------------------------------------------------
-- Pool tasks (at the lead): a number of nodes of a pool, chosen for some slots at a time
---------------------------------------------------------------------------------------------------

CREATE TABLE pool_task (
    task_id uuid PRIMARY KEY REFERENCES task ON DELETE CASCADE,
    pool_id integer REFERENCES pool,
    request jsonb NOT NULL,
    next_slot timestamptz,
    due_at timestamptz,
    rounds_left integer,
    reason text
);
COMMENT ON TABLE pool_task IS
'A task''s request to a pool, instead of named nodes. A pool task has no runs of its own: they are those of its seats.';
COMMENT ON COLUMN pool_task.pool_id IS 'Null only if the task is over and its pool was removed; the request has the pool''s name.';
COMMENT ON COLUMN pool_task.request IS '{pool, k, min_k, match, prefer, spread, together, choice, field}.';
COMMENT ON COLUMN pool_task.next_slot IS 'The first slot that is in no term yet; null when there are no more terms.';
COMMENT ON COLUMN pool_task.due_at IS 'When nodes are chosen for the term that begins with next_slot.';
COMMENT ON COLUMN pool_task.rounds_left IS 'The slots of its max_runs that are in no term yet.';
COMMENT ON COLUMN pool_task.reason IS 'What the pool lacks for it; null if nothing.';
CREATE INDEX pool_task_pool ON pool_task (pool_id);
CREATE INDEX pool_task_due ON pool_task (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE term (
    pool_task uuid NOT NULL REFERENCES pool_task ON DELETE CASCADE,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    over_at timestamptz NOT NULL,
    seats smallint NOT NULL,
    tries integer NOT NULL DEFAULT 0,
    try_at timestamptz,
    reason text,
    wants_room boolean NOT NULL DEFAULT false,
    misses timestamptz [] NOT NULL DEFAULT '{}',
    PRIMARY KEY (pool_task, starts_at),
    CHECK (starts_at < ends_at)
);
COMMENT ON TABLE term IS 'Consecutive slots of a pool task, for which the same nodes have its seats.';
COMMENT ON COLUMN term.starts_at IS 'Its first slot.';
COMMENT ON COLUMN term.ends_at IS 'End, excluded: none of its slots is then or later.';
COMMENT ON COLUMN term.over_at IS 'None of its runs can start then or later.';
COMMENT ON COLUMN term.tries IS 'Consecutive searches that found no node for its empty seats; determines the pause.';
COMMENT ON COLUMN term.try_at IS 'When the next search for nodes is; null if no seat is empty, or the term is over.';
COMMENT ON COLUMN term.reason IS 'Why some seats are empty.';
COMMENT ON COLUMN term.wants_room IS 'Whether a limit of its campaign is among the reasons.';
COMMENT ON COLUMN term.misses IS
'The latest starts that its runs are expected to miss, in order: the forecast of the last search for nodes.';
CREATE INDEX term_due ON term (try_at) WHERE try_at IS NOT NULL;
CREATE INDEX term_missing ON term (pool_task) WHERE misses <> '{}';

CREATE TABLE seat (
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    place smallint NOT NULL,
    pool_task uuid NOT NULL,
    term timestamptz NOT NULL,
    node text NOT NULL,
    taken_at timestamptz NOT NULL,
    lost_at timestamptz,
    reason text,
    PRIMARY KEY (task_id, place),
    FOREIGN KEY (pool_task, term) REFERENCES term (pool_task, starts_at) ON DELETE CASCADE,
    CHECK ((lost_at IS NULL) = (reason IS NULL))
);
COMMENT ON TABLE seat IS 'Assignments of seats of a pool task in a term to nodes, current and past.';
COMMENT ON COLUMN seat.task_id IS 'The ordinary task that books and measures its runs; one task for all seats if they are taken together.';
COMMENT ON COLUMN seat.place IS 'From 1 to the number of seats.';
COMMENT ON COLUMN seat.node IS 'Identity of the node.';
COMMENT ON COLUMN seat.lost_at IS 'When the node lost it, so that another node takes it.';
CREATE UNIQUE INDEX seat_taken ON seat (pool_task, term, place) WHERE lost_at IS NULL;
CREATE UNIQUE INDEX seat_of_node ON seat (pool_task, term, node) WHERE lost_at IS NULL;
CREATE INDEX seat_term ON seat (pool_task, term);
COMMENT ON INDEX seat_taken IS 'A seat belongs to at most one node at a time.';
COMMENT ON INDEX seat_of_node IS 'A node has at most one seat of a term.';

CREATE TABLE policy_state (
    pool_id integer PRIMARY KEY REFERENCES pool ON DELETE CASCADE,
    state jsonb NOT NULL,
    revision bigint NOT NULL,
    changed_at timestamptz NOT NULL,
    missing text [] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE policy_state IS
'The state that a pool''s policies keep from one episode to the next; updated in the transaction of their decisions.';
COMMENT ON COLUMN policy_state.missing IS
'The campaigns with runs that are expected to miss their latest start, as was last told to those who follow the events.';

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
'The lead''s side of an exchange. Written before the first hold is sent; its state is the decision.';
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
COMMENT ON COLUMN exchange.answer IS 'The answer to the hold; a repeated hold gets the same answer.';
COMMENT ON COLUMN exchange.data IS 'Data of all participants: place -> {port: …}; complete once committed.';
CREATE INDEX exchange_held ON exchange (expires_at) WHERE state = 'held';
CREATE INDEX exchange_task ON exchange (task_id);

CREATE SEQUENCE lane;
COMMENT ON SEQUENCE lane IS 'Numbers for the lanes of normal runs; each run gets a lane of its own.';

CREATE TABLE run (
    id uuid PRIMARY KEY,
    task_id uuid NOT NULL REFERENCES task ON DELETE CASCADE,
    exchange_id uuid REFERENCES exchange ON DELETE CASCADE,
    slot timestamptz NOT NULL,
    attempt smallint NOT NULL,
    participant smallint,
    scheduling_class scheduling_class NOT NULL,
    priority integer NOT NULL,
    rank smallint NOT NULL DEFAULT 0,
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
    verdict text CHECK (verdict IN ('clean', 'suspicious', 'contaminated')),
    verdict_reasons text [] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    judgement text,
    judgement_code text,
    judgement_reason text,
    every interval,
    takes boolean NOT NULL DEFAULT false,
    spare_priority integer,
    spared boolean NOT NULL DEFAULT false,
    CHECK (starts_at < ends_at),
    CHECK (state NOT IN ('failed', 'missed', 'cancelled', 'displaced', 'unplaced', 'waiting') OR reason IS NOT NULL),
    CONSTRAINT run_slot_once UNIQUE (task_id, slot, attempt),
    CONSTRAINT run_no_overlap EXCLUDE USING gist (during WITH &&, lane WITH &&)
    WHERE (state IN ('booked', 'running') AND lane IS NOT NULL)
);
COMMENT ON TABLE run IS
'The run table: every run this node leads or takes part in, with this node''s view of its state.';
COMMENT ON COLUMN run.slot IS 'Nominal start: the slot of the task that this run serves.';
COMMENT ON COLUMN run.attempt IS 'Counts the runs of one slot from 1; each attempt is a separate run.';
COMMENT ON COLUMN run.participant IS 'This node''s index in the run; null if it only leads.';
COMMENT ON COLUMN run.rank IS
'Whom it displaces before priorities are compared: 0 for tasks of this host, -1 for those of other nodes after them, 1 for what gives way to nobody.';
COMMENT ON COLUMN run.lane IS
'The lanes that it occupies during its time: all (exclusive), one (normal), null for none (background).';
COMMENT ON COLUMN run.reason IS 'Why it did not take place, or what went wrong: one sentence.';
COMMENT ON COLUMN run.freed IS 'Given up because the task was changed: its slot may be planned again, as another attempt.';
COMMENT ON COLUMN run.spec IS 'The spec that it was booked with, if the task was edited since; null means the task''s spec.';
COMMENT ON COLUMN run.tool IS 'The tool that it was booked with, if the task was edited since.';
COMMENT ON COLUMN run.started_at IS 'When this node''s part actually started.';
COMMENT ON COLUMN run.result IS 'The merged result (at the lead).';
COMMENT ON COLUMN run.verdict IS
'How far the result can be trusted, by the circumstances of its parts (at the lead); null without a result.';
COMMENT ON COLUMN run.verdict_reasons IS 'Why the verdict is not clean: sentences, the worst first.';
COMMENT ON COLUMN run.judgement IS
'(At the lead) what is to be thought of the figures of a finished run, by the thresholds of its task when it ended. See judgement_of().';
COMMENT ON COLUMN run.judgement_code IS 'The code of the reason why it is not good; null if its state says all.';
COMMENT ON COLUMN run.judgement_reason IS 'Why the figures are not good, in a sentence; why there are none is the reason of the run.';
COMMENT ON COLUMN run.every IS
'(At the lead) the mean of the two intervals after it, of a run that is concluded and whose task has a cron schedule. See task_interval().';
COMMENT ON COLUMN run.takes IS 'Whether it takes of resources that this node keeps (resource_use).';
COMMENT ON COLUMN run.spare_priority IS
'The priority as which it counts here while it is spared; null for tasks without a budget of displacements.';
COMMENT ON COLUMN run.spared IS
'Whether its task may lose no further run near it: as many as its budget of displacements allows have given way. See spare_runs().';
COMMENT ON CONSTRAINT run_no_overlap ON run IS
'Promise 1: two runs whose classes may not overlap never occupy the same time.';
CREATE INDEX run_exchange ON run (exchange_id);
CREATE INDEX run_starts ON run (starts_at, id);
CREATE INDEX run_of_task ON run (task_id, starts_at, id) INCLUDE (state, judgement);
-- The longest run tells how long before a span the first run that reaches into it may have begun.
CREATE INDEX run_length ON run ((ends_at - starts_at));
CREATE INDEX run_open ON run (starts_at) WHERE state IN ('booked', 'running', 'merging', 'set-aside');
CREATE INDEX run_waiting ON run (task_id) WHERE state = 'waiting';
CREATE INDEX run_failed ON run (starts_at) WHERE state IN ('merging', 'failed', 'missed');
-- Whether a task has runs left is asked about every task again and again; its history may be a million runs.
CREATE INDEX run_unfinished ON run (task_id) WHERE state IN ('waiting', 'booked', 'set-aside', 'running', 'merging');
CREATE INDEX run_open_slot ON run (slot) WHERE state IN ('waiting', 'booked', 'set-aside', 'running', 'merging');
CREATE INDEX run_displaced ON run (task_id) WHERE state = 'displaced';
CREATE INDEX run_set_aside ON run (displaced_by) WHERE state = 'set-aside';

CREATE TABLE pscheduler_run (
    run_id uuid PRIMARY KEY REFERENCES run ON DELETE CASCADE,
    part_data jsonb NOT NULL
);
COMMENT ON TABLE pscheduler_run IS 'What leads from outside have told with their commits: the data of all participants, in their order.';

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
'Notifies of the span, in microseconds since 1970, that a run has freed: leads whose requests were refused may want it.';
CREATE TRIGGER run_freed AFTER UPDATE ON run FOR EACH ROW
WHEN (
    old.lane IS NOT NULL AND old.state IN ('booked', 'running')
    AND new.state NOT IN ('booked', 'running', 'set-aside')
)
EXECUTE FUNCTION tell_freed();
CREATE TRIGGER run_dropped AFTER DELETE ON run FOR EACH ROW
WHEN (old.lane IS NOT NULL AND old.state IN ('booked', 'running'))
EXECUTE FUNCTION tell_freed();

CREATE FUNCTION tell_room() RETURNS trigger LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION tell_room() IS
'A run led here ended before its booked end: notifies of the highest limited campaign that has room again, and of the span
that was freed if seats are empty then. The lead asks no node whose time its own runs take, so no node will tell it.';
CREATE TRIGGER run_left_room AFTER UPDATE ON run FOR EACH ROW
WHEN (
    old.state IN ('booked', 'set-aside', 'running', 'merging')
    AND new.state NOT IN ('booked', 'set-aside', 'running', 'merging')
    AND new.changed_at < old.ends_at
)
EXECUTE FUNCTION tell_room();

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
'Notifies of the span of a run that was set aside, came back, is spared, or got another priority or rank, so that caches read it again.';
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

CREATE FUNCTION tell_taken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley', concat_ws(
        ' ', 'taken', page.scheduling_class, page.priority, page.rank,
        encode(
            string_agg(
                timestamptz_send(page.starts_at) || timestamptz_send(page.ends_at), ''
                ORDER BY page.starts_at, page.ends_at
            ), 'hex'
        )
    ))
    FROM (
        SELECT
            scheduling_class, priority, rank, starts_at, ends_at,
            (row_number() OVER (PARTITION BY scheduling_class, priority, rank ORDER BY starts_at, ends_at) - 1) / 240 AS number
        FROM added
        WHERE lane IS NOT NULL AND state IN ('booked', 'running')
    ) AS page -- a notification holds less than 8,000 bytes
    GROUP BY page.scheduling_class, page.priority, page.rank, page.number;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_taken() IS
'Notifies of the spans that new runs occupy, by class, priority, and rank; each is sixteen bytes, start and end in Postgres'' format.';
CREATE TRIGGER run_taken AFTER INSERT ON run REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION tell_taken();

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

---------------------------------------------------------------------------------------------------
-- Reservations: reserved time of this node
---------------------------------------------------------------------------------------------------

CREATE TABLE reservation (
    id uuid PRIMARY KEY,
    pool text REFERENCES pool (name) ON DELETE CASCADE,
    kind reservation_kind NOT NULL,
    name text NOT NULL,
    owner text NOT NULL,
    description text,
    schedule jsonb NOT NULL,
    duration interval NOT NULL,
    access jsonb NOT NULL DEFAULT '{}',
    revision integer NOT NULL DEFAULT 1,
    reserved_to timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    CHECK (duration > interval '0')
);
COMMENT ON TABLE reservation IS 'Maintenance, demonstrations, quiet periods: during these, only admitted runs are booked.';
COMMENT ON COLUMN reservation.pool IS
'(At the lead) the pool whose seats get no runs in that time; null if it reserves the time of this node.';
COMMENT ON COLUMN reservation.schedule IS 'Its times: {start, repeat, cron, timezone, until}; once if it does not repeat.';
COMMENT ON COLUMN reservation.access IS
'Whom it admits: {campaigns, tasks, leads, tests, classes, priority}; one criterion is enough. Leads are identities of nodes,
tasks are ID or ID@LEAD. Campaigns and priority admit only tasks that this node leads itself.';
COMMENT ON COLUMN reservation.revision IS 'Counts its changes.';
COMMENT ON COLUMN reservation.reserved_to IS 'The table reserved has all spans that begin before this time.';
CREATE INDEX reservation_pool ON reservation (pool) WHERE pool IS NOT NULL;
CREATE INDEX reservation_created ON reservation (created_at DESC, id);

CREATE TABLE reserved (
    reservation_id uuid NOT NULL REFERENCES reservation ON DELETE CASCADE,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    during tstzrange GENERATED ALWAYS AS (tstzrange(starts_at, ends_at)) STORED,
    PRIMARY KEY (reservation_id, starts_at),
    CHECK (starts_at < ends_at)
);
COMMENT ON TABLE reserved IS 'The spans of reserved time, far beyond the horizon; more are added every hour.';
CREATE INDEX reserved_during ON reserved USING gist (during);

CREATE FUNCTION admits(
    access jsonb, task_id uuid, lead text, own boolean, campaign text, test text, class scheduling_class, priority integer,
    pool_task uuid
) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        access -> 'tasks' ?| ARRAY[
            task_id::text, CASE WHEN own THEN pool_task::text END, task_id || '@' || lead, pool_task || '@' || lead
        ]
        OR access -> 'leads' ? lead
        OR access -> 'tests' ? test
        OR access -> 'classes' ? class::text
        OR own AND (
            access -> 'campaigns' ? coalesce(campaign, 'default')
            OR priority >= (access ->> 'priority')::integer
        ),
        false
    )
$$;
COMMENT ON FUNCTION admits(jsonb, uuid, text, boolean, text, text, scheduling_class, integer, uuid) IS
'Whether a reservation with this access list admits such a run: it meets one criterion. A pool task is listed for all its
seats; a pool task of another lead as ID@LEAD. A lead states campaign and priority itself, so they count only if this node is
the lead (own).';

CREATE FUNCTION refuse_reserved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT
        FROM added
        INNER JOIN reserved ON added.during && reserved.during
        INNER JOIN reservation ON reserved.reservation_id = reservation.id AND reservation.pool IS NULL
        INNER JOIN task ON added.task_id = task.id
        WHERE
            added.state IN ('booked', 'running') AND added.participant IS NOT NULL
            AND NOT admits(
                reservation.access, task.id, task.lead, task.lead = (SELECT node.identity FROM node WHERE node.is_self),
                task.campaign, task.test, added.scheduling_class, added.priority, coalesce(task.parent, task.pool_task)
            )
    ) THEN
        RAISE EXCEPTION 'this time is reserved'
        USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'run_not_reserved', TABLE = 'run';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION refuse_reserved() IS
'Refuses runs in reserved time that does not admit them. Runs that were booked before stay, unless they are displaced.';
CREATE TRIGGER run_not_reserved AFTER INSERT ON run REFERENCING NEW TABLE AS added FOR EACH STATEMENT
EXECUTE FUNCTION refuse_reserved();

CREATE FUNCTION stop_booking() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE run IN SHARE ROW EXCLUSIVE MODE;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION stop_booking() IS
'Blocks bookings while time is being reserved: otherwise a run could be inserted concurrently, and neither would see the other.';
CREATE TRIGGER reserved_alone BEFORE INSERT ON reserved FOR EACH STATEMENT EXECUTE FUNCTION stop_booking();

CREATE FUNCTION tell_reserved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM pg_notify('parley', format(
            'freed %s %s',
            (extract(EPOCH FROM OLD.starts_at) * 1000000)::bigint, (extract(EPOCH FROM OLD.ends_at) * 1000000)::bigint
        ));
    END IF;
    PERFORM pg_notify('parley', 'reserved');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_reserved() IS
'Notifies that reserved time has changed, and of freed spans: leads whose requests were refused may want them.';
CREATE TRIGGER reserved_told AFTER INSERT OR DELETE ON reserved FOR EACH ROW EXECUTE FUNCTION tell_reserved();

---------------------------------------------------------------------------------------------------
-- Shares: whom this node serves
---------------------------------------------------------------------------------------------------

CREATE TABLE lead_share (
    lead text PRIMARY KEY,
    share integer NOT NULL,
    CHECK (share >= 0)
);
COMMENT ON TABLE lead_share IS
'The shares of leads in the time of this node, as its owner has set them. While it is empty, whoever asks first is served.';
COMMENT ON COLUMN lead_share.lead IS 'Identity of the lead; ''others'' stands for all leads that are not listed, together.';

CREATE FUNCTION tell_shares() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('parley', 'shares');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION tell_shares() IS 'Notifies that the owner has changed the shares of leads.';
CREATE TRIGGER shares_told AFTER INSERT OR UPDATE OR DELETE ON lead_share FOR EACH ROW EXECUTE FUNCTION tell_shares();

CREATE TABLE lead_question (
    lead text NOT NULL,
    hour timestamptz NOT NULL,
    asked_at timestamptz NOT NULL,
    PRIMARY KEY (lead, hour)
);
COMMENT ON TABLE lead_question IS
'Which leads want time of this node, while shares are set: when each last asked for time in an hour. Kept for some hours.';

---------------------------------------------------------------------------------------------------
-- Limits: what other nodes have of this host, of what its owner allows
---------------------------------------------------------------------------------------------------

CREATE TABLE limit_quota (
    rule text NOT NULL,
    quantity text NOT NULL CHECK (quantity IN ('runs', 'time', 'bytes')),
    period interval NOT NULL CHECK (period > interval '0'),
    most bigint NOT NULL,
    PRIMARY KEY (rule, quantity, period)
);
COMMENT ON TABLE limit_quota IS 'The quotas in the limits of this host, as they were read from their file.';
COMMENT ON COLUMN limit_quota.rule IS 'Name of a rule, or of a cap.';
COMMENT ON COLUMN limit_quota.period IS 'Periods follow each other since 1970; a run counts in the one in which it starts.';
COMMENT ON COLUMN limit_quota.most IS 'Runs, microseconds, or bytes.';

CREATE TABLE limit_use (
    rule text NOT NULL,
    holder text NOT NULL,
    quantity text NOT NULL,
    period interval NOT NULL,
    begins_at timestamptz NOT NULL,
    used bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (rule, holder, quantity, period, begins_at)
);
COMMENT ON TABLE limit_use IS
'What each holder has of each quota in each period, past or booked. A trigger on run counts it, in the transaction of the hold. A hold
locks the rows that it needs, in the order of the key, before it books: holds that come at once take turns. Nobody else locks them;
what is given back is in limit_return until a hold has locked the row.';
COMMENT ON COLUMN limit_use.holder IS 'Identity of a lead or label of a user, for a rule; network of a target, for a cap.';
COMMENT ON COLUMN limit_use.quantity IS 'A quantity of limit_quota; or at-once, tasks, or bps, with a period of 0, for the lock of runs at once, open tasks, or rates.';

CREATE TABLE limit_return (
    rule text NOT NULL,
    holder text NOT NULL,
    quantity text NOT NULL,
    period interval NOT NULL,
    begins_at timestamptz NOT NULL,
    amount bigint NOT NULL
);
COMMENT ON TABLE limit_return IS
'Corrections of limit_use that are not in it yet. They are written without a lock, because a transaction that ends or moves runs does
so in any order: it would wait for holds that wait for it.';
COMMENT ON COLUMN limit_return.amount IS 'To be added to what is used; negative if it is given back.';
CREATE INDEX limit_return_key ON limit_return (rule, holder, quantity, period, begins_at);

CREATE TABLE limit_rate (
    cap text NOT NULL,
    network text NOT NULL,
    bps bigint NOT NULL,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL
);
COMMENT ON TABLE limit_rate IS
'The rates of runs to targets that are names: counted as they begin, since their addresses are not known before. And those of runs
that were booked before their task was given another spec.';
CREATE INDEX limit_rate_key ON limit_rate (cap, network, ends_at);

CREATE TABLE limit_reached (
    rule text NOT NULL,
    begins_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    reached_at timestamptz NOT NULL,
    PRIMARY KEY (rule, begins_at, ends_at)
);
COMMENT ON TABLE limit_reached IS 'The periods in which a limit refused something first; each is told once, however many were refused.';

CREATE VIEW limit_used AS
SELECT rule, holder, quantity, period, begins_at, greatest(0, sum(amount))::bigint AS used
FROM (
    SELECT rule, holder, quantity, period, begins_at, used AS amount FROM limit_use
    UNION ALL
    SELECT rule, holder, quantity, period, begins_at, amount FROM limit_return
) AS counted
GROUP BY rule, holder, quantity, period, begins_at;
COMMENT ON VIEW limit_used IS 'What each holder has of each quota in each period.';

CREATE VIEW limit_account AS
SELECT id AS task_id, limit_rule AS rule, coalesce(limit_user, lead) AS holder, run_bytes FROM task WHERE limit_rule IS NOT NULL
UNION ALL
SELECT task.id, cap.value ->> 0, cap.value ->> 1, task.run_bytes
FROM task CROSS JOIN LATERAL jsonb_array_elements(task.limit_caps) AS cap;
COMMENT ON VIEW limit_account IS 'For whom the runs of tasks count: the node that leads them, or the user here; and their targets.';

CREATE FUNCTION limit_amount(quantity text, lasts interval, run_bytes bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN CASE quantity
    WHEN 'runs' THEN 1 WHEN 'time' THEN (extract(EPOCH FROM lasts) * 1000000)::bigint ELSE coalesce(run_bytes, 0)
END;
COMMENT ON FUNCTION limit_amount(text, interval, bigint) IS 'How much one run takes of a quantity.';

CREATE FUNCTION count_limit_use() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE exceeded text;
BEGIN
    IF NOT EXISTS (SELECT FROM limit_quota) THEN
        RETURN NULL;
    END IF;
    WITH counted AS (
        INSERT INTO limit_use (rule, holder, quantity, period, begins_at, used)
        SELECT
            quota.rule, account.holder, quota.quantity, quota.period, date_bin(quota.period, added.starts_at, 'epoch') AS begins_at,
            sum(limit_amount(quota.quantity, added.ends_at - added.starts_at, account.run_bytes))
        FROM added
        INNER JOIN limit_account AS account ON added.task_id = account.task_id
        INNER JOIN limit_quota AS quota ON account.rule = quota.rule
        WHERE added.state IN ('booked', 'running')
        GROUP BY quota.rule, account.holder, quota.quantity, quota.period, begins_at
        ORDER BY quota.rule, account.holder, quota.quantity, quota.period, begins_at
        ON CONFLICT (rule, holder, quantity, period, begins_at) DO UPDATE SET used = limit_use.used + excluded.used
        RETURNING rule, quantity, period, used
    )

    SELECT counted.rule INTO exceeded
    FROM counted
    INNER JOIN limit_quota AS quota
        ON counted.rule = quota.rule AND counted.quantity = quota.quantity AND counted.period = quota.period
    WHERE counted.used > quota.most
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'more than the limit % allows', exceeded
        USING ERRCODE = 'exclusion_violation', CONSTRAINT = 'run_within_limits', TABLE = 'run';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION count_limit_use() IS
'Counts new runs of tasks with a rule, and refuses what is beyond a quota. node/model/host_limits explains in advance what this
refuses.';
CREATE TRIGGER run_within_limits AFTER INSERT ON run REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION count_limit_use();

CREATE FUNCTION count_led_limit_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO limit_return (rule, holder, quantity, period, begins_at, amount)
    SELECT
        quota.rule, account.holder, quota.quantity, quota.period, date_bin(quota.period, NEW.starts_at, 'epoch'),
        limit_amount(quota.quantity, NEW.ends_at - NEW.starts_at, account.run_bytes)
    FROM limit_account AS account
    INNER JOIN limit_quota AS quota ON account.rule = quota.rule
    WHERE account.task_id = NEW.task_id;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION count_led_limit_use() IS
'Counts a run that has waited, and is booked on others: at a lead that takes no part it keeps its row. The decision has locked what is used.';
CREATE TRIGGER run_led_within_limits AFTER UPDATE ON run FOR EACH ROW
WHEN (old.state = 'waiting' AND new.state = 'booked')
EXECUTE FUNCTION count_led_limit_use();

CREATE FUNCTION drop_limit_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM limit_quota) THEN
        RETURN NULL;
    END IF;
    INSERT INTO limit_return (rule, holder, quantity, period, begins_at, amount)
    SELECT
        quota.rule, account.holder, quota.quantity, quota.period, date_bin(quota.period, removed.starts_at, 'epoch') AS begins_at,
        -sum(limit_amount(quota.quantity, removed.ends_at - removed.starts_at, account.run_bytes))
    FROM removed
    INNER JOIN limit_account AS account ON removed.task_id = account.task_id
    INNER JOIN limit_quota AS quota ON account.rule = quota.rule
    WHERE removed.spec IS NULL AND removed.state IN ('booked', 'set-aside', 'running', 'merging')
    GROUP BY quota.rule, account.holder, quota.quantity, quota.period, begins_at;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION drop_limit_use() IS 'Gives back what was counted for held runs that are dropped.';
CREATE TRIGGER run_dropped_within_limits AFTER DELETE ON run REFERENCING OLD TABLE AS removed
FOR EACH STATEMENT EXECUTE FUNCTION drop_limit_use();

CREATE FUNCTION may_have_begun(run run) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT
        run.started_at IS NOT NULL
        OR (run.participant IS NULL AND (run.state = 'failed' OR coalesce(run.finished_at, run.changed_at) >= run.starts_at))
$$;
COMMENT ON FUNCTION may_have_begun(run) IS
'False of a run that has ended without having begun. A node that takes no part in it does not know when its participants began.';

CREATE FUNCTION give_back_limit_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO limit_return (rule, holder, quantity, period, begins_at, amount)
    SELECT back.rule, back.holder, back.quantity, back.period, back.begins_at, -back.amount
    FROM (
        SELECT
            quota.rule, account.holder, quota.quantity, quota.period, date_bin(quota.period, OLD.starts_at, 'epoch') AS begins_at,
            CASE
                WHEN
                    NEW.state IN ('waiting', 'displaced', 'missed', 'unplaced')
                    OR (NEW.state IN ('cancelled', 'failed') AND NOT may_have_begun(NEW))
                    THEN limit_amount(quota.quantity, OLD.ends_at - OLD.starts_at, account.run_bytes)
                WHEN quota.quantity = 'time' THEN limit_amount(
                    'time',
                    greatest(
                        interval '0', OLD.ends_at - greatest(OLD.starts_at, coalesce(NEW.finished_at, NEW.changed_at))
                    ), NULL
                )
                ELSE 0
            END AS amount
        FROM limit_account AS account
        INNER JOIN limit_quota AS quota ON account.rule = quota.rule
        WHERE account.task_id = OLD.task_id
    ) AS back
    WHERE back.amount > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION give_back_limit_use() IS
'Gives back what was counted for a run that never takes place, and the rest of the time of one that ends early.';
CREATE TRIGGER run_left_limits AFTER UPDATE ON run FOR EACH ROW
WHEN (
    old.spec IS NULL
    AND old.state IN ('booked', 'set-aside', 'running', 'merging')
    AND new.state NOT IN ('booked', 'set-aside', 'running', 'merging')
)
EXECUTE FUNCTION give_back_limit_use();

CREATE FUNCTION recount_limit_use(at timestamptz) RETURNS void LANGUAGE sql AS $$
    DELETE FROM limit_use;
    DELETE FROM limit_return;
    INSERT INTO limit_use (rule, holder, quantity, period, begins_at, used)
    SELECT
        quota.rule, account.holder, quota.quantity, quota.period, date_bin(quota.period, run.starts_at, 'epoch') AS begins_at,
        sum(limit_amount(
            quota.quantity,
            CASE WHEN run.finished_at IS NULL THEN run.ends_at ELSE least(run.ends_at, run.finished_at) END - run.starts_at,
            account.run_bytes
        ))
    FROM limit_quota AS quota
    INNER JOIN limit_account AS account ON quota.rule = account.rule
    INNER JOIN run ON account.task_id = run.task_id
    WHERE
        run.starts_at >= recount_limit_use.at - quota.period - interval '1 day'
        AND (
            run.state IN ('booked', 'set-aside', 'running', 'merging', 'finished')
            OR (run.state IN ('cancelled', 'failed') AND may_have_begun(run))
        )
    GROUP BY quota.rule, account.holder, quota.quantity, quota.period, begins_at
$$;
COMMENT ON FUNCTION recount_limit_use(timestamptz) IS 'Counts all runs anew, for quotas that have changed.';

CREATE FUNCTION move_limit_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM limit_quota) THEN
        RETURN NULL;
    END IF;
    INSERT INTO limit_return (rule, holder, quantity, period, begins_at, amount)
    SELECT
        moved.rule, moved.holder, quota.quantity, quota.period, date_bin(quota.period, run.starts_at, 'epoch') AS begins_at,
        sum(moved.sign * limit_amount(quota.quantity, run.ends_at - run.starts_at, moved.run_bytes))
    FROM (
        SELECT OLD.limit_rule AS rule, coalesce(OLD.limit_user, OLD.lead) AS holder, OLD.run_bytes, -1 AS sign
        UNION ALL
        SELECT cap.value ->> 0, cap.value ->> 1, OLD.run_bytes, -1 FROM jsonb_array_elements(OLD.limit_caps) AS cap
        UNION ALL
        SELECT NEW.limit_rule, coalesce(NEW.limit_user, NEW.lead), NEW.run_bytes, 1
        UNION ALL
        SELECT cap.value ->> 0, cap.value ->> 1, NEW.run_bytes, 1 FROM jsonb_array_elements(NEW.limit_caps) AS cap
    ) AS moved
    INNER JOIN limit_quota AS quota ON moved.rule = quota.rule
    INNER JOIN run ON run.task_id = NEW.id
    WHERE run.state IN ('booked', 'set-aside', 'running', 'merging') AND run.spec IS NULL
    GROUP BY moved.rule, moved.holder, quota.quantity, quota.period, begins_at;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION move_limit_use() IS
'Moves what is counted for the runs of a task to the rule and the caps that apply to it from now on, for example because it was
edited. What is booked stays booked, also if they allow less. A run with a spec of its own stays counted as it was booked.';
CREATE TRIGGER task_moved_limits AFTER UPDATE ON task FOR EACH ROW
WHEN (
    old.limit_rule IS DISTINCT FROM new.limit_rule OR old.limit_caps <> new.limit_caps
    OR old.limit_user IS DISTINCT FROM new.limit_user OR old.run_bytes IS DISTINCT FROM new.run_bytes
)
EXECUTE FUNCTION move_limit_use();

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
    run.priority, run.rank, run.state, standing(run)
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
    circumstances jsonb,
    moved_bytes bigint,
    signature text,
    PRIMARY KEY (run_id, participant),
    CHECK (result IS NOT NULL OR reason IS NOT NULL)
);
COMMENT ON TABLE part IS
'Each participant''s part of a run: a result, or a reason, or both if it failed after measuring. The lead has all parts, the other nodes their own.';
ALTER TABLE part ADD CONSTRAINT part_is_bounded CHECK (
    pg_column_size(result) <= 8000000 AND octet_length(reason) <= 20000 AND octet_length(output) <= 200000
    AND octet_length(array_to_string(command, ' ')) <= 1000000
) NOT VALID; -- of earlier programs there may be larger ones
COMMENT ON COLUMN part.output IS 'Output of the program; of long output the beginning and the end.';
COMMENT ON COLUMN part.circumstances IS
'What the host did meanwhile: tool version, clock, processors, interface, own traffic, other runs; null if not reported.';
COMMENT ON COLUMN part.moved_bytes IS
'(At the lead) the payload that it sent and received, both together, as measured; null if its test does not measure this.';
COMMENT ON COLUMN part.signature IS
'The participant''s signed statement about it (a JWS) with the digests of its values; null if its node signs none.';

CREATE TABLE run_interval (
    run_id uuid NOT NULL REFERENCES run ON DELETE CASCADE,
    number integer NOT NULL CHECK (number >= 0),
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL,
    parts jsonb,
    shares jsonb,
    result jsonb,
    summary text,
    reason text,
    merged_at timestamptz,
    PRIMARY KEY (run_id, number),
    CHECK (starts_at < ends_at),
    CHECK (merged_at IS NULL OR result IS NOT NULL OR reason IS NOT NULL)
);
COMMENT ON TABLE run_interval IS
'(At the lead) what a long run has measured so far, interval by interval. An interval without a result is a gap.';
COMMENT ON COLUMN run_interval.parts IS
'The participants'' parts while some are missing: {participant: {result, reason, signature}}; null once all are merged.';
COMMENT ON COLUMN run_interval.shares IS 'The participants'' parts once all are merged, in the same form, for bundles.';
COMMENT ON COLUMN run_interval.reason IS 'Why it is a gap, or what its result lacks: one sentence.';
COMMENT ON COLUMN run_interval.merged_at IS 'When it was merged; null while parts are missing.';
CREATE INDEX run_interval_open ON run_interval (ends_at) WHERE parts IS NOT NULL AND merged_at IS NULL;

CREATE FUNCTION give_back_unused() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO charge (campaign_id, run_id, participant, node, starts_at, ends_at, weight, bytes, cause, made_at)
    SELECT
        charged.campaign_id, charged.run_id, charged.participant, charged.node, correction.starts_at, OLD.ends_at,
        correction.weight, correction.bytes, correction.cause, NEW.changed_at
    FROM (
        SELECT
            charge.campaign_id, charge.run_id, charge.participant, charge.node, sum(charge.weight) AS weight,
            sum(charge.bytes) AS bytes
        FROM charge
        WHERE charge.starts_at = OLD.starts_at AND charge.run_id = OLD.id AND charge.ends_at = OLD.ends_at
        GROUP BY charge.campaign_id, charge.run_id, charge.participant, charge.node
        HAVING
            sum(charge.weight) FILTER (WHERE charge.cause IN ('booked', 'moved')) > 0
            OR sum(charge.bytes) FILTER (WHERE charge.cause IN ('booked', 'moved')) > 0
    ) AS charged -- to the campaign to which it belongs at last, also if all of it was given back
    LEFT JOIN part ON charged.run_id = part.run_id AND charged.participant = part.participant
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN NEW.state IN ('finished', 'failed', 'cancelled')
                    THEN greatest(OLD.starts_at, coalesce(part.finished_at, NEW.finished_at, NEW.changed_at))
                ELSE OLD.starts_at
            END AS starts_at
    ) AS unused
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN NEW.state NOT IN ('finished', 'failed', 'cancelled') THEN 0
                WHEN part.moved_bytes IS NOT NULL THEN part.moved_bytes
                WHEN NEW.state = 'finished' THEN charged.bytes
                ELSE div(
                    charged.bytes * extract(EPOCH FROM least(unused.starts_at, OLD.ends_at) - OLD.starts_at),
                    extract(EPOCH FROM OLD.ends_at - OLD.starts_at)
                )
            END AS bytes
    ) AS moved
    CROSS JOIN LATERAL (
        VALUES
        (unused.starts_at, CASE WHEN OLD.state = 'failed' THEN 0 ELSE -charged.weight END, 0, 'unused'::charge_cause),
        (
            OLD.starts_at, 0, moved.bytes - charged.bytes,
            CASE WHEN part.moved_bytes IS NULL THEN 'unused' ELSE 'measured' END::charge_cause
        )
    ) AS correction (starts_at, weight, bytes, cause)
    WHERE correction.starts_at < OLD.ends_at AND (correction.weight <> 0 OR correction.bytes <> 0);
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION give_back_unused() IS
'Refunds the campaign for the rest of a run''s time if the run ends before its booked end, or never takes place. What it moved
becomes what was measured; where nothing was, a run that succeeded moved what was expected, another one the part of its time.';
CREATE TRIGGER run_unused AFTER UPDATE ON run FOR EACH ROW
WHEN (
    (
        old.state IN ('booked', 'set-aside', 'running', 'merging')
        AND new.state NOT IN ('booked', 'set-aside', 'running', 'merging')
    )
    OR (old.state = 'failed' AND new.state = 'finished') -- the last part came late
)
EXECUTE FUNCTION give_back_unused();

---------------------------------------------------------------------------------------------------
-- Decisions, and messages to be sent
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
'Every planning attempt: the requested windows, each participant''s offer, the obstacles, the choice.';
COMMENT ON COLUMN decision.times IS
'Number of consecutive attempts with this outcome, from first_at to decided_at; the trace is that of the last one.';
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
COMMENT ON TABLE outbox IS 'Messages to other nodes, sent until they are acknowledged.';
CREATE INDEX outbox_due ON outbox (next_at);
CREATE INDEX outbox_task ON outbox (node, (message ->> 'task'), id) WHERE kind IN ('task-change', 'task-end');
CREATE INDEX outbox_commit ON outbox ((message ->> 'exchange')) WHERE kind = 'commit';

---------------------------------------------------------------------------------------------------
-- Hosts that run pScheduler and take part in tasks of this node
---------------------------------------------------------------------------------------------------

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

---------------------------------------------------------------------------------------------------
-- Webhooks: who is told when something is wrong, and of what they were told
---------------------------------------------------------------------------------------------------

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

---------------------------------------------------------------------------------------------------
-- Alerts on what is measured (at the lead)
---------------------------------------------------------------------------------------------------

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

---------------------------------------------------------------------------------------------------
-- Secrets that specs of tests name
---------------------------------------------------------------------------------------------------

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

---------------------------------------------------------------------------------------------------
-- Archives (at the lead): where results go, and deliveries
---------------------------------------------------------------------------------------------------

CREATE TYPE archived_runs AS ENUM ('succeeded', 'failed', 'all');
CREATE TYPE archiving_state AS ENUM (
    'waiting',    -- to be delivered, for the first time or again
    'delivered',  -- the destination has it
    'parked'      -- rejected, or retried without success for a day: waits for a person, or for a sign of the destination
);

CREATE TABLE destination (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest text NOT NULL UNIQUE,
    archiver text NOT NULL,
    spec jsonb NOT NULL,
    label text NOT NULL,
    ordered boolean NOT NULL,
    last_error text,
    last_error_at timestamptz
);
COMMENT ON TABLE destination IS 'Targets of deliveries: archives with the same archiver and spec share one, with its worker and its batches.';
COMMENT ON COLUMN destination.digest IS 'SHA-256 of archiver and spec.';
COMMENT ON COLUMN destination.spec IS 'The archiver''s own fields, including secrets: never shown.';
COMMENT ON COLUMN destination.label IS 'A description for people, without secrets.';
COMMENT ON COLUMN destination.ordered IS 'Whether the results of a task are delivered in order: a waiting one delays those after it.';

CREATE TABLE archive (
    id uuid PRIMARY KEY,
    task_id uuid REFERENCES task ON DELETE CASCADE,
    place smallint,
    name text CHECK (name ~ '^[a-z][a-z0-9-]{0,62}$'),
    destination_id integer NOT NULL REFERENCES destination,
    runs archived_runs NOT NULL,
    transform jsonb,
    revision integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    removed_at timestamptz,
    form jsonb NOT NULL DEFAULT '{}',
    CHECK (num_nonnulls(task_id, name) = 1 AND (task_id IS NULL) = (place IS NULL))
);
COMMENT ON TABLE archive IS 'Where the results of a task go. An archive without a task is the node''s own, for all tasks that it leads.';
COMMENT ON COLUMN archive.place IS 'Its index in the task document.';
COMMENT ON COLUMN archive.runs IS
'Which runs to deliver: succeeded are those with a result; failed those without, including those that never took place, but not
cancelled ones.';
COMMENT ON COLUMN archive.transform IS '{jmespath} or {jq}, and perhaps {raw}: produces the document to deliver; nothing is delivered if it has no output.';
COMMENT ON COLUMN archive.removed_at IS 'When it was removed; the row stays as long as deliveries refer to it.';
COMMENT ON COLUMN archive.form IS
'{format, ttl, note, uri_host}, those that are set: the form of the documents, and how long after the end of a run they are sent.';
CREATE UNIQUE INDEX archive_name ON archive (name) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX archive_place ON archive (task_id, place) WHERE removed_at IS NULL;
CREATE INDEX archive_task ON archive (task_id);
CREATE INDEX archive_destination ON archive (destination_id);

CREATE TABLE archiving (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    archive_id uuid NOT NULL REFERENCES archive ON DELETE CASCADE,
    destination_id integer NOT NULL REFERENCES destination,
    run_id uuid NOT NULL REFERENCES run ON DELETE CASCADE,
    interval_number integer,
    edition smallint NOT NULL,
    outcome run_state NOT NULL,
    series uuid,
    state archiving_state NOT NULL DEFAULT 'waiting',
    taken boolean NOT NULL DEFAULT false,
    attempts integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    next_at timestamptz,
    first_tried_at timestamptz,
    tried_at timestamptz,
    last_error text,
    given_up boolean NOT NULL DEFAULT false,
    UNIQUE NULLS NOT DISTINCT (run_id, archive_id, interval_number, edition),
    CHECK ((state = 'waiting') = (next_at IS NOT NULL)),
    CONSTRAINT archiving_given_up_parked CHECK (state = 'parked' OR NOT given_up)
) WITH (fillfactor = 80);
COMMENT ON TABLE archiving IS
'The outbox of results: one row per archive for each outcome of a run, and for each merged interval; inserted in the same
transaction.';
COMMENT ON COLUMN archiving.interval_number IS 'The interval of the run; null for the whole run.';
COMMENT ON COLUMN archiving.edition IS
'Counts the outcomes of the run or interval: a failed one becomes finished when a late part arrives.';
COMMENT ON COLUMN archiving.outcome IS 'The state of the run at that outcome; for an interval finished, or failed if it is a gap.';
COMMENT ON COLUMN archiving.series IS 'The task, if the destination is ordered: its results are delivered in order.';
COMMENT ON COLUMN archiving.taken IS 'Whether it is being delivered; it is retried at next_at if no outcome is recorded.';
COMMENT ON COLUMN archiving.attempts IS 'Number of failed attempts.';
COMMENT ON COLUMN archiving.given_up IS
'It was parked after a day of attempts: it is delivered once its destination accepts anything again.';
CREATE INDEX archiving_due ON archiving (destination_id, next_at, number) WHERE state = 'waiting';
CREATE INDEX archiving_series ON archiving (destination_id, series, number) WHERE state = 'waiting' AND series IS NOT NULL;
CREATE INDEX archiving_parked ON archiving (destination_id, number) WHERE state = 'parked';
CREATE INDEX archiving_given_up ON archiving (destination_id, number) WHERE given_up;
CREATE INDEX archiving_archive ON archiving (archive_id, number);
COMMENT ON INDEX archiving_due IS 'Excludes parked and delivered rows, so that they do not slow down the search for work.';

CREATE FUNCTION archive_outcome() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE TRIGGER run_archived AFTER INSERT OR UPDATE OF state ON run FOR EACH ROW
WHEN (new.state IN ('finished', 'failed', 'missed', 'displaced', 'unplaced'))
EXECUTE FUNCTION archive_outcome();

CREATE FUNCTION archive_intervals() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    destination integer;
BEGIN
    FOR destination IN
        INSERT INTO archiving (
            archive_id, destination_id, run_id, interval_number, edition, outcome, series, created_at, next_at
        )
        SELECT
            archive.id, destination.id, made.run_id, made.number,
            1 + (
                SELECT coalesce(max(earlier.edition), 0) FROM archiving AS earlier
                WHERE
                    earlier.run_id = made.run_id AND earlier.archive_id = archive.id
                    AND earlier.interval_number = made.number
            ),
            made.outcome, CASE WHEN destination.ordered THEN task.id END, made.merged_at, made.merged_at
        FROM (
            SELECT
                after.run_id, after.number, after.merged_at,
                CASE WHEN after.result IS NULL THEN 'failed' ELSE 'finished' END::run_state AS outcome
            FROM after
            INNER JOIN before ON after.run_id = before.run_id AND after.number = before.number
            WHERE
                after.merged_at IS NOT NULL
                AND (
                    before.merged_at IS NULL OR after.result IS DISTINCT FROM before.result
                    OR after.reason IS DISTINCT FROM before.reason
                )
        ) AS made
        INNER JOIN run ON made.run_id = run.id
        INNER JOIN task ON run.task_id = task.id
        INNER JOIN node ON task.lead = node.identity AND node.is_self
        INNER JOIN archive ON archive.task_id IS NULL OR archive.task_id = coalesce(task.parent, task.id)
        INNER JOIN destination ON archive.destination_id = destination.id
        WHERE
            archive.removed_at IS NULL
            AND archive.runs IN ('all', CASE made.outcome WHEN 'finished' THEN 'succeeded' ELSE 'failed' END::archived_runs)
        ORDER BY made.run_id, made.number, archive.id
        RETURNING destination_id
    LOOP
        PERFORM pg_notify('parley', 'result ' || destination);
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION archive_intervals() IS
'Queues the delivery of an interval as soon as it is merged, and again if a late part changed it.';
CREATE TRIGGER interval_archived AFTER UPDATE ON run_interval
REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION archive_intervals();

CREATE TABLE parked_count (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    destination_id integer NOT NULL REFERENCES destination ON DELETE CASCADE,
    change integer NOT NULL
);
COMMENT ON TABLE parked_count IS
'Number of parked deliveries: the sum for each destination. A transaction that changes the number adds a row and combines the
rows that are not locked, so that no transaction waits for another.';
CREATE INDEX parked_count_destination ON parked_count (destination_id);

CREATE FUNCTION count_parked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF EXISTS (SELECT FROM before WHERE state = 'parked') OR EXISTS (SELECT FROM after WHERE state = 'parked') THEN
            PERFORM add_parked(array_agg(change.destination_id), array_agg(change.sum)) FROM (
                SELECT every.destination_id, sum(every.change)::integer AS sum FROM (
                    SELECT before.destination_id, -1 AS change FROM before WHERE before.state = 'parked'
                    UNION ALL
                    SELECT after.destination_id, 1 FROM after WHERE after.state = 'parked'
                ) AS every
                GROUP BY every.destination_id
            ) AS change;
        END IF;
    ELSIF EXISTS (SELECT FROM before WHERE state = 'parked') THEN
        PERFORM add_parked(array_agg(change.destination_id), array_agg(change.sum)) FROM (
            SELECT before.destination_id, -count(*)::integer AS sum FROM before
            WHERE before.state = 'parked'
            GROUP BY before.destination_id
        ) AS change;
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION add_parked(destinations integer [], changes integer []) RETURNS void LANGUAGE sql AS $$
    WITH added AS (
        SELECT given.destination_id, given.change FROM unnest(destinations, changes) AS given (destination_id, change)
    ),
    known AS (
        DELETE FROM parked_count WHERE number IN (
            SELECT number FROM parked_count WHERE destination_id = ANY(destinations) FOR UPDATE SKIP LOCKED
        )
        RETURNING destination_id, change
    )
    INSERT INTO parked_count (destination_id, change)
    SELECT every.destination_id, sum(every.change)
    FROM (SELECT * FROM added UNION ALL SELECT * FROM known) AS every
    GROUP BY every.destination_id
    HAVING sum(every.change) <> 0
$$;
COMMENT ON FUNCTION count_parked() IS 'Maintains parked_count; if nothing is parked, it only looks at the rows that were changed.';
COMMENT ON FUNCTION add_parked(integer [], integer []) IS 'Adds to the sums of some destinations, and combines their rows.';
CREATE TRIGGER parked_counted AFTER UPDATE ON archiving
REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION count_parked();
CREATE TRIGGER parked_uncounted AFTER DELETE ON archiving
REFERENCING OLD TABLE AS before FOR EACH STATEMENT EXECUTE FUNCTION count_parked();

---------------------------------------------------------------------------------------------------
-- Views for people and dashboards, readable by the role parley_reader
---------------------------------------------------------------------------------------------------

CREATE FUNCTION lead_name(name text, identity text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN coalesce(name, 'pScheduler at ' || substring(identity FROM '^pscheduler:([^/].*)$'));
COMMENT ON FUNCTION lead_name(text, text) IS
'The lead of a task for people: the name of a node, or the address of one of pScheduler, which has no key. Null if it is unknown.';

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

CREATE FUNCTION is_tried_again(task uuid, slot timestamptz, attempt integer, state text) RETURNS boolean LANGUAGE sql STABLE
RETURN state IN ('failed', 'missed') AND EXISTS (
    SELECT FROM run AS later
    WHERE
        later.task_id = task AND later.slot = is_tried_again.slot AND later.attempt > is_tried_again.attempt
        AND NOT later.freed AND later.state NOT IN ('cancelled', 'displaced')
);
COMMENT ON FUNCTION is_tried_again(uuid, timestamptz, integer, text) IS
'Whether a run came to nothing and a later attempt has its slot: people are told of the slot once, by its last attempt.';

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

CREATE VIEW reserved_time AS
SELECT
    reservation.id AS reservation_id,
    reservation.pool,
    reservation.kind,
    reservation.name,
    reservation.owner,
    reserved.starts_at,
    reserved.ends_at,
    reservation.access,
    reservation.description
FROM reserved
INNER JOIN reservation ON reserved.reservation_id = reservation.id;
COMMENT ON VIEW reserved_time IS 'Reserved time of this node and of pools that it leads: what for, by whom, and for whom.';

CREATE VIEW campaign_usage AS
SELECT
    used.hour AS starts_at,
    campaign.name AS campaign,
    parent.name AS parent,
    campaign.weight,
    campaign.level,
    used.nodes,
    (used.amount / 1000000000)::double precision AS seat_seconds,
    coalesce(used.amount / nullif(sum(used.amount) OVER (PARTITION BY used.hour), 0), 0)::double precision AS share,
    used.bytes::bigint AS bytes
FROM (
    SELECT hour, campaign_id, count(DISTINCT node) AS nodes, sum(amount) AS amount, sum(bytes) AS bytes
    FROM charge_hour
    WHERE amount <> 0 OR bytes <> 0
    GROUP BY hour, campaign_id
) AS used
INNER JOIN campaign ON used.campaign_id = campaign.id
LEFT JOIN campaign AS parent ON campaign.parent_id = parent.id;
COMMENT ON VIEW campaign_usage IS
'Usage of the nodes (at the lead): for each hour with runs, past or booked, and each campaign the charged seats and the share of
all charges. One exclusive run on one node for a whole hour is 3600 seat-seconds. Bytes count in the hour in which their run starts.';

CREATE VIEW campaign_node_day AS
SELECT
    date_trunc('day', charge_hour.hour, 'UTC') AS day,
    campaign.name AS campaign,
    coalesce(node.name, charge_hour.node) AS node,
    (sum(charge_hour.amount) / 1000000000)::double precision AS seat_seconds,
    sum(charge_hour.bytes)::bigint AS bytes
FROM charge_hour
INNER JOIN campaign ON charge_hour.campaign_id = campaign.id
LEFT JOIN node ON charge_hour.node = node.identity
WHERE charge_hour.amount <> 0 OR charge_hour.bytes <> 0
GROUP BY date_trunc('day', charge_hour.hour, 'UTC'), campaign.name, coalesce(node.name, charge_hour.node);
COMMENT ON VIEW campaign_node_day IS
'What each campaign was charged on each node (at the lead), by day in UTC, past or booked: seat-seconds, and payload in bytes.';

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

CREATE VIEW mesh_task AS
SELECT
    task.id AS task_id,
    task.reference ->> 'mesh' AS mesh,
    task.reference ->> 'key' AS key,
    split_part(task.reference ->> 'key', '/', 2) AS source,
    split_part(task.reference ->> 'key', '/', 3) AS dest,
    task.test,
    task.state::text AS state,
    task.campaign,
    task.requester,
    task.created_at,
    task.ended_at
FROM task
INNER JOIN node ON task.lead = node.identity AND node.is_self
WHERE length(task.reference ->> 'mesh') <= 63 AND length(task.reference ->> 'key') <= 400 AND task.parent IS NULL;
COMMENT ON VIEW mesh_task IS
'The tasks of meshes (at the lead), by the name of the mesh and the key in it: label/source/dest.';

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

CREATE FUNCTION plain_cause(reason text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN regexp_replace(
    reason,
    '[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:.]+Z|\mPT?\d[0-9WDHMST.]*\M|(?<=\s)\d[0-9.,]*( (d|h|min|s|ms)\M( \d[0-9.,]* (h|min|s)\M)*)?',
    '…', 'g'
);
COMMENT ON FUNCTION plain_cause(text) IS 'A reason without times, lengths and ids, for counting.';

CREATE FUNCTION slot_outcome(state text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN state = 'finished' THEN 'delivered'
    WHEN state IN ('waiting', 'booked', 'running', 'merging', 'set-aside') THEN 'open'
    ELSE 'missing'
END;
COMMENT ON FUNCTION slot_outcome(text) IS 'What a run in this state means for its slot: delivered, missing, or open.';

CREATE VIEW mesh_delivery AS
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

---------------------------------------------------------------------------------------------------
-- Sums of what meshes deliver: the view mesh_delivery, kept as counters
---------------------------------------------------------------------------------------------------

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
COMMENT ON COLUMN mesh_day.cause IS 'The cause as in mesh_delivery; of delivered slots bad, no-answer, or null.';
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

CREATE FUNCTION is_within(key text, requester text, first_key text, last_key text, creator text) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN (first_key IS NULL OR key >= first_key) AND (last_key IS NULL OR key <= last_key) AND (creator IS NULL OR requester = creator);
COMMENT ON FUNCTION is_within(text, text, text, text, text) IS
'Whether a task of a mesh has one of these keys and is of this user; all are meant where a bound or the user is null.';

CREATE FUNCTION mesh_slots(
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
COMMENT ON FUNCTION mesh_slots(text, timestamptz, timestamptz, text, text, text) IS
'The slots of a mesh''s tasks from one instant to another, as mesh_delivery and mesh_gap tell them, as terms of a sum by task, state
and cause. Whole hours are read from mesh_day, those in mesh_recount and parts of hours slot by slot. All keys if the first
and the last one are null, the tasks of all users if the creator is.';

-- Roles belong to the whole server: the owner of this database may not be allowed to create one.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader') THEN
        BEGIN
            CREATE ROLE parley_reader NOLOGIN;
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE NOTICE 'not permitted to create the role parley_reader; an administrator can: createuser --no-login parley_reader';
            WHEN duplicate_object OR unique_violation THEN NULL; -- another node of this server created it
        END;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader') THEN
        GRANT SELECT ON run_known, run_now, run_upcoming, run_missed, run_history, interval_history, node_occupancy,
        campaign_usage, campaign_node_day, reserved_time, decision_trace, mesh_task, mesh_delivery, run_gap, mesh_gap TO parley_reader;
    END IF;
END
$$;
