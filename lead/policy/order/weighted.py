"""One number per task: a weighted sum of what speaks for it. Pure.

``P = sum over components of weight * min(cap, sum over terms of weight * min(cap, value))``: terms
are capped before they are weighted, and the sum of a component's terms before it is; no cap, or one
of 0, is none. The priority lies in [0, 10**9]; one that an administrator gives lies above all of
these. Highest first; of two that are level, whoever has waited longer, then whoever came first.

=========== ============================================================================
component   terms
=========== ============================================================================
credential  ``campaign``, ``parent``, ``class``: a configured priority of each
fairshare   ``campaign``, ``parent``: how far below its fairshare (percent)
size        ``nodes`` asked for, ``duration`` (minutes), ``seat_time`` (seat-minutes)
service     ``waiting`` (minutes), ``expansion`` (see below), ``bypass`` (times passed over)
target      ``waiting``, ``expansion``: steeply up as what is left to a target runs out
=========== ============================================================================

The expansion factor is ``1 + waiting/duration``: a short task grows faster than a long one. A
target's value is ``max(0.0001, what is left) ** -2``, for waiting in minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lead.policy.view import Campaign, Candidate, State
from node.model import times

PRIORITY_MAX: Final = 10**9
LEFT_MIN: Final = 0.0001

Values = Mapping[str, Mapping[str, float]]
"""By component, then by term."""


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each component and each of its terms weighs, and its caps; 0 where none is given.

    Components weigh 1 unless it is said otherwise, terms nothing.
    """

    terms: Values
    components: Mapping[str, float] = field(default_factory=dict)
    term_caps: Values = field(default_factory=dict)
    component_caps: Mapping[str, float] = field(default_factory=dict)


WAITING_ONLY: Final = Weights({"service": {"waiting": 1.0}})
"""The default: whoever has waited longest."""


Key = TypeVar("Key")
Part = tuple[float, float | None, list[tuple[Key, float, float | None]]]
"""A component's weight, its cap, and for each of its terms a key, a weight, and a cap."""


def _parts(weights: Weights, key: Callable[[str, str], Key]) -> list[Part[Key]]:
    """The formula, prepared for many tasks: what weighs nothing is left out."""
    return [
        (
            weights.components.get(name, 1.0),
            weights.component_caps.get(name) or None,
            [
                (key(name, term), weight, weights.term_caps.get(name, {}).get(term) or None)
                for term, weight in terms.items()
                if weight
            ],
        )
        for name, terms in weights.terms.items()
        if weights.components.get(name, 1.0)
    ]


def _sum(parts: Iterable[Part[Key]], value: Callable[[Key], float]) -> float:
    total = 0.0
    for weight, cap, terms in parts:
        found = 0.0
        for key, term_weight, term_cap in terms:
            worth = value(key)
            found += term_weight * (worth if term_cap is None or worth < term_cap else term_cap)
        total += weight * (found if cap is None or found < cap else cap)
    return total


def weighed(values: Values, weights: Weights) -> float:
    """The weighted sum, not bounded yet."""
    parts = _parts(weights, lambda name, term: values.get(name, {}).get(term, 0.0))
    return _sum(parts, lambda value: value)


def priority(values: Values, weights: Weights, given: int = 0) -> float:
    """The bounded priority; ``given`` by an administrator is above all that is computed."""
    return PRIORITY_MAX + given if given > 0 else _bounded(weighed(values, weights))


def _bounded(total: float) -> float:
    return min(max(total, 0.0), PRIORITY_MAX)


def expansion(waited: float, duration: float, duration_min: float = 0) -> float:
    """``1 + waited / max(duration_min, duration)``, all in one unit.

    The least duration keeps very short tasks from passing everybody at once.
    """
    length = max(duration_min, duration)
    return 1 + waited / length if length else 1.0


def urgency(target: float, current: float) -> float:
    """``max(0.0001, target - current) ** -2``: unbounded near the target but for the 0.0001."""
    left = max(LEFT_MIN, target - current)
    return 1 / (left * left)


