"""Whom measurements are for: campaigns, what they have used, and pools of nodes."""
