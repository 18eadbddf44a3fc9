"""Bundles of runs: made at their lead, checked by anybody, and merged again."""
