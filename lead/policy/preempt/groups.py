"""Promised seats are taken back from the groups that borrowed them. Pure.

When a group is below its target and has work, groups above theirs give seats back, always the one
that is furthest above. What campaigns without a target hold is above it. No run in progress is
displaced, so inside a group all are alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from lead.policy.verdict import Axis, RefusalRule

NOTHING_LENT = RefusalRule(
    Axis.PREEMPT,
    "nothing-lent",
    "{group} holds {held} of its {target:seat}, and nobody else holds more than is promised",
)


def seats_to_return(
    short: int, held: Mapping[str, int], targets: Mapping[str, int], unit: int = 1
) -> dict[str, int]:
    """Return how much each group gives up to free ``short`` seats, as far as possible."""
    excess = {name: amount - targets[name] for name, amount in held.items()}
    reclaimed: dict[str, int] = {}
    while short > 0 and excess:
        largest = max(excess, key=lambda name: excess[name])
        amount = min(unit, short, excess[largest])
        if amount <= 0:
            break
        excess[largest] -= amount
        reclaimed[largest] = reclaimed.get(largest, 0) + amount
        short -= amount
    return reclaimed
