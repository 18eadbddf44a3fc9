"""The record of failed runs as a value; Parley counts them in the run table. Pure."""

from __future__ import annotations

from lead.policy.feasible.blacklist import Failures


def failed(failures: Failures, node: str, campaign: str) -> dict[tuple[str, str], int]:
    """Return the record after one more failed run."""
    return {**failures, (node, campaign): failures.get((node, campaign), 0) + 1}


def cleared(failures: Failures, node: str, campaign: str) -> dict[tuple[str, str], int]:
    """Return the record without this node's failures for this campaign."""
    return {key: count for key, count in failures.items() if key != (node, campaign)}
