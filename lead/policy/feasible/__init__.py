"""Axis 7: whether a task can run at all and by when, and which nodes not to ask."""
