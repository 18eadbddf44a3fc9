-- lock_set_up --
-- Two services of one node may start at once: one of them sets up the database, the other waits.
SELECT pg_advisory_xact_lock($1);

-- has_version --
SELECT to_regclass('schema_version') IS NOT NULL;

-- count_tables --
SELECT count(*) FROM pg_tables WHERE schemaname = current_schema();

-- keep_version --
INSERT INTO schema_version (version, digest) VALUES ($1, $2);

-- place --
-- Differs in every copy of a database that was restored from a dump or made from a template.
SELECT concat_ws(
    '/', (SELECT system_identifier FROM pg_control_system()),
    (SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass('task')::oid
);

-- first_generation --
INSERT INTO generation (id, place) VALUES (gen_random_uuid(), $1) RETURNING id;

-- generation --
SELECT id, place FROM generation;

-- is_fresh --
-- Long enough that both services of a node see it, though they start one after the other.
SELECT made_at > now() - interval '10 minutes' FROM generation;

-- new_generation --
UPDATE generation SET id = gen_random_uuid(), place = $1, made_at = now() RETURNING id;

-- raise_all_epochs --
-- Above every epoch that was given after the backup: no lead claims a task once a microsecond. Other nodes refuse lower ones.
UPDATE planning SET lease_epoch = greatest(lease_epoch, (extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint);

-- version --
-- Earlier schemas have no digest.
SELECT version, to_jsonb(schema_version) ->> 'digest' AS digest FROM schema_version ORDER BY version DESC LIMIT 1;
