"""Rankings of the nodes that suffice for a run: by load, by time left, by wealth. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lead.policy.view import NodeView


def by_load(nodes: Iterable[NodeView], booked: Mapping[str, int] | None = None) -> list[NodeView]:
    """Sort by booked time, then by load and the least recent use; ties keep their order.

    Where little else runs, a measurement disturbs and is disturbed least. ``booked`` is the time
    that is booked on each, in any unit.
    """
    times = booked or {}
    return sorted(nodes, key=lambda node: (times.get(node.name, 0), node.load, node.used_at))


def by_time_left(free_for: Mapping[str, int | None], duration: int) -> list[str]:
    """Return the nodes that are free for ``duration`` µs, the best first; None is without an end.

    The best has the least time left before its next booking: nodes with long free time are left
    to runs that need it. Ties go to the node listed first.
    """
    fitting = [name for name, free in free_for.items() if free is None or free >= duration]
    return sorted(fitting, key=lambda name: (free_for[name] is None, free_for[name] or 0))


def by_wealth(configured: Mapping[str, Mapping[str, int]], needs: Mapping[str, int]) -> list[str]:
    """Return the nodes that meet ``needs``, the poorest first; ties go to the node listed first.

    So a ping does not occupy the only 100G node. The wealth of a node is the sum, over the counted
    resources, of its amount relative to the largest amount that any of these nodes has.
    """
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
