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
