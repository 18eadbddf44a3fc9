"""Shares by the number of starts, without any accounting. Pure.

Every start is one tick: whoever contends gains, the one that started pays, and then all are shifted
together so that the worst-off rests on its own floor; nobody rises above its ceiling. Whoever has
nothing to do keeps its number. The frequencies of starts solve ``f · price - gain = const``,
``Σ f = 1``: with equal gains they are inversely proportional to the prices.

It suits runs that cost about the same; where one costs a hundred times another, share by seats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from lead.policy.view import Exact, Queue


def after_start(
    started: str, priorities: Mapping[str, Exact], queues: Mapping[str, Queue]
) -> dict[str, Exact]:
    """The priorities of all that contend, after one of them started a run.

    ``priorities`` holds those that contend, the started one included; the others are not touched.
    """
    raised = {name: priority + queues[name].gain for name, priority in priorities.items()}
    raised[started] -= queues[started].price
    down = min(priority - queues[name].floor for name, priority in raised.items())
    return {name: min(priority - down, queues[name].ceiling) for name, priority in raised.items()}


def frequencies(queues: Mapping[str, Queue]) -> dict[str, Fraction]:
    """The part of all starts that each gets while all contend and all fit.

    Exact where floors are equal, gaps and ceilings are far above the prices, and no part comes out
    negative.
    """
    inverse = {name: Fraction(1) / queue.price for name, queue in queues.items()}
    total = sum(inverse.values(), Fraction(0))
    gained = sum((queues[name].gain * each for name, each in inverse.items()), Fraction(0))
    constant = (1 - gained) / total
    return {name: (constant + queues[name].gain) * each for name, each in inverse.items()}


def prices(wanted: Mapping[str, Fraction], scale: Fraction = Fraction(1)) -> dict[str, Fraction]:
    """Prices that give these parts when all gain the same: the largest part pays ``scale``."""
    most = max(wanted.values())
    return {name: scale * most / part for name, part in wanted.items()}


def starting(queues: Iterable[tuple[str, Queue]]) -> dict[str, Exact]:
    """The priorities before anything was started."""
    return {name: queue.floor for name, queue in queues}