def in_order(tasks: Iterable[tuple[str, float, float]]) -> list[str]:
    """Names from (name, priority, waited), given in the order they came."""
    return [name for name, _, _ in sorted(tasks, key=lambda it: (-it[1], -it[2]))]


@dataclass(frozen=True, slots=True)
class Standing:
    """What weighs for all tasks of an episode: as of when, for whom, and what is remembered.

    ``fairshare`` is by campaign (percent below its share). ``targets`` are of waiting (minutes) and
    expansion; without one, waiting aims at the last instant at which the run may start.
    """

    now: int
    campaigns: Mapping[str, Campaign]
    fairshare: Mapping[str, float]
    state: State = field(default_factory=State)
    classes: Mapping[str, float] = field(default_factory=dict)
    duration_min: int = 0
    targets: Mapping[str, float] = field(default_factory=dict)


def order(candidates: Sequence[Candidate], weights: Weights, standing: Standing) -> list[str]:
    """The tasks, highest priority first."""
    ranked = []
    parts = _parts(weights, lambda name, term: TERMS[name][term])
    for candidate in sorted(candidates, key=lambda it: it.added_at):
        waited = waited_minutes(candidate, standing)
        total = _sum(parts, lambda value: value(candidate, standing, waited))  # noqa: B023
        ranked.append((candidate.task, _bounded(total), waited))
    return in_order(ranked)


def waited_minutes(candidate: Candidate, standing: Standing) -> float:
    """How long a candidate has been waiting, as far as it counts."""
    since = max(
        candidate.waits_since,
        standing.state.eligible_since.get(candidate.task, candidate.waits_since),
    )
    return max(0, standing.now - since) / times.MINUTE


def _parent_priority(candidate: Candidate, standing: Standing, _: float) -> float:
    parent = standing.campaigns.get(standing.campaigns[candidate.campaign].parent or "")
    return parent.priority if parent else 0.0


def _parent_fairshare(candidate: Candidate, standing: Standing, _: float) -> float:
    return standing.fairshare.get(standing.campaigns[candidate.campaign].parent or "", 0.0)


def _expansion(candidate: Candidate, standing: Standing, waited: float) -> float:
    duration_min = standing.duration_min / times.MINUTE
    return expansion(waited, candidate.duration / times.MINUTE, duration_min)


def _target_waiting(candidate: Candidate, standing: Standing, waited: float) -> float:
    most = standing.targets.get("waiting")
    left = (candidate.start_by - standing.now) / times.MINUTE if most is None else most - waited
    return urgency(left, 0)


def _target_expansion(candidate: Candidate, standing: Standing, waited: float) -> float:
    aimed = standing.targets.get("expansion")
    return 0.0 if aimed is None else urgency(aimed, _expansion(candidate, standing, waited))


Term = Callable[[Candidate, Standing, float], float]
TERMS: Final[Mapping[str, Mapping[str, Term]]] = {
    "credential": {
        "campaign": lambda it, standing, _: standing.campaigns[it.campaign].priority,
        "parent": _parent_priority,
        "class": lambda it, standing, _: standing.classes.get(it.scheduling_class, 0.0),
    },
    "fairshare": {
        "campaign": lambda it, standing, _: standing.fairshare.get(it.campaign, 0.0),
        "parent": _parent_fairshare,
    },
    "size": {
        "nodes": lambda it, _, __: it.k,
        "duration": lambda it, _, __: it.duration / times.MINUTE,
        "seat_time": lambda it, _, __: it.k * it.duration / times.MINUTE,
    },
    "service": {
        "waiting": lambda _, __, waited: waited,
        "expansion": _expansion,
        "bypass": lambda it, standing, _: standing.state.passes.get(it.task, 0),
    },
    "target": {"waiting": _target_waiting, "expansion": _target_expansion},
}
"""By component and term, what it is for a candidate that has waited so many minutes."""
