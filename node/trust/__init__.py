"""Authentication: the node's key, signatures between nodes, tokens of users.

This package does not decide on permissions, and does not read the clock: ``now`` is an argument.
"""
