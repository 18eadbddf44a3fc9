"""Shares by the number of starts, without any accounting. Pure.

Every start is one tick: whoever contends gains, the one that started pays, and then all are shifted
together so that the worst-off rests on its own floor; nobody rises above its ceiling. Whoever has
nothing to do keeps its number. The frequencies of starts solve ``f · price - gain = const``,
``Σ f = 1``: with equal gains they are inversely proportional to the prices.

It suits runs that cost about the same; where one costs a hundred times another, share by seats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lead.policy.view import Exact, QueueView


def after_start(
    started: str, priorities: Mapping[str, Exact], queues: Mapping[str, QueueView]
) -> dict[str, Exact]:
    """The priorities of all that contend, after one of them started a run.

    ``priorities`` holds those that contend, the started one included; the others are not touched.
    """
    raised = {name: priority + queues[name].gain for name, priority in priorities.items()}
    raised[started] -= queues[started].price
    down = min(priority - queues[name].floor for name, priority in raised.items())
    return {name: min(priority - down, queues[name].ceiling) for name, priority in raised.items()}


def starting(queues: Iterable[tuple[str, QueueView]]) -> dict[str, Exact]:
    """The priorities before anything was started."""
    return {name: queue.floor for name, queue in queues}
