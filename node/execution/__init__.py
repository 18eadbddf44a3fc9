"""Execution of runs: preparing, starting, watching, and ending programs, and collecting results."""
