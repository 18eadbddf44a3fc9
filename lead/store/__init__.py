"""The lead's tables: what to plan, negotiations, decisions. SQL lives in ``sql/*.sql``."""
