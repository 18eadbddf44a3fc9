"""Typed HTTP clients: ``peers`` speaks to other nodes, signed; ``users`` with a token."""
