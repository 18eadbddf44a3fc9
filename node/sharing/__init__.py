"""Sharing of nodes: campaigns, their usage, and pools."""
