-- names --
SELECT name, state::text FROM campaign ORDER BY name;

-- has_campaign --
SELECT EXISTS (SELECT FROM campaign WHERE name = $1);

-- campaigns --
SELECT
    campaign.id, campaign.name, campaign.created_at, campaign.changed_at, campaign.parent_id, parent.name AS parent,
    campaign.weight, campaign.level, campaign.priority, campaign.preemptor, campaign.preemptee, campaign.seats_max,
    campaign.target_seats, campaign.target_share, campaign.target_borrow, campaign.target_lend, campaign.fairshare,
    campaign.limits, campaign.quotas, campaign.queue, campaign.budget, campaign.owner, campaign.contact,
    campaign.description, campaign.state::text, campaign.revision, campaign.bounded, campaign.timed_weights, campaign.leads
FROM campaign
LEFT JOIN campaign AS parent ON campaign.parent_id = parent.id
ORDER BY campaign.name;

-- keep_campaign --
-- Inserts nothing if the parent does not exist (any more), or the name is taken.
INSERT INTO campaign (
    name, parent_id, parent_depth, weight, level, priority, preemptor, preemptee, seats_max, target_seats, target_share,
    target_borrow, target_lend, fairshare, limits, quotas, queue, budget, owner, contact, description, state,
    timed_weights, leads, created_at, changed_at
)
SELECT
    $1, parent.id, parent.depth, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
    $21::campaign_state, $22, $23, $24, $24
FROM (VALUES ($2::text)) AS wanted (parent)
LEFT JOIN campaign AS parent ON wanted.parent = parent.name
WHERE wanted.parent IS NULL OR parent.id IS NOT NULL
ON CONFLICT (name) DO NOTHING
RETURNING id;

-- change_campaign --
-- Only in the revision that was read: otherwise another change has come first.
UPDATE campaign
SET
    parent_id = parent.id, parent_depth = parent.depth, weight = $3, level = $4, priority = $5, preemptor = $6,
    preemptee = $7, seats_max = $8, target_seats = $9, target_share = $10, target_borrow = $11, target_lend = $12,
    fairshare = $13, limits = $14, quotas = $15, queue = $16, budget = $17, owner = $18, contact = $19,
    description = $20, state = $21::campaign_state, timed_weights = $22, leads = $23,
    changed_at = $24, revision = campaign.revision + 1
FROM (VALUES ($2::text)) AS wanted (parent)
LEFT JOIN campaign AS parent ON wanted.parent = parent.name
WHERE campaign.name = $1 AND campaign.revision = $25 AND (wanted.parent IS NULL OR parent.id IS NOT NULL)
RETURNING campaign.id;

-- plan_again --
-- What a campaign may have has changed: what it and its descendants wait for is planned now.
WITH RECURSIVE changed AS (
    SELECT id FROM campaign WHERE name = $1
    UNION
    SELECT campaign.id FROM campaign INNER JOIN changed ON campaign.parent_id = changed.id
),

waiting AS (
    SELECT planning.task_id
    FROM planning
    INNER JOIN changed ON planning.campaign_id = changed.id
    WHERE
        planning.plan_at > $2
        AND planning.lease_until IS NULL
        AND EXISTS (SELECT FROM run WHERE run.task_id = planning.task_id AND run.state = 'waiting')
    ORDER BY planning.task_id -- all transactions lock in the same order
    FOR NO KEY UPDATE OF planning
),

named AS (
    UPDATE planning SET plan_at = $2
    FROM waiting
    WHERE planning.task_id = waiting.task_id
)

UPDATE term SET try_at = $2
FROM planning
INNER JOIN changed ON planning.campaign_id = changed.id
WHERE term.pool_task = planning.task_id AND term.try_at > $2;

-- plan_others --
-- A campaign may be displaced more easily, or wants no time: of the tasks of all others that wait for room in their campaigns,
-- whose soft limits bind while others want the nodes, and of those that may displace runs, the ones whose runs come soonest
-- are planned now. Terms of pool tasks are tried when the campaign's notification is heard.
UPDATE planning SET plan_at = $2
FROM (
    SELECT planning.task_id
    FROM planning
    INNER JOIN campaign ON planning.campaign_id = campaign.id
    WHERE
        campaign.name <> $1 AND planning.plan_at > $2 AND planning.lease_until IS NULL
        AND (planning.wants_room OR campaign.level = 10 OR campaign.preemptor)
        AND EXISTS (SELECT FROM run WHERE run.task_id = planning.task_id AND run.state = 'waiting')
    ORDER BY planning.next_run_at, planning.added_at, planning.task_id
    LIMIT $3
    FOR UPDATE OF planning SKIP LOCKED
) AS soonest
WHERE planning.task_id = soonest.task_id;

