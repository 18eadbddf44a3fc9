"""Delivers results to where they go: the workers, and what they make of documents."""
