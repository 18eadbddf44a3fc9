-- judged_open --
-- The open tasks of other nodes, and those of users here to whom limits apply or have applied, some at a time.
SELECT task.id FROM task
WHERE
    task.state IN ('active', 'paused') AND task.id > $1
    AND (
        task.lead <> (SELECT node.identity FROM node WHERE node.is_self)
        OR (($3 OR task.limit_bound) AND task.limit_user IS NOT NULL)
        OR task.limit_rule IS NOT NULL
        OR task.limit_refusal IS NOT NULL
    )
ORDER BY task.id
LIMIT $2;

-- keep_verdicts --
-- Only if the task is still as it was judged.
UPDATE task SET limit_rule = given.rule, limit_refusal = given.refusal, run_bytes = given.run_bytes,
    limit_caps = given.caps::jsonb
FROM unnest($1::uuid [], $2::integer [], $3::text [], $4::text [], $5::bigint [], $6::text [])
    AS given (id, revision, rule, refusal, run_bytes, caps)
WHERE
    task.id = given.id AND task.revision = given.revision
    AND (task.limit_rule, task.limit_refusal, task.run_bytes, task.limit_caps)
    IS DISTINCT FROM (given.rule, given.refusal, given.run_bytes, given.caps::jsonb);

-- limit_standings --
SELECT id, limit_rule, limit_refusal, run_bytes, limit_caps, limit_user FROM task WHERE id = ANY($1::uuid []);

-- refused_count --
SELECT count(*) FROM task WHERE limit_refusal IS NOT NULL AND state IN ('active', 'paused');

-- quotas --
SELECT rule, quantity, period, most FROM limit_quota ORDER BY rule, quantity, period;

-- stop_counting --
-- Nothing is booked while quotas change: it would be counted by the earlier ones.
LOCK TABLE run IN SHARE ROW EXCLUSIVE MODE;

-- drop_quotas --
DELETE FROM limit_quota;

-- keep_quotas --
INSERT INTO limit_quota (rule, quantity, period, most)
SELECT given.rule, given.quantity, given.period, given.most
FROM unnest($1::text [], $2::text [], $3::interval [], $4::bigint []) AS given (rule, quantity, period, most);

-- recount --
SELECT recount_limit_use($1);

-- claim_use --
-- Locks the rows in the order of their key until the transaction ends, and returns what is used.
INSERT INTO limit_use (rule, holder, quantity, period, begins_at)
SELECT asked.rule, asked.holder, asked.quantity, asked.period, asked.begins_at
FROM unnest($1::text [], $2::text [], $3::text [], $4::interval [], $5::timestamptz [])
    AS asked (rule, holder, quantity, period, begins_at)
ORDER BY asked.rule, asked.holder, asked.quantity, asked.period, asked.begins_at
ON CONFLICT (rule, holder, quantity, period, begins_at) DO UPDATE SET used = limit_use.used
RETURNING rule, holder, quantity, period, begins_at, used;

-- take_returns --
-- Adds what was given back to rows that this transaction has locked. A statement of its own: only after the locks are these rows
-- nobody else's.
WITH taken AS (
    DELETE FROM limit_return
    USING unnest($1::text [], $2::text [], $3::text [], $4::interval [], $5::timestamptz [])
        AS asked (rule, holder, quantity, period, begins_at)
    WHERE
        limit_return.rule = asked.rule AND limit_return.holder = asked.holder AND limit_return.quantity = asked.quantity
        AND limit_return.period = asked.period AND limit_return.begins_at = asked.begins_at
    RETURNING limit_return.*
)

UPDATE limit_use SET used = greatest(0, limit_use.used + back.amount)
FROM (
    SELECT rule, holder, quantity, period, begins_at, sum(amount) AS amount FROM taken
    GROUP BY rule, holder, quantity, period, begins_at
) AS back
WHERE
    limit_use.rule = back.rule AND limit_use.holder = back.holder AND limit_use.quantity = back.quantity
    AND limit_use.period = back.period AND limit_use.begins_at = back.begins_at
RETURNING limit_use.rule, limit_use.holder, limit_use.quantity, limit_use.period, limit_use.begins_at, limit_use.used;

-- use_between --
-- What these holders use of these rules and caps in periods that overlap a time.
-- OFFSET 0: each holder is looked up by its key, and not all of them added up.
SELECT use.rule, use.holder, use.quantity, use.period, use.begins_at, use.used
FROM unnest($1::text [], $2::text []) AS asked (rule, holder)
CROSS JOIN LATERAL (
    SELECT * FROM limit_used WHERE limit_used.rule = asked.rule AND limit_used.holder = asked.holder
    OFFSET 0
) AS use
WHERE use.begins_at < $4 AND use.begins_at + use.period > $3 AND use.used > 0;

-- use_now --
-- What all holders together use of each quota in its present period.
SELECT rule, quantity, period, sum(used)::bigint AS used FROM limit_used
WHERE begins_at <= $1 AND begins_at + period > $1
GROUP BY rule, quantity, period
ORDER BY rule, quantity, period;

