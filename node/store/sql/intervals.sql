-- keep_intervals --
-- One participant's part of some intervals of a run; parts that already exist stay as they are.
INSERT INTO run_interval (run_id, number, starts_at, ends_at, parts)
SELECT
    $1, given.number, $2::timestamptz + given.number * $3::interval, $2::timestamptz + (given.number + 1) * $3::interval,
    jsonb_build_object($4::text, given.part)
FROM unnest($5::integer [], $6::jsonb []) AS given (number, part)
ORDER BY given.number -- all transactions lock in the same order
ON CONFLICT (run_id, number) DO UPDATE
SET parts = run_interval.parts || excluded.parts
WHERE run_interval.parts IS NOT NULL AND NOT run_interval.parts ? $4;

-- fill_intervals --
-- Rows for the first intervals of a run, where there are none; intervals that nobody reported become gaps.
INSERT INTO run_interval (run_id, number, starts_at, ends_at, parts)
SELECT $1, every.number, $2::timestamptz + every.number * $3::interval, $2::timestamptz + (every.number + 1) * $3::interval, '{}'
FROM generate_series(0, $4::integer - 1) AS every (number)
WHERE $4 > (SELECT count(*) FROM run_interval WHERE run_interval.run_id = $1)
ORDER BY every.number
ON CONFLICT (run_id, number) DO NOTHING;

-- open_intervals --
-- Intervals with missing parts, among these or (null) among all of the run.
SELECT number, parts, merged_at IS NOT NULL AS merged FROM run_interval
WHERE run_id = $1 AND parts IS NOT NULL AND ($2::integer [] IS NULL OR number = ANY($2))
ORDER BY number
FOR UPDATE;

-- merge_intervals --
UPDATE run_interval
SET
    result = given.result, summary = given.summary, reason = given.reason, merged_at = $2,
    parts = CASE WHEN NOT given.complete THEN run_interval.parts END,
    shares = CASE WHEN given.complete THEN run_interval.parts END
FROM unnest($3::integer [], $4::jsonb [], $5::text [], $6::text [], $7::boolean [])
    AS given (number, result, summary, reason, complete)
WHERE run_interval.run_id = $1 AND run_interval.number = given.number;

-- told_intervals --
-- For how many of the first intervals a participant's part has arrived.
SELECT count(*) FROM run_interval
WHERE run_id = $1 AND number < $2 AND (parts IS NULL OR parts ? $3::text);

-- overdue_intervals --
-- Intervals that have waited long enough for missing parts.
SELECT run_id, array_agg(number ORDER BY number)
FROM (
    SELECT run_id, number FROM run_interval WHERE parts IS NOT NULL AND merged_at IS NULL AND ends_at < $1
    ORDER BY ends_at
    LIMIT 500
) AS overdue
GROUP BY run_id;

-- measured_intervals --
-- All merged intervals of a run.
SELECT number, result, reason FROM run_interval WHERE run_id = $1 AND merged_at IS NOT NULL ORDER BY number;

-- intervals_forward --
-- For people: one page after a number, earliest first. None is shown before those that precede it.
SELECT number, starts_at, ends_at, result, summary, reason
FROM run_interval
WHERE
    run_id = $1 AND number > coalesce($2::integer, -1) AND ($3::timestamptz IS NULL OR ends_at > $3)
    AND number < coalesce(
        (SELECT min(waiting.number) FROM run_interval AS waiting WHERE waiting.run_id = $1 AND waiting.merged_at IS NULL),
        2147483647
    )
ORDER BY number
LIMIT $4;

-- intervals_backward --
-- The same, latest first.
SELECT number, starts_at, ends_at, result, summary, reason
FROM run_interval
WHERE
    run_id = $1 AND number < coalesce($2::integer, 2147483647) AND ($3::timestamptz IS NULL OR ends_at > $3)
    AND number < coalesce(
        (SELECT min(waiting.number) FROM run_interval AS waiting WHERE waiting.run_id = $1 AND waiting.merged_at IS NULL),
        2147483647
    )
ORDER BY number DESC
LIMIT $4;

-- recorded_intervals --
-- For bundles: the first intervals with the participants' parts.
SELECT number, starts_at, ends_at, coalesce(shares, parts, '{}') AS parts, result, summary, reason
FROM run_interval
WHERE run_id = $1
ORDER BY number
LIMIT $2;
