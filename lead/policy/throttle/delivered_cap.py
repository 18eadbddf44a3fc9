"""A cap on a campaign's part of what is delivered, its next run included. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from lead.policy.share.decayed_windows import DecayWindows, amounts_by_window, decayed_sum
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Charge

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


@dataclass(frozen=True)
class Delivered:
    """Deliveries in the fairshare windows (seat-µs): to campaigns with those below them, to all."""

    used: Mapping[str, Fraction] = field(default_factory=dict)
    total: Fraction = Fraction(0)

    @classmethod
    def from_ledger(
        cls,
        ledger: Iterable[Charge],
        now: int,
        windows: DecayWindows,
        line: Callable[[str], Iterable[str]],
    ) -> Delivered:
        """Add up a ledger; ``line(campaign)`` returns a campaign and those above it."""
        by_campaign, by_all = amounts_by_window(ledger, now, windows)
        used: dict[str, Fraction] = {}
        for campaign, amounts in by_campaign.items():
            worth = decayed_sum(amounts, windows.decay)
            for name in line(campaign):
                used[name] = used.get(name, Fraction(0)) + worth
        return cls(used, decayed_sum(by_all, windows.decay))

    def amount_of(self, campaign: str) -> Fraction:
        """Return what a campaign and those below it were delivered."""
        return self.used.get(campaign, Fraction(0))


def find_part_refusal(
    campaign: str, used: Fraction, request: Fraction, delivered: Fraction, cap: Fraction
) -> PolicyRefusal | None:
    """Return a refusal if usage and request exceed the part ``cap`` of all that was delivered.

    While nothing was delivered, the cap does not apply.
    """
    if delivered <= 0 or used + request <= cap * delivered:
        return None
    part = (used + request) / delivered
    return PART.refuse(campaign=campaign, part=part, cap=cap)


def find_amount_refusal(
    campaign: str, used: Fraction, request: Fraction, cap: Fraction
) -> PolicyRefusal | None:
    """Return a refusal if usage and request exceed ``cap``, in the same unit."""
    if used + request <= cap:
        return None
    return AMOUNT.refuse(campaign=campaign, amount=used + request, cap=cap)
