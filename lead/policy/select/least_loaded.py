"""The least loaded nodes: where little else runs, a measurement disturbs and is disturbed least."""

from __future__ import annotations

from collections.abc import Iterable

from lead.policy.view import Node


def rank(nodes: Iterable[Node]) -> list[Node]:
    """The least loaded first; of equals the one used least recently, then by name."""
    return sorted(nodes, key=lambda node: (node.load, node.used_at, node.name))
