-- blockers --
-- All backends that have to end a transaction before this one can go on; itself among them if that is never.
WITH RECURSIVE blocker (pid) AS (
    SELECT unnest(pg_blocking_pids($1))
    UNION
    SELECT unnest(pg_blocking_pids(blocker.pid)) FROM blocker
)

SELECT coalesce(array_agg(pid), '{}') AS chain FROM blocker;

-- tables --
-- All but those whose rows come with the schema.
SELECT quote_ident(relname) AS name
FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'schema_version'
ORDER BY relname;

-- unguarded --
-- Triggers keep the rows of some tables, and references are of no account when all rows go.
SET session_replication_role = replica;

-- guarded --
RESET session_replication_role;

-- first_numbers --
SELECT setval(oid::regclass, 1, false)
FROM pg_class
WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace;

-- columns --
-- The columns of a table that can be written.
SELECT quote_ident(attname) AS name
FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum;

-- raise_epochs --
-- Above every epoch that was given after the backup.
UPDATE planning SET lease_epoch = greatest(lease_epoch, $1);

-- make_template --
CREATE DATABASE simulated;

-- make_database --
CREATE DATABASE {database} TEMPLATE simulated;

-- drop_database --
DROP DATABASE {database} WITH (FORCE);

-- vacuum --
VACUUM {tables};

-- forget_sizes --
-- Tables that are empty by what is known of them get plans that read all of one for each row of another. Of tables that were
-- never vacuumed nothing is known, and they are taken for larger ones.
UPDATE pg_class SET relpages = 0, reltuples = -1
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND reltuples >= 0;

-- filled --
SELECT '{table}' AS name WHERE EXISTS (SELECT FROM {table})

-- delete --
DELETE FROM {table};

-- begin_backup --
DROP SCHEMA IF EXISTS backup CASCADE;
CREATE SCHEMA backup;

-- copy --
CREATE TABLE backup.{table} AS TABLE {table};

-- copy_back --
INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM backup.{table};

-- cancel --
SELECT pg_cancel_backend($1);
