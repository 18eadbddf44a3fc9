"""Axis 4: what may be displaced, in which order, and up to how much."""
