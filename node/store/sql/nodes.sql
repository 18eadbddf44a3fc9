-- keep_self --
-- This node's own card; a changed name, URL or address replaces the old one. Another key is another node.
INSERT INTO node (identity, name, url, address, is_self, added_at, attributes, lanes)
VALUES ($1, $2, $3, $4, true, $5, $6, $7)
ON CONFLICT (identity) DO UPDATE
SET name = excluded.name, url = excluded.url, address = excluded.address, attributes = excluded.attributes,
    lanes = excluded.lanes;

-- set_attributes --
SELECT set_attributes FROM node WHERE is_self FOR UPDATE;

-- keep_set_attributes --
UPDATE node SET set_attributes = $1 WHERE is_self;

-- learn --
UPDATE node SET attributes = $2, lanes = $3, address = $4 WHERE identity = $1 AND NOT is_self;

-- doubt --
UPDATE node SET last_error = $2 WHERE identity = $1;

-- lineage --
SELECT lineage FROM node WHERE identity = $1 FOR UPDATE;

-- keep_lineage --
-- The chain of a node's keys, which grows only from the one that was compared with it.
UPDATE node SET lineage = $3, followed_at = coalesce(followed_at, '{}') || $4::timestamptz []
WHERE identity = $1 AND lineage IS NOT DISTINCT FROM $2
RETURNING identity;

-- followed_at --
SELECT followed_at FROM node WHERE identity = $1 FOR UPDATE;

