"""Archivers: where results go. Unlike tests and tools they do I/O themselves."""
