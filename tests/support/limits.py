"""Limits of hosts, for tests that set them without a file."""

from __future__ import annotations

from node.service import NodeService

NOTHING = "version = 1\n"
"""Limits that admit no task of another node."""


async def limit(node: NodeService, text: str) -> None:
    """Give a node other limits, by which it judges and counts what it has."""
    set_limits(node, text)
    await node.limits.apply()


def set_limits(node: NodeService, text: str) -> None:
    """Give a node other limits; its tasks are judged by them when they are introduced again."""
    node.limits._given = text
    node.limits._loaded = node.limits._load()
