"""The poorest node that suffices, so that a ping does not occupy the only 100G node. Pure.

The wealth of a node is the sum, over the counted resources, of its amount relative to the largest
amount that any of these nodes has.
"""

from __future__ import annotations

from collections.abc import Mapping


def ranking(configured: Mapping[str, Mapping[str, int]], needs: Mapping[str, int]) -> list[str]:
    """Return the nodes that meet ``needs``, the poorest first; ties go to the node listed first."""
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
