"""Axis 1: who gets a worker, who is considered first, and who is held."""
