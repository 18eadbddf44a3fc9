"""The node's tables. SQL lives in ``sql/*.sql``, one file for each aggregate, each query with a name."""
