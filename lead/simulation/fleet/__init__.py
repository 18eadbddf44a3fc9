"""Policies over a long time: episode after episode, over the seats of a simulated fleet."""
