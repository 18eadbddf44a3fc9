"""Axis 6: what is kept free for whom, and what may slip past meanwhile."""
