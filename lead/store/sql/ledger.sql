-- charge --
-- Charges committed runs to the campaigns of their tasks, for each participant. Weights are thousandths of a seat: $6 for
-- an exclusive run, $7 for a normal one (null means one lane of the node), and $8 for others.
INSERT INTO charge (campaign_id, run_id, participant, node, starts_at, ends_at, weight, cause, made_at)
SELECT
    seat.campaign_id, booked.run_id, seat.participant, seat.node, booked.starts_at, booked.ends_at, seat.weight,
    'booked', $9
FROM (
    SELECT
        committed.number,
        planning.campaign_id,
        (place.ordinality - 1)::smallint AS participant,
        place.value ->> 'node' AS node,
        CASE task.scheduling_class
            WHEN 'exclusive' THEN $6::integer
            WHEN 'normal' THEN coalesce($7::integer, $6 / coalesce(node.lanes, 8))
            ELSE $8::integer
        END AS weight
    FROM unnest($1::uuid []) WITH ORDINALITY AS committed (task_id, number)
    INNER JOIN task ON committed.task_id = task.id
    INNER JOIN planning ON task.id = planning.task_id
    CROSS JOIN LATERAL jsonb_array_elements(task.participants) WITH ORDINALITY AS place
    LEFT JOIN node ON place.value ->> 'node' = node.identity
) AS seat
INNER JOIN unnest($2::integer [], $3::uuid [], $4::timestamptz [], $5::timestamptz [])
    AS booked (number, run_id, starts_at, ends_at)
    ON seat.number = booked.number
WHERE seat.weight > 0;
