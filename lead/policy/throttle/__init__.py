"""Axis 5: what is refused although there is room."""
