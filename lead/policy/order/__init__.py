"""Axis 1: the order in which candidates are considered, and which of them have to wait."""
