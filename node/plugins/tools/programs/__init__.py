"""Our own measuring programs, run as child processes; the only code here that uses sockets.

They need only a bare Python: most import the standard library and each other, nothing else.
"""
