"""Axis 7: whether it can be done at all and by when, and whom to leave alone."""
