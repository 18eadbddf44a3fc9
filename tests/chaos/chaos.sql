-- lead_over --
-- The other node is reached over a wire of ours.
UPDATE node SET url = $2 WHERE identity = $1;

-- notify_node --
SELECT pg_notify('parley', $1);

-- unsaid --
-- Number of items that keep a node from being idle: messages and results not delivered at once, exchanges and holds that
-- expired without a decision, and runs whose time is over. Those that were over before the data went back wait for their parts to
-- be sent again, for a while ($1) after their lead noticed that, as one that is started within ten minutes does anew ($2).
SELECT
    (SELECT count(*) FROM outbox WHERE created_at < now() - interval '10 seconds')
    + (SELECT count(*) FROM negotiation WHERE state = 'open' AND expires_at < now() - interval '10 seconds')
    + (SELECT count(*) FROM exchange WHERE state = 'held' AND expires_at < now())
    + (SELECT count(*) FROM archiving WHERE state = 'waiting' AND created_at < now() - interval '10 seconds')
    + (
        SELECT count(*) FROM run CROSS JOIN generation
        WHERE
            run.state IN ('booked', 'running', 'merging') AND run.ends_at < now() - interval '15 seconds'
            AND (
                run.ends_at > generation.made_at
                OR generation.made_at < now() - $1::interval
                AND (generation.made_at < $2::timestamptz - interval '10 minutes' OR $2::timestamptz < now() - $1::interval)
            )
    );

-- indexes_here --
SELECT oid::regclass::text FROM pg_class WHERE relkind = 'i' AND relnamespace = 'public'::regnamespace ORDER BY 1;

-- standby_has_all --
-- Whether the standby is waited for, and has everything from before that.
SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= pg_current_wal_flush_lsn();

-- be_on_this_host --
-- The data were always on a host with these marks.
UPDATE generation SET host = $1;

-- begun_by_copy --
-- What a copy of a node did after it was copied, in the name of the node.
SELECT id, 'began a run at ' || started_at FROM run WHERE started_at > $1
UNION ALL
SELECT id, 'held time at ' || held_at FROM exchange WHERE held_at > $1
UNION ALL
SELECT id, 'opened a negotiation at ' || opened_at FROM negotiation WHERE opened_at > $1
UNION ALL
SELECT id, 'took a task at ' || created_at FROM task WHERE created_at > $1;

-- figures --
SELECT 'tasks', count(*) FROM task WHERE led_here
UNION ALL
SELECT 'runs known to leads', count(*) FROM run INNER JOIN task ON run.task_id = task.id AND run.node = task.node WHERE led_here
UNION ALL
SELECT 'run rows on all nodes', count(*) FROM run
UNION ALL
SELECT 'runs committed', count(DISTINCT id) FROM run WHERE exchange = 'committed'
UNION ALL
SELECT 'tasks changed', count(*) FROM task WHERE led_here AND revision > 1
UNION ALL
SELECT 'runs displaced', count(DISTINCT id) FROM run WHERE state = 'displaced'
UNION ALL
SELECT 'runs cancelled', count(DISTINCT id) FROM run WHERE state = 'cancelled'
UNION ALL
SELECT 'runs still booked', count(DISTINCT id) FROM run WHERE state = 'booked'
UNION ALL
SELECT 'runs due', count(*) FROM led CROSS JOIN round WHERE exchange = 'committed' AND starts_at < round.now
UNION ALL
SELECT 'runs that began', count(DISTINCT id) FROM run WHERE started_at IS NOT NULL
UNION ALL
SELECT 'runs that began before a participant was lost', count(DISTINCT run.id)
FROM run
INNER JOIN task ON task.node = run.node AND task.id = run.task_id
CROSS JOIN unnest(task.participants) AS other (node)
WHERE
    run.started_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM run AS there WHERE there.id = run.id AND there.node = other.node)
UNION ALL
SELECT 'runs finished', count(*) FROM run INNER JOIN task ON run.task_id = task.id AND run.node = task.node WHERE led_here AND run.state = 'finished'
UNION ALL
SELECT 'slots without time', count(DISTINCT id) FROM run WHERE state = 'unplaced'
UNION ALL
SELECT 'ranges of slots in the absence of their lead', count(*) FROM gap
UNION ALL
SELECT 'runs measured by all though taken back', count(*)
FROM led
WHERE
    state = 'displaced'
    AND cardinality(participants) = (
        SELECT count(part.result) FROM part WHERE part.node = led.node AND part.run_id = led.id
    )
UNION ALL
SELECT 'runs of which nodes may disagree (restores, clocks)', count(*) FROM excused
UNION ALL
SELECT 'results in files', count(DISTINCT run_id) FROM line
UNION ALL
SELECT 'tasks that participants alone take for open', count(DISTINCT task.id)
FROM task
WHERE
    NOT led_here AND state IN ('active', 'paused')
    AND NOT EXISTS (SELECT FROM task AS led WHERE led.id = task.id AND led.led_here AND led.state IN ('active', 'paused'));

-- failures --
-- What became of the runs that were due and are not finished; names and figures left out.
SELECT
    state || ': ' || regexp_replace(
        regexp_replace(reason, '\y[a-z]: ', '', 'g'), '[0-9][0-9:.TZ-]*', '…', 'g'
    ) AS failure,
    count(*)
FROM led
CROSS JOIN round
WHERE exchange = 'committed' AND starts_at < round.now AND state NOT IN ('finished', 'booked', 'running', 'merging')
GROUP BY failure;

-- boot_parties --
-- All slots of a node, with the names of the nodes that take part in them.
SELECT
    run.task_id, run.slot,
    ARRAY(SELECT listed.value ->> 'name' FROM jsonb_array_elements(task.participants) AS listed)
FROM run
INNER JOIN task ON run.task_id = task.id;

-- boot_states --
SELECT DISTINCT ON (task_id, slot) task_id, slot, state::text FROM run ORDER BY task_id, slot, attempt DESC;
