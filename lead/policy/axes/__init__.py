"""The algorithms plugged into the sockets of an episode, axis by axis."""
