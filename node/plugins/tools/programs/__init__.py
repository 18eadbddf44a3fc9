"""Our own measuring programs, started as child processes; the only code here that touches sockets.

They import the standard library and each other, nothing else: a bare Python is all they need.
"""
