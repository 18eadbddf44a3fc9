"""Who gives way to the urgent: low priority and short running time first. Pure.

The score is ``priority + running / threshold``: a run of low priority that has run for long is
worth as much as a young one of the next priority. Whatever is urgent never gives way. For runs that
are posted and not started the score is their priority alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import URGENT
from node.model import times

_PERCENT = 100

TOO_EARLY = RefusalRule(
    Axis.PREEMPT,
    "preempt-delay",
    "{campaign} is urgent, but has waited {waited} of the {delay} s after which others give way",
)
BUDGET_SPENT = RefusalRule(
    Axis.PREEMPT,
    "preempt-budget",
    "{running} of {seats} seats are urgent already; others give way up to {percent} %",
)


NO_SEAT = RefusalRule(
    Axis.PREEMPT,
    "preempt-budget",
    "{percent} % of {seats} seats is less than one: nothing gives way to {campaign}; with a budget "
    "of {enough} % one would (parley pool edit … --override "
    "'preempt.urgency={{\"percent\": {enough}}}')",
)


@dataclass(frozen=True, slots=True)
class Occupant:
    """A run as a possible victim: its campaign's level and how long it has run (µs)."""

    run: str
    level: int
    running: int


def score(occupant: Occupant, threshold: int) -> Fraction:
    """What it is worth; ``threshold`` (µs) of running time count as one level."""
    return occupant.level + Fraction(occupant.running, threshold)


def victims(occupants: Iterable[Occupant], threshold: int, most: int) -> list[Occupant]:
    """At most so many of those that may give way, the first to go first."""
    yielding = [occupant for occupant in occupants if occupant.level < URGENT]
    yielding.sort(key=lambda one: (score(one, threshold), one.level, one.running, one.run))
    return yielding[:most]


@dataclass(frozen=True, slots=True)
class Urgency:
    """When the urgent may displace others: after ``delay`` (µs), up to ``percent`` of the seats."""

    percent: Fraction
    delay: int = 0

    def allowance(self, waited: int, seats: int, urgent: int) -> int:
        """How many seats may be taken from others by who has waited so long (µs).

        ``urgent`` are the seats that hold urgent runs already. This bounds what is displaced, not
        what is free: of free seats the urgent take all they can use.
        """
        if waited < self.delay:
            return 0
        return max(0, floor(self.percent * seats / _PERCENT) - urgent)

    def refused(self, campaign: str, waited: int, seats: int, urgent: int) -> PolicyRefusal | None:
        """Why nothing gives way for an urgent campaign now, if so."""
        if waited < self.delay:
            return TOO_EARLY.says_no(
                campaign=campaign,
                waited=Fraction(waited, times.SECOND),
                delay=Fraction(self.delay, times.SECOND),
            )
        if seats and 0 < self.percent * seats < _PERCENT:
            return NO_SEAT.says_no(
                campaign=campaign,
                percent=self.percent,
                seats=seats,
                enough=-(-_PERCENT // seats),
            )
        if not self.allowance(waited, seats, urgent):
            return BUDGET_SPENT.says_no(running=urgent, seats=seats, percent=self.percent)
        return None
