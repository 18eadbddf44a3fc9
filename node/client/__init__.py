"""Typed HTTP clients: ``peers`` speaks to other nodes, signed; ``users`` to one's own, with a token."""
