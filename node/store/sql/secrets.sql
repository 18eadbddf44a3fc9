-- keep_secret --
-- Another one of its name is replaced if $7 says so.
INSERT INTO secret (name, sealed, hosts, users, leads, created_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $6)
ON CONFLICT (name) DO UPDATE SET
    sealed = excluded.sealed, hosts = excluded.hosts, users = excluded.users, leads = excluded.leads, changed_at = excluded.changed_at
WHERE $7
RETURNING name;

-- secrets --
-- All of them, or those of these names.
SELECT name, sealed, hosts, users, leads, created_at, changed_at FROM secret
WHERE $1::text [] IS NULL OR name = ANY($1)
ORDER BY name COLLATE "C";

-- remove_secret --
DELETE FROM secret WHERE name = $1 RETURNING name;
