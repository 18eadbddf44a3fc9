-- notify --
SELECT pg_notify('parley', said.words) FROM unnest($1::text []) AS said (words);
