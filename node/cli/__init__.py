"""The ``parley`` command. Modules here import click at most; the rest only when a command runs."""
