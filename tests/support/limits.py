"""Limits of hosts, for tests that set them without a file."""

from __future__ import annotations

from collections.abc import Mapping

from node.model.host_limits.document import EVERYTHING
from node.service import NodeService

RANKED_ALIKE = f'{EVERYTHING}rank = "own"\n'
"""Limits by which the priorities alone decide between the host's own tasks and those of others."""

NOTHING = "version = 1\n"
"""Limits that admit no task of another node."""


async def share(node: NodeService, shares: Mapping[str, int], others: int = 1) -> None:
    """Give leads, by their names, shares of a node's time; others may have everything."""
    keys = {each.name: each.identity for each in node.directory.all}
    lines = [f'"{keys[name]}" = {number}' for name, number in shares.items()]
    section = ["[shares]", *lines, f"others = {others}", ""] if lines else []
    await limit(node, "\n".join([EVERYTHING, *section]))


async def limit(node: NodeService, text: str) -> None:
    """Give a node other limits, by which it judges and counts what it has."""
    set_limits(node, text)
    await node.limits.apply()


def set_limits(node: NodeService, text: str) -> None:
    """Give a node other limits; its tasks are judged by them when they are introduced again."""
    node.limits._given = text
    node.limits._loaded = node.limits._read_limits()
