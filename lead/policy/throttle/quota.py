"""Quotas on how much of each counted resource a campaign may use at once. Pure.

The quota of a campaign applies as well as the capacity of the pool. Quotas may be overbooked a
little, so that what one campaign leaves unused others can take.
"""

from __future__ import annotations

from collections.abc import Mapping

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

QUOTA = RefusalRule(
    Axis.THROTTLE,
    "quota",
    "{campaign} uses {used} {resource} and wants {wanted} more, of at most {quota}",
)
CAPACITY = RefusalRule(
    Axis.THROTTLE,
    "capacity",
    "{used} of {capacity} {resource} are in use, and {campaign} wants {wanted} more",
)


def find_capacity_refusal(
    campaign: str, wanted: Mapping[str, int], free: Mapping[str, tuple[int, int]]
) -> PolicyRefusal | None:
    """Return a refusal if the wanted amounts (by resource) are not available.

    ``free`` has, for resources of the pool, what all use together and how much there is.
    """
    for resource, amount in wanted.items():
        used, capacity = free.get(resource, (0, amount))
        if used + amount > capacity:
            return CAPACITY.refuse(
                campaign=campaign, resource=resource, used=used, wanted=amount, capacity=capacity
            )
    return None
