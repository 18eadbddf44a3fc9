-- charge --
-- Charges committed runs to the campaigns of their tasks, for each participant. Weights are thousandths of a seat: $6 for
-- an exclusive run, $7 for a normal one (null means one lane of the node), and $8 for others. $10 has, by task, the bytes that a
-- run is expected to move on each participant.
INSERT INTO charge (campaign_id, run_id, participant, node, starts_at, ends_at, weight, bytes, cause, made_at)
SELECT
    seat.campaign_id, booked.run_id, seat.participant, seat.node, booked.starts_at, booked.ends_at, seat.weight,
    seat.bytes, 'booked', $9
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
        END AS weight,
        committed.bytes
    FROM unnest($1::uuid [], $10::bigint []) WITH ORDINALITY AS committed (task_id, bytes, number)
    INNER JOIN task ON committed.task_id = task.id
    INNER JOIN planning ON task.id = planning.task_id
    CROSS JOIN LATERAL jsonb_array_elements(task.participants) WITH ORDINALITY AS place
    LEFT JOIN node ON place.value ->> 'node' = node.identity
) AS seat
INNER JOIN unnest($2::integer [], $3::uuid [], $4::timestamptz [], $5::timestamptz [])
    AS booked (number, run_id, starts_at, ends_at)
    ON seat.number = booked.number
WHERE seat.weight > 0 OR seat.bytes > 0;

-- moved_by_hour --
-- The bytes charged to these campaigns, by the hour in which their runs start.
SELECT campaign.name, charge_hour.hour, sum(charge_hour.bytes)::bigint AS bytes
FROM campaign
INNER JOIN charge_hour ON campaign.id = charge_hour.campaign_id
WHERE
    campaign.name = ANY($1::text []) AND charge_hour.hour >= $2 AND charge_hour.hour < $3 AND charge_hour.bytes <> 0
GROUP BY campaign.name, charge_hour.hour
ORDER BY campaign.name, charge_hour.hour;
