"""Sharing of nodes: limits and quotas of owners, shares of leads, campaigns and pools."""
