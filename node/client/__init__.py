"""HTTP clients: ``users`` for people and programs (with a token), ``peers`` for nodes (signed)."""
