-- foreign_open --
-- The open tasks that other nodes lead, some at a time.
SELECT task.id FROM task
WHERE
    task.state IN ('active', 'paused') AND task.id > $1
    AND task.lead <> (SELECT node.identity FROM node WHERE node.is_self)
ORDER BY task.id
LIMIT $2;

-- keep_verdicts --
-- Only if the task is still as it was judged.
UPDATE task SET limit_rule = given.rule, limit_refusal = given.refusal
FROM unnest($1::uuid [], $2::integer [], $3::text [], $4::text []) AS given (id, revision, rule, refusal)
WHERE
    task.id = given.id AND task.revision = given.revision
    AND (task.limit_rule, task.limit_refusal) IS DISTINCT FROM (given.rule, given.refusal);

-- limit_standings --
SELECT id, limit_rule, limit_refusal FROM task WHERE id = ANY($1::uuid []);

-- refused_count --
SELECT count(*) FROM task WHERE limit_refusal IS NOT NULL AND state IN ('active', 'paused');
