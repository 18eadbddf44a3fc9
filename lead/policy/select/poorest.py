"""The poorest node that will do: the only 100G probe is not spent on a ping. Pure.

How rich a node is: what it has of each counted resource as a part of the most that any of these
nodes has, summed up.
"""

from __future__ import annotations

from collections.abc import Mapping


def rank(configured: Mapping[str, Mapping[str, int]], needs: Mapping[str, int]) -> list[str]:
    """The nodes that have all of ``needs``, poorest first; of two alike the one listed first."""
    kinds = sorted({kind for has in configured.values() for kind in has})
    most = {kind: max(has.get(kind, 0) for has in configured.values()) or 1 for kind in kinds}
    fitting = [
        name
        for name, has in configured.items()
        if all(has.get(kind, 0) >= amount for kind, amount in needs.items())
    ]
    return sorted(
        fitting, key=lambda name: sum(configured[name].get(kind, 0) / most[kind] for kind in kinds)
    )
