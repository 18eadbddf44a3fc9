-- numbers --
SELECT name, number FROM resource;

-- states --
-- What is taken of each resource at an instant, the most from then on, which is where a run begins, and by how many runs.
SELECT
    resource.name, resource.number,
    coalesce(sum(taken.amount) FILTER (WHERE taken.during @> $1::timestamptz), 0)::integer AS taken,
    coalesce(max(beside.amount), 0)::integer AS peak,
    count(taken.run_id)::integer AS runs
FROM resource
LEFT JOIN resource_taken AS taken ON resource.name = taken.resource AND taken.ends_at > $1::timestamptz
LEFT JOIN LATERAL (
    SELECT sum(other.amount) AS amount FROM resource_taken AS other
    WHERE other.resource = taken.resource AND other.during @> greatest(taken.starts_at, $1::timestamptz)
) AS beside ON TRUE
GROUP BY resource.name, resource.number
ORDER BY resource.name;

-- drop --
DELETE FROM resource WHERE name <> ALL($1::text []);

-- keep --
INSERT INTO resource (name, number)
SELECT given.name, given.number
FROM unnest($1::text [], $2::integer []) AS given (name, number)
ORDER BY given.name
ON CONFLICT (name) DO UPDATE SET number = excluded.number WHERE resource.number <> excluded.number;

-- lock --
-- Holds of the same resources take turns until the transaction ends.
SELECT name, number FROM resource WHERE name = ANY($1::text []) ORDER BY name FOR NO KEY UPDATE;

-- uses --
-- What runs take of these resources in these spans; those that begin before $4, or have begun, do not give way.
SELECT
    taken.resource, taken.run_id, taken.starts_at, taken.ends_at, taken.amount, taken.rank, taken.standing,
    taken.state <> 'booked' OR taken.starts_at < $4 AS fixed, task.test, task.lead,
    CASE WHEN task.schedule ->> 'displacement_budget' IS NOT NULL THEN taken.task_id END AS series, taken.task_id
FROM resource_taken AS taken
INNER JOIN task ON taken.task_id = task.id
WHERE
    taken.resource = ANY($1::text [])
    AND taken.during && (
        SELECT range_agg(tstzrange(asked.starts_at, asked.ends_at))
        FROM unnest($2::timestamptz [], $3::timestamptz []) AS asked (starts_at, ends_at)
    )
ORDER BY taken.starts_at, taken.run_id;

-- set_aside --
-- Sets runs aside for the one that displaces them; one that was committed for good meanwhile has a higher rank than all that displace.
UPDATE run
SET state = 'set-aside', displaced_by = given.displaced_by, changed_at = $4
FROM unnest($1::uuid [], $2::uuid [], $3::smallint []) AS given (id, displaced_by, rank)
WHERE run.id = given.id AND run.state = 'booked' AND run.rank <= given.rank
RETURNING run.displaced_by;

-- take --
-- Writes what booked runs take, and that they do.
WITH given AS (
    SELECT given.run_id, given.resource, given.amount
    FROM unnest($1::uuid [], $2::text [], $3::integer []) AS given (run_id, resource, amount)
),

taking AS (
    UPDATE run SET takes = TRUE
    FROM (SELECT DISTINCT given.run_id FROM given) AS whose
    WHERE run.id = whose.run_id
    RETURNING run.id, run.during
)

INSERT INTO resource_use (run_id, resource, amount, during)
SELECT given.run_id, given.resource, given.amount, taking.during
FROM given
INNER JOIN taking ON given.run_id = taking.id
ORDER BY given.resource, given.run_id;

-- end_kept --
-- The runs of others of which this node has only kept resources: it learns of no result.
UPDATE run SET state = 'finished', finished_at = ends_at, changed_at = $1
WHERE
    takes AND participant IS NULL AND state = 'booked' AND ends_at <= $1 AND starts_at < $1 -- implied, but lets the index be used
    AND EXISTS (SELECT FROM exchange WHERE exchange.id = run.exchange_id AND exchange.state = 'committed')
    AND NOT EXISTS (SELECT FROM task INNER JOIN node ON task.lead = node.identity AND node.is_self WHERE task.id = run.task_id);
