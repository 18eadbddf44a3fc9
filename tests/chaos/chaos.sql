-- lead_over --
-- The other node is reached over a wire of ours.
UPDATE node SET url = $2 WHERE identity = $1;

-- notify_node --
SELECT pg_notify('parley', $1);
