"""A cap on a campaign's part of what is delivered, its next run included. Pure."""

from __future__ import annotations

from fractions import Fraction

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule

PART = RefusalRule(
    Axis.THROTTLE,
    "delivered part",
    "{campaign} would have {part:percent} of what was delivered; the cap is {cap:percent}",
)
AMOUNT = RefusalRule(
    Axis.THROTTLE,
    "delivered amount",
    "{campaign} would have been delivered {amount:duration} of seat time; the cap is "
    "{cap:duration}",
)


def within_part(
    campaign: str, used: Fraction, request: Fraction, delivered: Fraction, cap: Fraction
) -> PolicyRefusal | None:
    """Return a refusal if usage and request exceed the part ``cap`` of all that was delivered.

    While nothing was delivered, the cap does not apply.
    """
    if delivered <= 0 or used + request <= cap * delivered:
        return None
    part = (used + request) / delivered
    return PART.refuse(campaign=campaign, part=part, cap=cap)


def within_amount(
    campaign: str, used: Fraction, request: Fraction, cap: Fraction
) -> PolicyRefusal | None:
    """Return a refusal if usage and request exceed ``cap``, in the same unit."""
    if used + request <= cap:
        return None
    return AMOUNT.refuse(campaign=campaign, amount=used + request, cap=cap)
