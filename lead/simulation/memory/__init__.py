"""The database in memory: twins of the named queries, for the simulation.

The stores, and everything above them, are the real ones; only the execution of named queries is
replaced. Each query has a small function of the same name, in the module named like its file, over
tables of Python objects (``tables.py``). A contract suite checks that query and function give the
same answers and contents.
"""

from lead.simulation.memory.database import MemoryDatabase, Point

__all__ = ["MemoryDatabase", "Point"]
