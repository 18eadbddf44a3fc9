"""Axis 3: which nodes a candidate gets, and how long it waits for better ones."""
