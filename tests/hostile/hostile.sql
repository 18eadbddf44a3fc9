-- expired_holds --
-- No hold has outlived its life without a decision.
SELECT id::text, format('held until %s', expires_at) FROM exchange WHERE state = 'held' AND expires_at < now() - interval '10 seconds';

-- blocked_for_nothing --
-- Time that is blocked belongs to an exchange that is held or committed.
SELECT run.id::text, format('%s, its exchange is %s', run.state, coalesce(exchange.state::text, 'absent'))
FROM run
LEFT JOIN exchange ON run.exchange_id = exchange.id
WHERE run.state = 'booked' AND run.ends_at > now() AND exchange.state IS DISTINCT FROM 'committed' AND exchange.state IS DISTINCT FROM 'held';

-- overlaps --
-- No exclusive run shares its time with an exclusive or a normal one.
SELECT one.id::text, format('overlaps %s', other.id)
FROM run AS one
INNER JOIN run AS other
    ON one.id <> other.id AND tstzrange(one.starts_at, one.ends_at) && tstzrange(other.starts_at, other.ends_at)
WHERE
    one.scheduling_class = 'exclusive' AND other.scheduling_class IN ('exclusive', 'normal')
    AND one.participant IS NOT NULL AND other.participant IS NOT NULL
    AND one.state IN ('booked', 'running') AND other.state IN ('booked', 'running');

-- one_slot_often --
-- No slot has two runs here that have begun or are to come.
SELECT task_id::text, format('slot %s is served by %s', slot, array_agg(id))
FROM run
WHERE participant IS NOT NULL AND (started_at IS NOT NULL OR state IN ('booked', 'set-aside', 'running', 'merging', 'finished'))
GROUP BY task_id, slot
HAVING count(*) > 1;

-- large_parts --
-- No part of a run is larger than its test may have it.
SELECT run_id::text, format('%s bytes', octet_length(part::text)) FROM part WHERE octet_length(part::text) > 700000;

-- overdue --
-- A run whose time is over has an end, and a reason if it has no result.
SELECT id::text, format('%s since %s', state, ends_at)
FROM run
WHERE state IN ('booked', 'running') AND ends_at < now() - interval '45 seconds';

-- led_by_strangers --
-- No task is open that is led by a node that is not known.
SELECT task.id::text, format('%s, led by %s', task.state, task.lead)
FROM task
LEFT JOIN node ON task.lead = node.identity
WHERE
    node.identity IS NULL AND task.lead NOT LIKE 'pscheduler:%' -- an address that the owner lets lead
    AND task.state NOT IN ('cancelled', 'refused', 'finished');

-- booked_by_strangers --
-- No time is booked for a node that is not known.
SELECT run.id::text, format('%s at %s, led by %s', run.state, run.starts_at, task.lead)
FROM run
INNER JOIN task ON run.task_id = task.id
LEFT JOIN node ON task.lead = node.identity
WHERE
    node.identity IS NULL AND task.lead NOT LIKE 'pscheduler:%'
    AND run.state IN ('booked', 'set-aside', 'running') AND run.ends_at > now();

-- ledger_hours --
-- The hours of the ledger are the sums of its charges.
SELECT coalesce(told.campaign_id, summed.campaign_id)::text, format('%s bytes told, %s charged', told.bytes, summed.bytes)
FROM (SELECT campaign_id, sum(bytes) AS bytes FROM charge_hour GROUP BY campaign_id) AS told
FULL JOIN (SELECT campaign_id, sum(bytes) AS bytes FROM charge GROUP BY campaign_id) AS summed ON told.campaign_id = summed.campaign_id
WHERE told.bytes IS DISTINCT FROM summed.bytes;

-- more_than_quota --
-- No holder has more of a quota than the limits allow.
SELECT used.holder, format('%s: %s of %s %s', used.rule, used.used, quota.most, used.quantity)
FROM limit_used AS used
INNER JOIN limit_quota AS quota
    ON used.rule = quota.rule AND used.quantity = quota.quantity AND used.period = quota.period
WHERE used.used > quota.most;

-- quotas_counted --
SELECT rule, holder, quantity, period::text, begins_at::text, used
FROM limit_used
WHERE used > 0 AND period > interval '0';

-- count_quotas --
SELECT recount_limit_use(now());

-- audit_rows --
SELECT audit::text FROM audit;

-- open_tasks --
SELECT task.id::text, task.lead FROM task
WHERE task.state NOT IN ('cancelled', 'refused', 'finished') AND task.lead NOT LIKE 'pscheduler:%';

-- coming_runs --
SELECT run.id::text, task.lead, task.participants::text
FROM run
INNER JOIN task ON run.task_id = task.id
INNER JOIN exchange ON run.exchange_id = exchange.id
WHERE run.state = 'booked' AND exchange.state = 'committed' AND run.starts_at > now() + interval '15 seconds';
