"""The users of this node: their tokens."""
