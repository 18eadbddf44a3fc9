"""Nodes tied to campaigns by their attributes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def nodes_with(nodes: Mapping[str, Collection[str]], wanted: Collection[str]) -> list[str]:
    """Return the nodes, as listed, that have every attribute in ``wanted``."""
    return [
        name for name, attributes in nodes.items() if all(each in attributes for each in wanted)
    ]
