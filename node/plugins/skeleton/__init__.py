"""The files of which ``parley plugin new`` makes a package; ``*.template`` for string.Template."""
