-- lock_set_up --
-- Two services of one node may start at once: one of them sets up the database, the other waits.
SELECT pg_advisory_xact_lock($1);

-- has_version --
SELECT to_regclass('schema_version') IS NOT NULL;

-- count_tables --
SELECT count(*) FROM pg_tables WHERE schemaname = current_schema();

-- keep_version --
INSERT INTO schema_version (version, digest) VALUES ($1, $2);

-- version --
-- Earlier schemas have no digest.
SELECT version, to_jsonb(schema_version) ->> 'digest' AS digest FROM schema_version ORDER BY version DESC LIMIT 1;
