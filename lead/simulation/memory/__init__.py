"""The database in memory: the twin of the named queries, for the simulation.

The stores, and everything above them, are the real ones. What executes a named query is replaced:
for each query there is a small function of its name, in the module of its file's name, over tables
of Python objects (``tables.py``). A contract suite holds both to the same answers and contents.
"""

from lead.simulation.memory.database import MemoryDatabase, Point

__all__ = ["MemoryDatabase", "Point"]
