"""Nodes that failed a campaign often enough get no more of its runs. Pure.

Other campaigns are not affected. A node that was away did not fail. An operator clears the record.
"""

from __future__ import annotations

from collections.abc import Mapping

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

FAILURES_MAX = 1
"""The default number of failures after which a node is left out."""

BLACKLISTED = RefusalRule(
    Axis.FEASIBLE,
    "blacklisted",
    "{node} failed {failures:run} of {campaign}, of at most {most}; to forget that: parley node "
    "pardon {node}",
)

Failures = Mapping[tuple[str, str], int]


def find_blacklist_refusal(
    failures: Failures, node: str, campaign: str, most: int = FAILURES_MAX
) -> PolicyRefusal | None:
    """Return a refusal if this node gets no runs of this campaign."""
    count = failures.get((node, campaign), 0)
    if count < most:
        return None
    return BLACKLISTED.refuse(node=node, failures=count, campaign=campaign, most=most)
