"""The HTTP API: each route parses the request, calls a service, and replies."""
