-- pools --
SELECT name, match, policy_set, overrides, choice, description, revision, created_at, changed_at
FROM pool
ORDER BY name;

-- keep_pool --
INSERT INTO pool (name, match, policy_set, overrides, choice, description, created_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
ON CONFLICT (name) DO NOTHING
RETURNING id;

-- change_pool --
-- Only as it was read: another change since has won.
UPDATE pool
SET match = $2, policy_set = $3, overrides = $4, choice = $5, description = $6, changed_at = $7, revision = revision + 1
WHERE name = $1 AND revision = $8
RETURNING id;

-- remove_pool --
DELETE FROM pool WHERE name = $1 RETURNING id;

-- notify --
SELECT pg_notify('parley', $1);
