"""The HTTP API: each route parses, calls, replies; rules live elsewhere."""
