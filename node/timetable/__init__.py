"""A node's own time: proposals, holds, commits, reservations, and word of time that was freed."""
