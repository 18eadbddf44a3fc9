-- keep_entries --
INSERT INTO audit (at, kind, principal, key, role, origin, verb, thing, outcome, status, problem, count)
SELECT
    given.at,
    given.kind::principal_kind,
    given.principal,
    given.key,
    given.role::token_role,
    given.origin,
    given.verb,
    given.thing,
    given.outcome::audit_outcome,
    given.status,
    given.problem,
    given.count
FROM unnest(
    $1::timestamptz [], $2::text [], $3::text [], $4::text [], $5::text [], $6::text [],
    $7::text [], $8::text [], $9::text [], $10::smallint [], $11::text [], $12::integer []
) WITH ORDINALITY AS given (at, kind, principal, key, role, origin, verb, thing, outcome, status, problem, count, place)
ORDER BY given.place;

-- entries_backward --
SELECT id, at, kind::text, principal, key, role::text, origin, verb, thing, outcome::text, status, problem, count
FROM audit
WHERE
    ($1::text IS NULL OR $1 IN (principal, key))
    AND ($2::text IS NULL OR verb = $2)
    AND ($3::text IS NULL OR starts_with(thing, $3))
    AND ($4::text [] IS NULL OR outcome::text = ANY($4))
    AND ($5::timestamptz IS NULL OR at >= $5)
    AND ($6::timestamptz IS NULL OR at < $6)
    AND ($7::bigint IS NULL OR id < $7)
ORDER BY id DESC
LIMIT $8;

-- entries_forward --
SELECT id, at, kind::text, principal, key, role::text, origin, verb, thing, outcome::text, status, problem, count
FROM audit
WHERE
    ($1::text IS NULL OR $1 IN (principal, key))
    AND ($2::text IS NULL OR verb = $2)
    AND ($3::text IS NULL OR starts_with(thing, $3))
    AND ($4::text [] IS NULL OR outcome::text = ANY($4))
    AND ($5::timestamptz IS NULL OR at >= $5)
    AND ($6::timestamptz IS NULL OR at < $6)
    AND ($7::bigint IS NULL OR id > $7)
ORDER BY id
LIMIT $8;

-- purge_entries --
SELECT purge_audit($1, $2);
