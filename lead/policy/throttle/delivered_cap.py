"""A campaign may not get more than a cap of what is delivered, its next run included. Pure."""

from __future__ import annotations

from fractions import Fraction

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

PART = RefusalRule(
    Axis.THROTTLE,
    "delivered part",
    "{campaign} would have {part} of what was delivered, of at most {cap}",
)
AMOUNT = RefusalRule(
    Axis.THROTTLE,
    "delivered amount",
    "{campaign} would have been delivered {amount}, of at most {cap}",
)


def within_part(
    campaign: str, used: Fraction, request: Fraction, delivered: Fraction, cap: Fraction
) -> PolicyRefusal | None:
    """No if use and request together are more than the part ``cap`` of what was delivered to all.

    While nothing was delivered there is nothing to have a part of.
    """
    if delivered <= 0 or used + request <= cap * delivered:
        return None
    part = (used + request) / delivered
    return PART.says_no(campaign=campaign, part=part, cap=cap)


def within_amount(
    campaign: str, used: Fraction, request: Fraction, cap: Fraction
) -> PolicyRefusal | None:
    """No if use and request together are more than ``cap``, in the same unit."""
    if used + request <= cap:
        return None
    return AMOUNT.says_no(campaign=campaign, amount=used + request, cap=cap)
