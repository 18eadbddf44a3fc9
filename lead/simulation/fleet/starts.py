"""The long-run shares of sharing by starts when some campaigns want less than their part. Pure.

As long as two campaigns contend, their priorities differ by what both have paid, and nothing is
lost: starts are proportional to the inverse prices. A campaign with nothing left to start in an
hour keeps its number while those of the others move, so its next hour begins with a difference
that nobody has paid for: up to the highest price, which amounts to some starts. A campaign that
wants just less than its part is then at times a start short at the end of an hour. The demand of
that hour has passed, and getting all it wants in the next hours does not compensate. So it loses
part of a start per hour, which matters where an hour has few: 3 % of 11 starts, nothing of 36.
Campaigns that always want more get that part, by their prices.

There is no formula for the loss, as it depends on which numbers meet. But playing the rule with
starts alone, without tasks, nodes, times and episodes, becomes periodic and gives it exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from lead.policy.order import queues
from lead.policy.share import start_counts
from lead.policy.view import Exact, QueueView

_HOURS_MAX = 400
"""Maximum hours to play; without a period by then the remaining error is negligible."""


class StartCountQueues:
    """Queues that start a number of runs in each hour by their priorities."""

    def __init__(self, rules: Mapping[str, QueueView]) -> None:
        self._rules = rules
        self._priorities: dict[str, Exact] = start_counts.initial_priorities(rules.items())
        self._started = dict.fromkeys(rules, -1)
        self._count = 0
        self._over: frozenset[str] = frozenset()

    @property
    def state(self) -> tuple[object, ...]:
        """Return everything that the next hour depends on."""
        recent = sorted(self._rules, key=self._started.__getitem__)
        return tuple(self._priorities.values()), tuple(recent), self._over

    def hour(self, room: int, wanted: Mapping[str, int]) -> Counter[str]:
        """Return the starts of each queue in an hour with ``room`` starts.

        A queue that could not start all it wanted contends in the next hour, too, but in vain: the
        hour of its remaining runs is full.
        """
        remaining, counts = dict(wanted), Counter[str]()
        for _ in range(room):
            contending = [name for name in self._rules if remaining[name] or name in self._over]
            turn = queues.next_campaign(
                map(self._contender, contending), lambda name: remaining[name] or None
            )
            if turn.entry is None:
                break
            name = turn.entry.name
            priorities = {each: self._priorities[each] for each in contending}
            self._priorities |= start_counts.priorities_after_start(name, priorities, self._rules)
            self._count += 1
            self._started[name] = self._count
            remaining[name] -= 1
            counts[name] += 1
        self._over = frozenset(name for name, count in remaining.items() if count)
        return counts

    def _contender(self, name: str) -> queues.Contender:
        gap = self._rules[name].gap
        return queues.Contender(name, self._priorities[name], gap, self._started[name])


def long_run_starts(
    rules: Mapping[str, QueueView], room: int, wanted: Mapping[str, int]
) -> dict[str, Fraction]:
    """Return the average starts of each queue per hour, if each hour has the same demand and room.

    The average covers one period, after which the queues are in the same state again.
    """
    queues_by_hour = StartCountQueues(rules)
    hours: list[Counter[str]] = []
    seen: dict[tuple[object, ...], int] = {}
    while queues_by_hour.state not in seen and len(hours) < _HOURS_MAX:
        seen[queues_by_hour.state] = len(hours)
        hours.append(queues_by_hour.hour(room, wanted))
    period = hours[seen.get(queues_by_hour.state, 0) :]
    return {name: Fraction(sum(hour[name] for hour in period), len(period)) for name in rules}