-- keep_revocation --
-- The first revocation of a key is the one that counts.
INSERT INTO revocation (key, statement, ends_node, heard_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (key) DO NOTHING
RETURNING pg_notify('parley', 'successor');

-- forget_unsigned --
-- Of a key that the owner of this node alone has revoked; a signed revocation, which is told to others, takes its place.
DELETE FROM revocation WHERE key = $1 AND statement = '';

-- revoked --
SELECT key, ends_node FROM revocation;

-- revocations_to_tell --
-- By node, what it has not been told yet, the oldest first.
SELECT node.identity, revocation.number, revocation.statement
FROM node
INNER JOIN revocation ON node.revocations_told < revocation.number
WHERE NOT node.is_self AND node.identity LIKE 'ed25519:%' AND revocation.statement <> ''
ORDER BY node.identity, revocation.number;

-- told_revocations --
UPDATE node SET revocations_told = $2 WHERE identity = $1;

-- own_identity --
SELECT identity FROM node WHERE is_self;

-- keep --
-- Pins a node by its key; a known key with a new name or URL is updated.
INSERT INTO node (identity, name, url, address, added_at, seen_at, attributes, lanes)
VALUES ($1, $2, $3, $4, $5, $5, $6, $7)
ON CONFLICT (identity) DO UPDATE
SET name = excluded.name, url = excluded.url, address = excluded.address, seen_at = excluded.seen_at,
    attributes = excluded.attributes, lanes = excluded.lanes, unreachable_since = NULL, last_error = NULL
WHERE NOT node.is_self
RETURNING identity;

-- pin --
-- A node of which only the key is known: it has no URL, and sends its card when it fetches its work.
INSERT INTO node (identity, name, address, added_at) VALUES ($1, $2, $2, $3)
ON CONFLICT (identity) DO UPDATE SET url = NULL, seen_at = NULL, unreachable_since = NULL, last_error = NULL
WHERE NOT node.is_self;

-- nodes --
SELECT
    identity, name, url, address, is_self, added_at, seen_at, unreachable_since, last_error, busy_until,
    shortfall, attributes, lanes, heard_at, lineage, followed_at
FROM node ORDER BY is_self DESC, name;

-- uncompared --
SELECT identity FROM node WHERE uncompared;

-- compared --
-- Only if the database was not restored once more while the nodes compared.
UPDATE node SET uncompared = false
WHERE identity = $1 AND uncompared AND EXISTS (SELECT FROM generation WHERE id = $2);

-- remove --
DELETE FROM node WHERE name = $1 AND NOT is_self RETURNING identity;

-- lock_node --
SELECT identity FROM node WHERE identity = $1 FOR UPDATE;

-- lock_outside --
SELECT pg_advisory_xact_lock(hashtextextended($1, 6427018317));

-- heard --
UPDATE node SET heard_at = $2 WHERE identity = ANY($1::text []);

-- silent_leads --
SELECT node.identity, node.name, coalesce(node.heard_at, node.added_at) AS last_heard_at
FROM node
WHERE
    NOT node.is_self
    AND coalesce(node.heard_at, node.added_at) < $1
    AND EXISTS (SELECT FROM task WHERE task.lead = node.identity AND task.state IN ('active', 'paused'))
ORDER BY node.name;

-- reached --
UPDATE node SET seen_at = $2, unreachable_since = NULL, last_error = NULL WHERE identity = ANY($1::text []);

-- not_reached --
UPDATE node SET unreachable_since = coalesce(unreachable_since, $2), last_error = $3 WHERE identity = $1;

-- partners --
-- The nodes with which open tasks are shared: those that lead them, take part, or keep what they take.
WITH shared AS MATERIALIZED (
    SELECT task.lead, parties(task) AS parties FROM task WHERE task.state IN ('active', 'paused')
)

SELECT shared.lead FROM shared
UNION
SELECT party.value ->> 'node' FROM shared CROSS JOIN jsonb_array_elements(shared.parties) AS party
WHERE party.value ->> 'node' IS NOT NULL;

-- pardon --
-- Forgets what policies hold against a node: its failed runs, and the pauses after its refusals.
WITH forgiven AS (
    UPDATE policy_state
    SET
        state = jsonb_set(
            policy_state.state, '{backoffs}',
            (
                SELECT coalesce(jsonb_agg(entry.value), '[]')
                FROM jsonb_array_elements(policy_state.state -> 'backoffs') AS entry
                WHERE entry.value -> 0 ->> 1 <> $1
            )
        ),
        revision = policy_state.revision + 1, changed_at = $2
    WHERE jsonb_array_length(policy_state.state -> 'backoffs') > 0
)

UPDATE node SET pardoned_at = $2 WHERE name = $1;

-- keep_figures --
-- The figures of a node that fetches its work: how much more it could take.
UPDATE node SET busy_until = $2, shortfall = $3 WHERE identity = $1;

-- keep_mark --
-- Keeps the latest mark of another node's database, and returns the one that was known before.
WITH kept AS (
    UPDATE node SET marked_at = $2 WHERE identity = $1 AND (marked_at IS NULL OR marked_at < $2)
)

SELECT marked_at FROM node WHERE identity = $1;

-- announcement --
-- What a node has announced; locked, so that of several announcements the latest one is kept.
SELECT announcement FROM node WHERE identity = $1 FOR UPDATE;

-- keep_announcement --
UPDATE node SET announcement = $2 WHERE identity = $1;

-- keep_former_url --
UPDATE generation SET former_url = $1;

-- former_url --
SELECT former_url FROM generation;

-- move --
UPDATE node SET url = $2, address = $3, seen_at = $4, unreachable_since = NULL, last_error = NULL
WHERE identity = $1 AND NOT is_self;

-- successor --
SELECT successor, copy_of FROM generation;

-- keep_copy --
-- Whether these data are a copy of a node that goes on, and where; the other processes here end, too. What one of them has found
-- to be a copy is one, although another process found nobody: the original may be away for a moment.
WITH kept AS (
    UPDATE generation SET copy_of = CASE WHEN $1::text IS NULL AND copy_of <> '' THEN copy_of ELSE $1 END
    RETURNING copy_of
)

SELECT kept.copy_of FROM kept CROSS JOIN LATERAL pg_notify('parley', 'successor');

-- give_up --
-- Another host has this node. Only in the generation that was announced there is nothing later.
UPDATE generation SET successor = $2 WHERE id = $1 AND successor IS NULL
RETURNING pg_notify('parley', 'successor');
