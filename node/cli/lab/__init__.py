"""Nodes of one host together: ``parley lab``, and what whole nodes in tests are started with."""
