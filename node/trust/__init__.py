"""Who is asking: the node's key, signatures between nodes, tokens of users.

Nothing here decides what somebody may do, and nothing reads the clock: ``now`` is passed in.
"""
