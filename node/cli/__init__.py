"""The ``parley`` command. Modules import only click at the top, the rest when a command runs."""
