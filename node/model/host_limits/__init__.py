"""The limits that the owner of a host sets: what other nodes may have of it. Pure.

The owner writes them into one TOML file (``document.py``). Facts about a task go in, and a verdict
comes out: the rule that allows it, or the one that does not, at which field, and what it would
allow (``rules.py``). ``document.py`` also has what applies where there is no file.
"""
