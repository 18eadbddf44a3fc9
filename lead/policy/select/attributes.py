"""Nodes tied to projects by what is written on them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def eligible(nodes: Mapping[str, Collection[str]], wanted: Collection[str]) -> list[str]:
    """The nodes, as listed, that carry every attribute that is wanted."""
    return [name for name, carried in nodes.items() if all(each in carried for each in wanted)]