-- at_once --
-- The runs of one lead or one user under one rule between two instants.
SELECT run.starts_at, run.ends_at
FROM run
INNER JOIN task ON run.task_id = task.id
WHERE
    task.limit_rule = $1 AND coalesce(task.limit_user, task.lead) = $2
    AND run.state IN ('booked', 'set-aside', 'running')
    AND run.starts_at < $4 AND run.ends_at > $3
ORDER BY run.starts_at, run.ends_at;

-- moving --
-- The runs of a task that count for the rule and the caps under which an edit brings it.
SELECT id, slot, attempt, starts_at, ends_at FROM run
WHERE task_id = $1 AND state IN ('booked', 'set-aside', 'running', 'merging') AND spec IS NULL
ORDER BY starts_at;

-- any_booked --
SELECT EXISTS (
    SELECT FROM run
    WHERE task_id = $1 AND state IN ('booked', 'set-aside', 'running') AND (NOT $2 OR spec IS NOT NULL)
);

-- rates --
-- The rates of runs to these networks that take place between two instants: of those that are booked to addresses; of those to
-- names that have begun; and of those that were booked before their task changed.
SELECT asked.cap, asked.network, run.starts_at, run.ends_at, (account.value ->> 2)::bigint AS rate
FROM unnest($1::text [], $2::text []) AS asked (cap, network)
INNER JOIN task
    ON task.limit_caps <> '[]' AND task.limit_caps @> jsonb_build_array(jsonb_build_array(asked.cap, asked.network))
CROSS JOIN LATERAL jsonb_array_elements(task.limit_caps) AS account
INNER JOIN run ON task.id = run.task_id
WHERE
    account.value ->> 0 = asked.cap AND account.value ->> 1 = asked.network
    AND run.state IN ('booked', 'set-aside', 'running') AND run.starts_at < $4 AND run.ends_at > $3
    AND run.spec IS NULL
UNION ALL
SELECT asked.cap, asked.network, limit_rate.starts_at, limit_rate.ends_at, limit_rate.bps
FROM unnest($1::text [], $2::text []) AS asked (cap, network)
INNER JOIN limit_rate ON asked.cap = limit_rate.cap AND asked.network = limit_rate.network
WHERE limit_rate.starts_at < $4 AND limit_rate.ends_at > $3;

-- keep_rates --
INSERT INTO limit_rate (cap, network, bps, starts_at, ends_at)
SELECT given.cap, given.network, given.bps, $4::timestamptz, $5::timestamptz
FROM unnest($1::text [], $2::text [], $3::bigint []) AS given (cap, network, bps);

-- purge_rates --
DELETE FROM limit_rate WHERE ctid IN (SELECT ctid FROM limit_rate WHERE ends_at <= $1 LIMIT $2)
RETURNING cap;

-- count_use --
-- Counts a run that is about to begin, for a target whose address was not known before; returns nothing if that would be
-- more than the quota allows.
INSERT INTO limit_use (rule, holder, quantity, period, begins_at, used)
SELECT asked.rule, asked.holder, asked.quantity, asked.period, asked.begins_at, asked.amount
FROM unnest($1::text [], $2::text [], $3::text [], $4::interval [], $5::timestamptz [], $6::bigint [], $7::bigint [])
    AS asked (rule, holder, quantity, period, begins_at, amount, most)
WHERE asked.amount <= asked.most
ORDER BY asked.rule, asked.holder, asked.quantity, asked.period, asked.begins_at
ON CONFLICT (rule, holder, quantity, period, begins_at) DO UPDATE
SET used = limit_use.used + excluded.used
WHERE
    limit_use.used + excluded.used <= (
        SELECT quota.most FROM limit_quota AS quota
        WHERE quota.rule = excluded.rule AND quota.quantity = excluded.quantity AND quota.period = excluded.period
    )
RETURNING rule, holder, quantity, period, begins_at, used;

-- reach --
-- Returns the periods that are new: the others have been told of.
INSERT INTO limit_reached (rule, begins_at, ends_at, reached_at)
SELECT DISTINCT asked.rule, asked.begins_at, asked.ends_at, $4::timestamptz
FROM unnest($1::text [], $2::timestamptz [], $3::timestamptz []) AS asked (rule, begins_at, ends_at)
ORDER BY asked.rule, asked.begins_at, asked.ends_at
ON CONFLICT (rule, begins_at, ends_at) DO NOTHING
RETURNING rule, begins_at, ends_at;

-- reached_now --
SELECT DISTINCT rule FROM limit_reached WHERE begins_at <= $1 AND ends_at > $1 ORDER BY rule;

-- purge_reached --
DELETE FROM limit_reached WHERE ctid IN (SELECT ctid FROM limit_reached WHERE ends_at <= $1 LIMIT $2)
RETURNING rule;

-- purge_returns --
DELETE FROM limit_return WHERE ctid IN (
    SELECT ctid FROM limit_return WHERE begins_at + period <= $1 LIMIT $2
)
RETURNING rule;

-- purge_use --
DELETE FROM limit_use
WHERE (rule, holder, quantity, period, begins_at) IN (
    SELECT rule, holder, quantity, period, begins_at FROM limit_use
    WHERE begins_at + period <= $1 AND period > interval '0'
    LIMIT $2
)
RETURNING rule;
