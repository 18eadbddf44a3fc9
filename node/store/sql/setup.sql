-- lock_set_up --
-- Two services of one node may start at once: one of them sets up the database, the other waits, however long.
SELECT pg_advisory_xact_lock($1) FROM set_config('lock_timeout', '0', true);

-- has_version --
SELECT to_regclass('schema_version') IS NOT NULL;

-- count_tables --
SELECT count(*) FROM pg_tables WHERE schemaname = current_schema();

-- keep_version --
INSERT INTO schema_version (version, digest, migration, oldest_program) VALUES ($1, $2, $3, $4);

-- wait_briefly --
-- Whoever waits behind a step that waits for a table waits as long as that.
SET LOCAL lock_timeout = '3s';

-- count_earlier --
-- Connections of programs with an earlier schema than this one; those of version 4 did not say which they have.
SELECT count(*) FROM pg_stat_activity
WHERE
    datname = current_database() AND usename = current_user AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    AND (CASE application_name WHEN '' THEN '4' ELSE substring(application_name FROM '^parley schema (\d+)$') END)::integer < $1;

-- place --
-- Differs in every copy of a database that was restored from a dump or made from a template. The time line of a server
-- changes when it is restored to a point in time, and when a standby server takes over.
SELECT concat_ws(
    '/', (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END,
    (SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass('task')::oid
);

-- first_generation --
-- Another process of this node may be the first.
INSERT INTO generation (id, place, marked_at, host)
VALUES (gen_random_uuid(), $1, greatest($2::timestamptz + interval '1 microsecond', clock_timestamp()), $3)
ON CONFLICT DO NOTHING;

-- generation --
-- Another process of this node may look at the same time. A generation is young long enough that both services of a node see it,
-- though they start one after the other. A new database gets its first one when it is set up, which no restore has made.
SELECT
    id, place, made_at, marked_at, clock_timestamp() AS now, host, copy_of, made_at > now() - interval '10 minutes' AS is_young,
    (SELECT min(applied_at) FROM schema_version) + interval '1 minute' AS first_until
FROM generation FOR UPDATE;

-- stored_marks --
SELECT host, marked_at FROM generation;

-- keep_host --
-- The same host has another set of network cards, or an earlier program did not write it.
UPDATE generation SET host = $1 WHERE host IS DISTINCT FROM $1;

-- mark --
UPDATE generation
SET marked_at = greatest(marked_at + interval '1 microsecond', least(clock_timestamp(), marked_at + $1::interval))
RETURNING id, marked_at, copy_of;

-- new_generation --
-- The other processes of this node take it over.
UPDATE generation
SET
    id = gen_random_uuid(), place = $1, made_at = now(),
    marked_at = greatest($2::timestamptz + interval '1 microsecond', clock_timestamp()), successor = NULL,
    host = coalesce($3, host), copy_of = $4
RETURNING id, marked_at, copy_of, pg_notify('parley', 'generation');

-- reclaim --
-- As if the data were in another place: the next start makes a new generation, later than all others.
UPDATE generation SET place = '', successor = NULL;

-- given_here --
-- Whoever restores a backup says by that where the node is to be: no other host is asked whether it goes on.
UPDATE generation SET place = '';

-- raise_all_epochs --
-- Above every epoch that was given after the backup: no lead claims a task once a microsecond. Other nodes refuse lower ones.
-- Workers may still plan beside it.
WITH every AS (
    SELECT task_id FROM planning
    ORDER BY task_id -- all transactions lock in the same order
    FOR NO KEY UPDATE
)

UPDATE planning SET lease_epoch = greatest(lease_epoch, (extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint)
FROM every
WHERE planning.task_id = every.task_id;

-- doubt_all_nodes --
-- Whatever was agreed with them after the backup is not known here.
UPDATE node SET uncompared = true WHERE NOT is_self;

-- versions --
-- Databases of version 4 and before do not say all of it.
SELECT
    version, to_jsonb(schema_version) ->> 'digest' AS digest, to_jsonb(schema_version) ->> 'migration' AS migration,
    coalesce((to_jsonb(schema_version) ->> 'oldest_program')::integer, version) AS oldest_program
FROM schema_version
ORDER BY version;

-- contents --
SELECT
    EXISTS (SELECT FROM pg_tables WHERE schemaname = 'public') AS tables,
    (
        SELECT count(*) FROM pg_stat_activity
        WHERE
            datname = current_database() AND usename = current_user AND backend_type = 'client backend'
            AND pid <> pg_backend_pid() AND (application_name = '' OR starts_with(application_name, 'parley'))
    ) AS connections;

-- drop_all --
DROP SCHEMA public CASCADE;

-- make_schema --
CREATE SCHEMA public;

-- open_schema --
-- As in a new database.
GRANT USAGE ON SCHEMA public TO public;

-- make_reader --
CREATE ROLE parley_reader NOLOGIN;

-- has_reader --
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'parley_reader');

-- databases --
-- This one first.
SELECT datname FROM pg_database WHERE datallowconn ORDER BY datname <> current_database(), datname;

-- vacuum --
-- It reads no index, which may be damaged.
VACUUM (FREEZE, INDEX_CLEANUP OFF, TRUNCATE OFF);

-- sorted_as_today --
-- The statement by which it is known which version of the server's library the indexes have been made with.
SELECT format('ALTER DATABASE %I REFRESH COLLATION VERSION', datname) FROM pg_database
WHERE datname = current_database() AND datcollversion <> pg_database_collation_actual_version(oid);

-- own_tables --
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1;