-- uses --
-- What prevents the removal of a campaign; among reservations those that admit it and are not over.
SELECT
    (SELECT count(*) FROM planning WHERE planning.campaign_id = campaign.id) AS tasks,
    (SELECT array_agg(child.name ORDER BY child.name) FROM campaign AS child WHERE child.parent_id = campaign.id) AS children,
    EXISTS (SELECT FROM charge_hour WHERE charge_hour.campaign_id = campaign.id AND charge_hour.lead = '') AS charged,
    (
        SELECT array_agg(reservation.id ORDER BY reservation.created_at, reservation.id)
        FROM reservation
        WHERE
            reservation.access -> 'campaigns' ? campaign.name
            AND EXISTS (SELECT FROM reserved WHERE reserved.reservation_id = reservation.id AND reserved.ends_at > $2)
    ) AS admitted_by
FROM campaign
WHERE campaign.name = $1;

-- remove_campaign --
-- What other leads have told of it goes with it.
WITH told AS (
    DELETE FROM charge_hour USING campaign
    WHERE charge_hour.campaign_id = campaign.id AND campaign.name = $1 AND charge_hour.lead <> ''
)

DELETE FROM campaign WHERE name = $1 RETURNING revision;

-- assign --
-- Moves a task to another campaign.
UPDATE planning
SET campaign_id = campaign.id
FROM task
INNER JOIN campaign ON campaign.name = coalesce(task.campaign, 'default')
WHERE planning.task_id = $1 AND task.id = $1 AND planning.campaign_id <> campaign.id
RETURNING planning.campaign_id;

-- move_charges --
-- Moves the charges of its future runs from the old campaign to the new one.
INSERT INTO charge (campaign_id, run_id, participant, node, starts_at, ends_at, weight, bytes, cause, made_at)
SELECT
    side.campaign_id, charged.run_id, charged.participant, charged.node, charged.starts_at, charged.ends_at,
    side.weight, side.bytes, 'moved', $3
FROM (
    SELECT
        charge.campaign_id, charge.run_id, charge.participant, charge.node, charge.starts_at, charge.ends_at,
        sum(charge.weight) AS weight, sum(charge.bytes) AS bytes
    FROM run
    INNER JOIN charge
        ON run.starts_at = charge.starts_at AND run.id = charge.run_id AND run.ends_at = charge.ends_at
    WHERE run.task_id = $1 AND run.state IN ('booked', 'set-aside') AND run.starts_at > $3
    GROUP BY
        charge.campaign_id, charge.run_id, charge.participant, charge.node, charge.starts_at, charge.ends_at
    HAVING sum(charge.weight) > 0 OR sum(charge.bytes) > 0
) AS charged
CROSS JOIN LATERAL (
    VALUES (charged.campaign_id, -charged.weight, -charged.bytes), ($2::integer, charged.weight, charged.bytes)
) AS side (campaign_id, weight, bytes)
WHERE charged.campaign_id <> $2;

-- tasks_of --
SELECT planning.campaign_id, task.state::text, count(*) AS tasks
FROM planning
INNER JOIN task ON planning.task_id = task.id
GROUP BY planning.campaign_id, task.state;

-- waiting_of --
-- What waits, and for what: runs for time, pool tasks for nodes (for each, the missing seats of its worst term); and the
-- most frequent reason.
WITH lacking AS (
    SELECT
        term.pool_task AS task_id, term.reason,
        term.seats - (
            SELECT count(*) FROM seat
            WHERE seat.pool_task = term.pool_task AND seat.term = term.starts_at AND seat.lost_at IS NULL
        ) AS seats
    FROM term
    INNER JOIN task ON term.pool_task = task.id
    WHERE term.try_at IS NOT NULL AND term.reason IS NOT NULL AND term.over_at > $1 AND task.state = 'active'
),

waiting AS (
    SELECT task_id, count(*) AS runs, 0 AS seats FROM run WHERE state = 'waiting' GROUP BY task_id
    UNION ALL
    SELECT task_id, 0 AS runs, max(seats) AS seats FROM lacking WHERE seats > 0 GROUP BY task_id
),

said AS (
    SELECT task_id, reason FROM run WHERE state = 'waiting'
    UNION ALL
    SELECT task_id, reason FROM lacking WHERE seats > 0
),

