"""The least loaded nodes: where little else runs, a measurement disturbs and is disturbed least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lead.policy.view import NodeView


def ranking(nodes: Iterable[NodeView], booked: Mapping[str, int] | None = None) -> list[NodeView]:
    """Sort by booked time, then by load and the least recent use; ties keep their order.

    ``booked`` is the time that is booked on each, in any unit.
    """
    times = booked or {}
    return sorted(nodes, key=lambda node: (times.get(node.name, 0), node.load, node.used_at))
