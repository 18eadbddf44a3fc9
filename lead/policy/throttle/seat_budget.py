"""Budgets of seat-time until an instant, of a campaign and of those below it. Pure.

A budget counts what was used and what is booked of its period. Whatever does not take place after
all, or ends early, is given back by the ledger, and so to the budget. Runs that start at its end or
later are not counted.
"""

from __future__ import annotations

from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import FullHours, SeatBudget
from node.model import times

SPENT = RefusalRule(
    Axis.THROTTLE,
    "budget",
    "{campaign} has used or booked {used} of its {most} seat-hours, and wants {wanted} more",
)


class SpentTime:
    """The seat-time that a campaign with a budget, and those below it, have used or booked."""

    def __init__(self, campaign: str, budget: SeatBudget, used: int) -> None:
        """``used`` is in seat-µs."""
        self.campaign = campaign
        self.budget = budget
        self.used = used

    def copy(self) -> SpentTime:
        """Return a counter that counts on from here by itself."""
        return SpentTime(self.campaign, self.budget, self.used)

    @staticmethod
    def wanted(moves: int | None, seat_time: int) -> int:
        """Return what a run takes of the budget, in seat-µs."""
        del moves
        return seat_time

    def add(self, start: int, amount: int) -> None:
        """Count a run."""
        if self.budget.since <= start < self.budget.until:
            self.used += amount

    def find_refusal(self, start: int, own: int | None) -> PolicyRefusal | None:
        """Return why a run of ``own`` seat-µs must not start then, None if it may."""
        full = next((it for it in self.full_hours(own or 0) if it.start <= start < it.end), None)
        return None if full is None else self.refusal_in(full, own or 0)

    @staticmethod
    def find_permanent_refusal(own: int | None) -> PolicyRefusal | None:
        """Return None: whatever a run takes, it may start once the budget is over."""
        del own
        return None

    def refusal_in(self, full: FullHours, own: int) -> PolicyRefusal:
        """Return the refusal of a run within the period of the budget."""
        return SPENT.refuse(
            campaign=self.campaign,
            used=full.used / times.HOUR,
            most=self.budget.most / times.HOUR,
            wanted=own / times.HOUR,
            until=full.end,
        ).with_room_at(full.end)

    def full_hours(self, own: int) -> list[FullHours]:
        """Return the period if another run of this seat-time would exceed the budget."""
        if not own or self.used + own <= self.budget.most:
            return []
        return [FullHours(self.budget.since, self.budget.until, self.used)]
