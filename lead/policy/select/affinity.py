"""Nodes that measured the same before. Pure.

A node has affinity when it measured earlier runs of this series, or this target for this campaign,
so that figures stay comparable; soft matches add to it. The node with the highest affinity comes
first; ties go to the least recently used, then to the one listed first. A run waits within its slip
for a node that measured its series, and for no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lead.policy.view import Candidate, NodeView, RememberedState

KNOWN = 100
"""The worth of having measured the series before; soft matches state their own worth."""

KNOWN_TARGET = 50
"""The worth of having measured the target before, for the same campaign."""


def has_measured(candidate: Candidate, node: NodeView, state: RememberedState) -> bool:
    """Return whether the node measured earlier runs of the candidate's series."""
    return (candidate.campaign, node.name, candidate.series) in state.measured


def affinity(candidate: Candidate, node: NodeView, state: RememberedState) -> int:
    """Return how much the node suits the candidate, beyond being able."""
    attributes = node.attributes
    worth_sum = 0
    if has_measured(candidate, node, state):
        worth_sum = KNOWN
    elif (candidate.campaign, node.name, candidate.target) in state.measured:
        worth_sum = KNOWN_TARGET
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
    return sorted(nodes, key=lambda node: (-score(node), times.get(node.name, 0), node.used_at))
