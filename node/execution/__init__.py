"""Runs this node's parts of runs: launches, watches, ends them, collects parts and merges them."""
