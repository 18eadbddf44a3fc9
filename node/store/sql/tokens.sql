-- keep_token --
INSERT INTO access_token (id, digest, label, role, created_at, created_by, expires_at)
VALUES ($1, $2, $3, $4::token_role, $5, $6, $7);

-- token_with --
SELECT id, label, role::text, created_at, created_by, expires_at, used_at, revoked_at
FROM access_token WHERE digest = $1;

-- tokens_with --
SELECT digest, id, label, role::text, created_at, created_by, expires_at, used_at, revoked_at
FROM access_token WHERE digest = ANY ($1);

-- valid_roles --
SELECT DISTINCT role FROM access_token
WHERE label = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2);

-- note_use --
UPDATE access_token SET used_at = $2 WHERE id = $1;

-- tokens --
SELECT id, label, role::text, created_at, created_by, expires_at, used_at, revoked_at
FROM access_token
WHERE
    ($1::text IS NULL OR id::text LIKE $1 || '%')
    AND ($2::timestamptz IS NULL OR (created_at, id) < ($2, $3::uuid))
ORDER BY created_at DESC, id DESC
LIMIT $4;

-- revoke_token --
UPDATE access_token SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1
RETURNING id, label, role::text, created_at, created_by, expires_at, used_at, revoked_at;

-- purge_tokens --
-- Those that were revoked or have expired before then.
WITH gone AS (
    DELETE FROM access_token
    WHERE id IN (
        SELECT old.id FROM access_token AS old
        WHERE least(old.revoked_at, old.expires_at) < $1
        ORDER BY old.id
        LIMIT $2
    )
    RETURNING id
)

SELECT count(*) FROM gone;
