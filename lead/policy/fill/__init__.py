"""Axis 6: what is reserved for blocked tasks, and what may run before them."""
