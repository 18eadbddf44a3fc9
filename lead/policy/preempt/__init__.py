"""Axis 4: what may be displaced, which goes first, and how much of it at most."""
