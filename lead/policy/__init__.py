"""Sharing policies: seven axes, each algorithm a pure function in a module of its own."""
