"""The node's tables. SQL lives in ``sql/*.sql``, a file for each aggregate, queries by name."""
