"""Typed HTTP clients: ``peers`` for other nodes (signed), ``users`` for users (with a token)."""
