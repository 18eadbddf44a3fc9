"""The lead as it runs: its parts put together, and built for the node that it plans for."""
