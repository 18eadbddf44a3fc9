"""Shares by the number of starts, without accounting of time. Pure.

Every start is one tick: all that contend gain, the one that started pays, and then all are shifted
together so that the lowest rests on its own floor; none rises above its ceiling. A campaign that
has nothing to do keeps its number. The frequencies of starts solve ``f · price - gain = const``,
``Σ f = 1``: with equal gains they are inversely proportional to the prices.

It suits runs that cost about the same; where one costs a hundred times another, share by seats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from lead.policy.view import Exact, QueueView


def priorities_after_start(
    started: str, priorities: Mapping[str, Exact], queues: Mapping[str, QueueView]
) -> dict[str, Exact]:
    """Return the priorities of all that contend, after one of them started a run.

    ``priorities`` holds those that contend, the started one included; others keep theirs.
    """
    raised = {name: priority + queues[name].gain for name, priority in priorities.items()}
    raised[started] -= queues[started].price
    excess = min(priority - queues[name].floor for name, priority in raised.items())
    return {name: min(priority - excess, queues[name].ceiling) for name, priority in raised.items()}


def frequencies(queues: Mapping[str, QueueView]) -> dict[str, Fraction]:
    """Return the part of all starts that each has if all contend: they add up to 1."""
    inverse = {name: Fraction(1) / Fraction(it.price) for name, it in queues.items() if it.price}
    gained = sum((part * queues[name].gain for name, part in inverse.items()), Fraction(0))
    constant = (1 - gained) / sum(inverse.values()) if inverse else Fraction(0)
    return {name: part * (constant + queues[name].gain) for name, part in inverse.items()}


def initial_priorities(queues: Iterable[tuple[str, QueueView]]) -> dict[str, Exact]:
    """Return the initial priorities."""
    return {name: queue.floor for name, queue in queues}
