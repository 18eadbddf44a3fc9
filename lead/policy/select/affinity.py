"""Nodes that measured a target before. Pure.

A node has affinity when it measured this target for this campaign before, so that the series stays
comparable; soft matches add to it. The node with the highest affinity comes first; ties go to the
least recently used, then to the first by name. A run waits for it within its slip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lead.policy.view import Candidate, NodeView, RememberedState

KNOWN = 100
"""The worth of having measured the target before; soft matches state their own worth."""


def has_measured(candidate: Candidate, node: NodeView, state: RememberedState) -> bool:
    """Return whether the node measured the target for this campaign before."""
    return (candidate.campaign, node.name, candidate.target) in state.measured


def affinity(candidate: Candidate, node: NodeView, state: RememberedState) -> int:
    """Return how much the node suits the candidate, beyond being able."""
    attributes = node.attributes
    worth_sum = KNOWN if has_measured(candidate, node, state) else 0
    for (key, value), worth in candidate.prefer.items():
        if attributes.get(key) == value:
            worth_sum += worth
    return worth_sum


def ranking(
    nodes: Iterable[NodeView],
    score: Callable[[NodeView], int],
    booked: Mapping[str, int] | None = None,
) -> list[NodeView]:
    """Sort the best first; ties go to the node with less booked, if given."""
    times = booked or {}
    return sorted(
        nodes, key=lambda node: (-score(node), times.get(node.name, 0), node.used_at, node.name)
    )
