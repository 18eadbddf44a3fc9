"""Pool tasks: who belongs to a pool, and which of its nodes get which seats."""
