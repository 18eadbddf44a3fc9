"""Ways to lay several runs of one task over nodes with free places. Pure.

In turn over the nodes (the default), at most one on each, as many as possible on few, or on the
nodes that are named. Each function takes the free places of each node and returns the number placed
on each, or None if they do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping


def round_robin(free: Mapping[str, int], count: int) -> dict[str, int] | None:
    """Place one on each node in turn, as listed, while it has room."""
    placed = dict.fromkeys(free, 0)
    if sum(free.values()) < count:
        return None
    while count:
        for name, room in free.items():
            if count and placed[name] < room:
                placed[name] += 1
                count -= 1
    return placed


def spread(free: Mapping[str, int], count: int) -> dict[str, int] | None:
    """Place at most one on each node, as listed."""
    with_room = [name for name, room in free.items() if room > 0]
    if len(with_room) < count:
        return None
    return dict.fromkeys(free, 0) | dict.fromkeys(with_room[:count], 1)


def pack(free: Mapping[str, int], count: int) -> dict[str, int] | None:
    """Fill the node with the most room, then the next; ties go to the node listed first."""
    if sum(free.values()) < count:
        return None
    placed = dict.fromkeys(free, 0)
    for name in sorted(free, key=lambda each: -free[each]):
        placed[name] = min(free[name], count)
        count -= placed[name]
    return placed