reasons AS (
    SELECT planning.campaign_id, mode() WITHIN GROUP (ORDER BY said.reason) AS reason
    FROM said
    INNER JOIN planning ON said.task_id = planning.task_id
    GROUP BY planning.campaign_id
)

SELECT
    planning.campaign_id, sum(waiting.runs)::bigint AS runs, sum(waiting.seats)::bigint AS seats,
    count(DISTINCT waiting.task_id) AS tasks, min(reasons.reason) AS reason
FROM waiting
INNER JOIN planning ON waiting.task_id = planning.task_id
INNER JOIN reasons ON planning.campaign_id = reasons.campaign_id
GROUP BY planning.campaign_id;

-- used_between --
SELECT campaign_id, sum(amount)::bigint AS amount, sum(bytes)::bigint AS bytes
FROM charge_hour
WHERE hour >= $1 AND hour < $2
GROUP BY campaign_id;

-- charged_ahead --
-- For the hour in progress (until $2): charges for the time after $1 of runs that are not over. Runs that are over have
-- already been refunded for the rest of their time.
SELECT
    charge.campaign_id,
    sum(
        charge.weight
        * extract(EPOCH FROM least(charge.ends_at, $2::timestamptz) - greatest(charge.starts_at, $1::timestamptz))
        * 1000000
    )::bigint AS amount,
    coalesce(sum(charge.bytes) FILTER (WHERE charge.starts_at > $1), 0)::bigint AS bytes
FROM run
INNER JOIN charge ON run.starts_at = charge.starts_at AND run.id = charge.run_id
WHERE run.state IN ('booked', 'running', 'merging', 'set-aside') AND run.starts_at < $2 AND charge.ends_at > $1
GROUP BY charge.campaign_id;

-- hours --
-- By hour and campaign, the charges and their share of the hour's total. One page, after the given row.
SELECT used.starts_at, used.campaign, used.nodes, used.seat_seconds, used.share, used.bytes
FROM campaign_usage AS used
WHERE
    used.starts_at >= $1 AND used.starts_at < $2
    AND ($3::text IS NULL OR used.campaign = $3)
    AND ($4::timestamptz IS NULL OR (used.starts_at, used.campaign) > ($4, $5::text))
ORDER BY used.starts_at, used.campaign
LIMIT $6;

