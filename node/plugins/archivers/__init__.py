"""Archivers: they deliver results to other systems. Unlike tests and tools, they do I/O."""
