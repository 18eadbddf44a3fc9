"""How much of each counted resource a campaign may use at once. Pure.

The quota of a campaign holds as well as the capacity of the pool; quotas may be overbooked a
little, so that what one leaves unused others can take.
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
    "{used} {resource} are in use and {campaign} wants {wanted} more, of {capacity} there are",
)


def admit(
    campaign: str,
    wanted: Mapping[str, int],
    quotas: Mapping[str, int],
    in_use: Mapping[str, int],
    free: Mapping[str, tuple[int, int]],
) -> PolicyRefusal | None:
    """Why so much (by resource) is not to be had, if so.

    ``in_use`` is what the campaign itself uses; ``free`` gives for resources of the pool what all
    use together and how much there is.
    """
    for resource, amount in wanted.items():
        quota = quotas.get(resource)
        used = in_use.get(resource, 0)
        if quota is not None and used + amount > quota:
            return QUOTA.says_no(
                campaign=campaign, resource=resource, used=used, wanted=amount, quota=quota
            )
    for resource, amount in wanted.items():
        used, capacity = free.get(resource, (0, amount))
        if used + amount > capacity:
            return CAPACITY.says_no(
                campaign=campaign, resource=resource, used=used, wanted=amount, capacity=capacity
            )
    return None
