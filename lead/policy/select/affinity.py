"""The nodes that know the work, and how long to wait for them. Pure.

A node has affinity when it measured this target for this campaign before, so that the series stays
comparable; soft matches add to it. Of those that can do it now the one with the highest affinity is
taken; of equals the one used least recently, then the first by name. While a run may still wait
for a node with affinity, others are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from lead.policy.view import Candidate, NodeView, RememberedState

KNOWN = 100
"""What it is worth that a node measured the target before; soft matches are worth what they say."""


def knows(candidate: Candidate, node: NodeView, state: RememberedState) -> bool:
    """Whether the node measured the target for this campaign before."""
    return (candidate.campaign, node.name, candidate.target) in state.measured


def affinity(candidate: Candidate, node: NodeView, state: RememberedState) -> int:
    """How much the node suits the candidate beyond being able."""
    attributes = node.attributes
    found = KNOWN if knows(candidate, node, state) else 0
    for (key, value), worth in candidate.prefer.items():
        if attributes.get(key) == value:
            found += worth
    return found


def rank(
    nodes: Iterable[NodeView],
    score: Callable[[NodeView], int],
    booked: Mapping[str, int] | None = None,
) -> list[NodeView]:
    """The best first; of equals the one on which less is booked, if that is told."""
    times = booked or {}
    return sorted(
        nodes, key=lambda node: (-score(node), times.get(node.name, 0), node.used_at, node.name)
    )


def starts_at(
    submitted: int, affine_at: int | None, other_at: int | None, wait: int | None
) -> tuple[bool, int] | None:
    """Whether a node with affinity is taken, and when; None where neither comes free.

    ``affine_at`` and ``other_at`` are when nodes with and without affinity come free (None: never);
    for ``wait`` (None: for ever) those without are refused.
    """
    affine = None if affine_at is None else max(submitted, affine_at)
    other = None
    if other_at is not None and (wait is not None or affine is None):
        other = max(submitted + (wait or 0), other_at)
    if affine is not None and (other is None or affine <= other):
        return True, affine
    return None if other is None else (False, other)
