"""The runs without a place that will start too late as things are, after an episode. Pure.

The forecast (``feasible/start_by.py``) places what the episode left over beside all that is booked,
with campaigns in turn. Nodes that had no time when they were asked do not count: leads do not know
what others have booked there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from lead.policy.feasible.start_by import ForecastRun
from lead.policy.view import Candidate

MISSES_MAX = 1000
"""Maximum number of misses of one task, the first ones."""

Forecast = Callable[[Sequence[Candidate]], Iterable[ForecastRun]]
"""Returns when the runs of candidates would start."""


def expected_misses(
    left: Sequence[Candidate], without_time: Mapping[str, Collection[str]], forecast: Forecast
) -> dict[str, list[int]]:
    """Return by task the latest starts that its runs are expected to miss, in order.

    ``left`` are the candidates without a place, with the nodes that are up and the number of nodes
    that each still wants. ``without_time`` has, by task, the nodes that had no time. If nodes have
    runs of their own, each run that misses its start counts.
    """
    misses: dict[str, list[int]] = {}
    possible: dict[str, Candidate] = {}
    for candidate in left:
        full = without_time.get(candidate.task, ())
        nodes = [name for name in candidate.nodes if name not in full]
        wanted = candidate.k if candidate.together else min(candidate.k, len(nodes))
        if len(nodes) >= wanted > 0:
            possible[candidate.task] = replace(candidate, nodes=nodes, k=wanted)
        lacking = _count_runs(
            candidate, candidate.k - (wanted if candidate.task in possible else 0)
        )
        if lacking:
            misses[candidate.task] = [
                start + candidate.slip for start, _ in candidate.spans for _ in range(lacking)
            ]
    for run in forecast(list(possible.values())):
        if run.is_late:
            candidate = possible[run.task]
            listed = misses.setdefault(run.task, [])
            listed += [run.start_by] * _count_runs(candidate, candidate.k)
    return {task: sorted(listed)[:MISSES_MAX] for task, listed in misses.items()}


def _count_runs(candidate: Candidate, nodes: int) -> int:
    return nodes if candidate.apart else min(nodes, 1)
