"""What shares by starts come to where some want less than their part: the rule alone, in numbers.

As long as two contend, their priorities differ by what both have paid, and nothing is lost: starts
are as the inverse prices. Whoever has nothing left to start in an hour keeps its number while those
of the others move, so its next hour begins with a difference that nobody has paid for: up to the
greatest price, that is some starts. Whoever wants just less than its part is then at times a start
short at the end of an hour. What it wanted there is over, and having all it wants in the next hours
does not make up for it. So it loses part of a start an hour, which counts where an hour has few:
3 % of 11 starts, nothing of 36. Those who always want more have it, by their prices.

How much is no formula, as it hangs on which number meets which. But a rule that is played by
starts alone, without tasks, nodes, times and episodes, comes round, and says it exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from lead.policy.order import queues
from lead.policy.share import start_counts
from lead.policy.view import Exact, QueueView

_HOURS_MAX = 400
"""If it has not come round by then, what is over is too little to count."""


class StartCountQueues:
    """Queues that start so many runs in each hour, by their priorities."""

    def __init__(self, rules: Mapping[str, QueueView]) -> None:
        """As they are before anything was started."""
        self._rules = rules
        self._priorities: dict[str, Exact] = start_counts.starting(rules.items())
        self._started = dict.fromkeys(rules, -1)
        self._count = 0
        self._over: frozenset[str] = frozenset()

    @property
    def state(self) -> tuple[object, ...]:
        """All that the next hour depends on."""
        recent = sorted(self._rules, key=self._started.__getitem__)
        return tuple(self._priorities.values()), tuple(recent), self._over

    def hour(self, room: int, wanted: Mapping[str, int]) -> Counter[str]:
        """How many each starts; who could not start all it wanted contends in the next hour, too.

        It is tried there in vain: the hour of what is left over is full.
        """
        left, found = dict(wanted), Counter[str]()
        for _ in range(room):
            contending = [name for name in self._rules if left[name] or name in self._over]
            turn = queues.turn(map(self._contender, contending), lambda name: left[name] or None)
            if turn.entry is None:
                break
            name = turn.entry.name
            priorities = {each: self._priorities[each] for each in contending}
            self._priorities |= start_counts.after_start(name, priorities, self._rules)
            self._count += 1
            self._started[name] = self._count
            left[name] -= 1
            found[name] += 1
        self._over = frozenset(name for name, count in left.items() if count)
        return found

    def _contender(self, name: str) -> queues.Contender:
        gap = self._rules[name].gap
        return queues.Contender(name, self._priorities[name], gap, self._started[name])


def long_run_starts(
    rules: Mapping[str, QueueView], room: int, wanted: Mapping[str, int]
) -> dict[str, Fraction]:
    """The starts of each in an hour, on average: all want as much in each, for which there is room.

    The average is taken over the hours after which everything is as it was before.
    """
    turns = StartCountQueues(rules)
    hours: list[Counter[str]] = []
    seen: dict[tuple[object, ...], int] = {}
    while turns.state not in seen and len(hours) < _HOURS_MAX:
        seen[turns.state] = len(hours)
        hours.append(turns.hour(room, wanted))
    again = hours[seen.get(turns.state, 0) :]
    return {name: Fraction(sum(hour[name] for hour in again), len(again)) for name in rules}
