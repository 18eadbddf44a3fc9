-- Purge the audit without a right that only superusers have.
-- Oldest program: 5

CREATE OR REPLACE FUNCTION purge_audit(before timestamptz, at_most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    gone bigint;
BEGIN
    -- Not as SET of the function, which needs a superuser from Postgres 15 on.
    PERFORM set_config('parley.retention', 'audit', true);
    DELETE FROM audit
    WHERE id IN (SELECT old.id FROM audit AS old WHERE old.at < before ORDER BY old.at, old.id LIMIT at_most);
    GET DIAGNOSTICS gone = ROW_COUNT;
    PERFORM set_config('parley.retention', '', true);
    RETURN gone;
END
$$;
