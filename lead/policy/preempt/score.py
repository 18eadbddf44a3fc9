"""The order in which runs are displaced by urgent ones: low priority and young runs first. Pure.

The score is ``priority + running / threshold``: a run of low priority that has run for long is
worth as much as a young one of the next priority. Urgent runs are never displaced. For runs that
are posted and not started, the score is their priority alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Final

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import URGENT
from node.model import times

_PERCENT = 100

TOO_EARLY = RefusalRule(
    Axis.PREEMPT,
    "preempt-delay",
    "{campaign} is urgent, but has waited {waited} of the {delay} s before it may displace others",
)
BUDGET_SPENT = RefusalRule(
    Axis.PREEMPT,
    "preempt-budget",
    "{running} of {seats} seats are urgent already; the budget is {percent} %",
    "spent",
)


NO_SEAT = RefusalRule(
    Axis.PREEMPT,
    "preempt-budget",
    "{percent} % of {seats} seats is less than one, so {campaign} displaces nothing; a budget of "
    "{enough} % allows one (parley pool edit … --override "
    "'preempt.urgency={{\"percent\": {enough}}}')",
    "seatless",
)


THRESHOLD: Final = 30 * times.MINUTE
"""The running time (µs) that counts as one level, as in the original; here no victim has begun."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A run as a possible victim: its campaign's level and how long it has run (µs)."""

    run: str
    level: int
    running: int


def score(occupant: Occupant, threshold: int) -> Fraction:
    """Return the run's worth; ``threshold`` µs of running time count as one level."""
    return occupant.level + Fraction(occupant.running, threshold)


def victims(occupants: Iterable[Occupant], threshold: int, most: int) -> list[Occupant]:
    """Return at most ``most`` runs that may be displaced, in the order of displacement."""
    victims_in_order = [occupant for occupant in occupants if occupant.level < URGENT]
    victims_in_order.sort(key=lambda it: (score(it, threshold), it.level, it.running, it.run))
    return victims_in_order[:most]


@dataclass(frozen=True, slots=True)
class Urgency:
    """Displacement by the urgent: after ``delay`` µs, and up to ``percent`` of the seats."""

    percent: Fraction
    delay: int = 0

    def allowance(self, waited: int, seats: int, urgent: int) -> int:
        """Return how many seats a run that has waited ``waited`` µs may displace.

        ``urgent`` are the seats that hold urgent runs already. This limits displacement only: of
        the free seats, the urgent take all they can use.
        """
        if waited < self.delay:
            return 0
        return max(0, floor(self.percent * seats / _PERCENT) - urgent)

    def find_refusal(
        self, campaign: str, waited: int, seats: int, urgent: int
    ) -> PolicyRefusal | None:
        """Return why an urgent campaign may displace nothing now, or None."""
        if waited < self.delay:
            return TOO_EARLY.refuse(
                campaign=campaign,
                waited=Fraction(waited, times.SECOND),
                delay=Fraction(self.delay, times.SECOND),
            )
        if seats and 0 < self.percent * seats < _PERCENT:
            return NO_SEAT.refuse(
                campaign=campaign,
                percent=self.percent,
                seats=seats,
                enough=-(-_PERCENT // seats),
            )
        if not self.allowance(waited, seats, urgent):
            return BUDGET_SPENT.refuse(running=urgent, seats=seats, percent=self.percent)
        return None
