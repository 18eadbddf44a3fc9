-- A table of results in a Postgres that is not Parley's own: what the archiver "postgresql" creates
-- there, if permitted, and the statements that it uses. One row for each document, complete; the
-- view has one row for each figure. "at" is in the key because TimescaleDB requires its time column
-- in every unique key:
--     SELECT create_hypertable('parley_result', 'at');
-- Everything else about the table is up to its owner: columns with defaults, indexes, policies.

-- lock --
-- Two nodes may notice at once that there is no table.
SELECT pg_advisory_xact_lock(6427018311);

-- table --
CREATE TABLE parley_result (
    at timestamptz NOT NULL,            -- when the run was over
    key text NOT NULL,                  -- of the delivery: the same however often it is repeated
    series text NOT NULL,               -- the task
    test text,                          -- what was measured, if the document says it
    state text,                         -- the outcome of the run, if the document says it
    succeeded boolean NOT NULL,
    document jsonb NOT NULL,
    PRIMARY KEY (key, at)
);

-- index --
CREATE INDEX parley_result_series_at ON parley_result (series, at DESC);

-- figures --
CREATE VIEW parley_metric AS
SELECT
    result.at,
    result.series,
    result.test,
    figure ->> 'name' AS name,
    (figure ->> 'value')::double precision AS value,
    figure ->> 'unit' AS unit,
    figure -> 'labels' AS labels,
    result.document ->> 'run' AS run,
    result.key
FROM
    parley_result AS result,
    jsonb_array_elements(
        CASE jsonb_typeof(result.document -> 'metrics')
            WHEN 'array' THEN result.document -> 'metrics' ELSE '[]'
        END
    ) AS figure;

-- find --
-- Whether a table exists in the search path.
SELECT to_regclass($1) IS NOT NULL;

-- may_insert --
SELECT has_table_privilege(to_regclass($1), 'INSERT');

-- insert --
-- Existing rows stay as they are. Instants are microseconds since 1970.
INSERT INTO parley_result (at, key, series, test, state, succeeded, document)
SELECT
    'epoch'::timestamptz + one.at * interval '1 microsecond',
    one.key,
    one.series,
    one.document::jsonb #>> '{test,type}',
    one.document::jsonb ->> 'state',
    one.succeeded,
    one.document::jsonb
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::boolean[], $5::text[])
    AS one (at, key, series, succeeded, document)
ON CONFLICT DO NOTHING;
