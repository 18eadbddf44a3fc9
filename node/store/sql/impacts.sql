-- giving_way --
-- The runs that "set_aside" would take for these runs: lower rank, or strictly lower priority, not running, not about to start.
SELECT * FROM (
    SELECT DISTINCT ON (run.id)
        wanted.number,
        run.id,
        run.task_id,
        task.test,
        run.scheduling_class::text,
        run.priority,
        run.starts_at,
        run.ends_at,
        task.lead
    FROM unnest($1::integer [], $2::timestamptz [], $3::timestamptz []) AS wanted (number, starts_at, ends_at)
    INNER JOIN run ON run.during && tstzrange(wanted.starts_at, wanted.ends_at)
    INNER JOIN task ON run.task_id = task.id
    WHERE
        run.state = 'booked'
        AND run.lane IS NOT NULL
        AND run.scheduling_class = ANY($4::scheduling_class [])
        AND (run.rank, standing(run)) < ($5, $6)
        AND run.starts_at >= $7
    ORDER BY run.id, wanted.number
) AS victim
ORDER BY victim.starts_at, victim.id;

-- hours --
-- Background runs count, because this is when anything is measured on the node, not what is kept free of it. They do not
-- count for "others", nor do runs of the mesh ($6). Booked runs of the task $7 are gone, too, if $8 leads it.
WITH booked AS (
    SELECT
        run.id, run.during,
        coalesce(run.task_id = $7::uuid AND task.lead = $8 AND run.state = 'booked', false) AS left_out,
        run.scheduling_class IN ('exclusive', 'normal')
        AND ($6::text IS NULL OR task.reference ->> 'mesh' IS DISTINCT FROM $6) AS others
    FROM run
    INNER JOIN task ON run.task_id = task.id
    WHERE
        run.starts_at < $1::timestamptz + $2::integer * interval '1 hour'
        AND run.ends_at > $1::timestamptz
        AND run.participant IS NOT NULL
        AND run.state IN ('booked', 'running')
),

taken AS (
    SELECT
        (SELECT range_agg(during) FROM booked) AS before,
        (SELECT range_agg(during) FROM booked WHERE others) AS others,
        (
            SELECT range_agg(during)
            FROM (
                SELECT during FROM booked WHERE id <> ALL($5::uuid []) AND NOT left_out
                UNION ALL
                SELECT tstzrange(starts_at, ends_at)
                FROM unnest($3::timestamptz [], $4::timestamptz []) AS wanted (starts_at, ends_at)
            ) AS remaining
        ) AS after
),

hour AS (
    SELECT
        number,
        tstzmultirange(tstzrange(
            $1::timestamptz + number * interval '1 hour', $1::timestamptz + (number + 1) * interval '1 hour'
        )) AS span
    FROM generate_series(0, $2::integer - 1) AS number
)

SELECT
    coalesce((
        SELECT extract(EPOCH FROM sum(upper(piece) - lower(piece))) * 1000000
        FROM unnest(taken.before * hour.span) AS piece
    ), 0)::bigint AS before,
    coalesce((
        SELECT extract(EPOCH FROM sum(upper(piece) - lower(piece))) * 1000000
        FROM unnest(taken.after * hour.span) AS piece
    ), 0)::bigint AS after,
    coalesce((
        SELECT extract(EPOCH FROM sum(upper(piece) - lower(piece))) * 1000000
        FROM unnest(taken.others * hour.span) AS piece
    ), 0)::bigint AS others
FROM hour
CROSS JOIN taken
ORDER BY hour.number;