-- purge_charges --
WITH gone AS (
    DELETE FROM charge
    WHERE (starts_at, run_id, id) IN (
        SELECT old.starts_at, old.run_id, old.id FROM charge AS old
        WHERE old.starts_at < $1 AND old.ends_at < $1
        ORDER BY old.starts_at, old.run_id, old.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;

-- purge_hours --
WITH gone AS (
    DELETE FROM charge_hour
    WHERE (hour, campaign_id, node) IN (
        SELECT old.hour, old.campaign_id, old.node FROM charge_hour AS old
        WHERE old.hour < $1
        ORDER BY old.hour, old.campaign_id, old.node COLLATE "C"
        LIMIT $2
    )
    RETURNING hour
)

SELECT count(*) FROM gone;

-- shared --
-- The campaigns that count as one with those of other leads: one row for each of these, with when they have last told what,
-- and the earliest instant that counts for a budget of it or of one above it.
WITH RECURSIVE above AS (
    SELECT campaign.id AS shared_id, campaign.parent_id, campaign.budget, campaign.created_at
    FROM campaign
    WHERE campaign.leads <> '{}'
    UNION
    SELECT above.shared_id, campaign.parent_id, campaign.budget, campaign.created_at
    FROM above
    INNER JOIN campaign ON above.parent_id = campaign.id
)

SELECT
    campaign.name, shared.lead, told.told_at, told.whole_at, told.reason,
    (
        SELECT min(coalesce((above.budget ->> 'since')::timestamptz, above.created_at))
        FROM above
        WHERE above.shared_id = campaign.id AND above.budget IS NOT NULL
    ) AS budget_since
FROM campaign
CROSS JOIN LATERAL unnest(campaign.leads) AS shared (lead)
LEFT JOIN campaign_lead AS told ON campaign.id = told.campaign_id AND shared.lead = told.lead
ORDER BY campaign.name, shared.lead;

-- hours_for --
-- What these campaigns, of which each is shared with the lead $2, were charged here from an hour on, with those below them that
-- are not shared with it themselves.
WITH RECURSIVE counted AS (
    SELECT campaign.name, campaign.id FROM campaign WHERE campaign.name = ANY($1::text []) AND $2 = ANY(campaign.leads)
    UNION
    SELECT counted.name, campaign.id
    FROM counted
    INNER JOIN campaign ON counted.id = campaign.parent_id
    WHERE NOT $2 = ANY(campaign.leads)
)

SELECT
    counted.name AS campaign, charge_hour.hour, charge_hour.node, sum(charge_hour.amount)::bigint AS amount,
    sum(charge_hour.bytes)::bigint AS bytes
FROM counted
INNER JOIN charge_hour ON counted.id = charge_hour.campaign_id
WHERE charge_hour.lead = '' AND charge_hour.hour >= $3
GROUP BY counted.name, charge_hour.hour, charge_hour.node
HAVING sum(charge_hour.amount) > 0 OR sum(charge_hour.bytes) > 0
ORDER BY charge_hour.hour, counted.name, charge_hour.node
LIMIT $4;

-- shared_with --
-- Which of these campaigns are shared with a lead.
SELECT name FROM campaign WHERE name = ANY($1::text []) AND $2 = ANY(leads) ORDER BY name;

-- keep_hours --
-- Replaces what a lead has told of these campaigns ($2) from $3 on, before $4. Returns the campaigns that have less now.
WITH told AS (
    SELECT campaign.id AS campaign_id, given.hour, given.node, given.amount, given.bytes
    FROM unnest($5::text [], $6::timestamptz [], $7::text [], $8::bigint [], $9::bigint [])
        AS given (name, hour, node, amount, bytes)
    INNER JOIN campaign ON given.name = campaign.name
    WHERE campaign.name = ANY($2::text []) AND $1 = ANY(campaign.leads)
),

before AS (
    SELECT charge_hour.*, campaign.name
    FROM charge_hour
    INNER JOIN campaign ON charge_hour.campaign_id = campaign.id
    WHERE
        campaign.name = ANY($2::text []) AND charge_hour.lead = $1
        AND charge_hour.hour >= $3 AND ($4::timestamptz IS NULL OR charge_hour.hour < $4)
),

gone AS (
    DELETE FROM charge_hour USING before
    WHERE
        (charge_hour.hour, charge_hour.campaign_id, charge_hour.node, charge_hour.lead)
        = (before.hour, before.campaign_id, before.node, before.lead)
        AND NOT EXISTS (
            SELECT FROM told
            WHERE (told.hour, told.campaign_id, told.node) = (before.hour, before.campaign_id, before.node)
        )
),

kept AS (
    INSERT INTO charge_hour (hour, campaign_id, node, amount, bytes, lead)
    SELECT hour, campaign_id, node, amount, bytes, $1 FROM told
    ON CONFLICT (hour, campaign_id, node, lead) DO UPDATE
    SET amount = excluded.amount, bytes = excluded.bytes
    WHERE (charge_hour.amount, charge_hour.bytes) <> (excluded.amount, excluded.bytes)
)

SELECT DISTINCT before.name
FROM before
LEFT JOIN told ON (told.hour, told.campaign_id, told.node) = (before.hour, before.campaign_id, before.node)
WHERE coalesce(told.amount, 0) < before.amount OR coalesce(told.bytes, 0) < before.bytes
ORDER BY before.name;

-- note_told --
-- A lead has told of these campaigns, all that counts if $4.
INSERT INTO campaign_lead (campaign_id, lead, told_at, whole_at)
SELECT id, $1, $3, CASE WHEN $4 THEN $3::timestamptz END
FROM campaign
WHERE name = ANY($2::text []) AND $1 = ANY(leads)
ORDER BY id
ON CONFLICT (campaign_id, lead) DO UPDATE
SET told_at = excluded.told_at, whole_at = coalesce(excluded.whole_at, campaign_lead.whole_at), reason = NULL;

-- note_untold --
-- A lead has told nothing of these campaigns, for a reason.
INSERT INTO campaign_lead (campaign_id, lead, reason)
SELECT id, $1, $3
FROM campaign
WHERE name = ANY($2::text []) AND $1 = ANY(leads)
ORDER BY id
ON CONFLICT (campaign_id, lead) DO UPDATE SET reason = excluded.reason;

-- forget_told --
-- A campaign is no longer shared with other leads than it says: what they have told goes.
WITH forgotten AS (
    DELETE FROM campaign_lead USING campaign
    WHERE campaign_lead.campaign_id = campaign.id AND campaign.name = $1 AND NOT campaign_lead.lead = ANY(campaign.leads)
)

DELETE FROM charge_hour USING campaign
WHERE
    charge_hour.campaign_id = campaign.id AND campaign.name = $1
    AND charge_hour.lead <> '' AND NOT charge_hour.lead = ANY(campaign.leads);
