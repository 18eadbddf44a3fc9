"""Placing runs on the nodes that are named; in Parley such tasks need no placement. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def as_named(free: Mapping[str, int], names: Iterable[str]) -> dict[str, int] | None:
    """Place one on each node named; a node named twice gets two."""
    placed = dict.fromkeys(free, 0)
    for name in names:
        if placed.get(name, 0) >= free.get(name, 0):
            return None
        placed[name] += 1
    return placed
