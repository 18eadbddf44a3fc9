-- asked --
-- One invariant, or several after each other.
SELECT node, '{name}' AS invariant, id::text AS id, what FROM ({query}) AS found (node, id, what)

-- always --
-- $1 is the true time, $2 that of the node's clock, $3 how far clocks may be apart, $4 the time after a start in which no hold is
-- looked at.
WITH {tables},

occupied AS ({occupied}),

round AS (SELECT $1::timestamptz AS now, $2::timestamptz AS clock, $3::interval AS precision, $4::interval AS starting)

{asked}
ORDER BY 1, 2, 3, 4

-- all --
{asked}
ORDER BY 1, 2, 3, 4

-- ready --
CREATE TABLE occupied AS {occupied};
{rest}

-- rows --
SELECT json_build_object({rows})::text AS document

-- rows_of --
(SELECT coalesce(json_agg(it), '[]') FROM ({query}) AS it)

-- finished_tasks --
SELECT it.id, to_json(it)::text AS document FROM ({query}) AS it WHERE it.led_here AND it.state = 'finished'

-- filling --
INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, $1::text::json)

-- filling_all --
WITH {fillings}

SELECT 1 AS filled

-- filling_from --
{table}s AS (INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, $1::text::json -> '{table}'))

-- finished --
INSERT INTO task
SELECT old.* FROM json_populate_record(NULL::task, $1::text::json) AS old
WHERE NOT EXISTS (SELECT FROM task WHERE task.id = old.id AND task.node = old.node)

-- round --
INSERT INTO round VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
