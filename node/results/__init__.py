"""Delivery of results: archives, the workers that deliver to them, and transforms of documents."""
