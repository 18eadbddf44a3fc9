"""One priority per task: a weighted sum of components. Pure.

``P = sum over components of weight * min(cap, sum over terms of weight * min(cap, value))``: terms
are capped before they are weighted, and so is the sum of a component's terms; a missing cap, or one
of 0, means uncapped. The priority lies in [0, 10**9]; a priority set by an administrator lies above
all of these. Tasks are ordered by priority, the highest first, then by waiting time, then by age.

    =========== ==========================================================================
    component   terms
    =========== ==========================================================================
    credential  ``campaign``, ``parent``, ``class``: a configured priority of each
    fairshare   ``campaign``, ``parent``: how far below its fairshare (percent)
    size        ``nodes`` wanted, ``duration`` (minutes), ``seat_time`` (seat-minutes)
    service     ``waiting`` (minutes), ``expansion`` (see below), ``bypass`` (times passed)
    target      ``waiting``, ``expansion``: steeply up as the rest before a target runs out
    =========== ==========================================================================

The expansion factor is ``1 + waiting/duration``: a short task grows faster than a long one. A
target's value is ``max(0.0001, the rest) ** -2``, for waiting in minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lead.policy.view import CampaignView, Candidate, RememberedState
from node.model import times

PRIORITY_MAX: Final = 10**9
REMAINING_MIN: Final = 0.0001

Values = Mapping[str, Mapping[str, float]]
"""Figures by component, then by term."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each component and of each of its terms, and their caps.

    A component weighs 1 by default, a term 0.
    """

    terms: Values
    components: Mapping[str, float] = field(default_factory=dict)
    term_caps: Values = field(default_factory=dict)
    component_caps: Mapping[str, float] = field(default_factory=dict)


WAITING_ONLY: Final = Weights({"service": {"waiting": 1.0}})
"""The default: by waiting time alone."""


def expansion_factor(waited: float, duration: float, duration_min: float = 0) -> float:
    """Return the expansion factor ``1 + waited / max(duration_min, duration)``, all in one unit.

    The minimum duration keeps very short tasks from passing all others at once.
    """
    length = max(duration_min, duration)
    return 1 + waited / length if length else 1.0


def urgency(target: float, current: float) -> float:
    """Return ``max(0.0001, target - current) ** -2``; the 0.0001 bounds it near the target."""
    remaining = max(REMAINING_MIN, target - current)
    return 1 / (remaining * remaining)


def names_by_priority(tasks: Iterable[tuple[str, float, float]]) -> list[str]:
    """Sort (name, priority, waited) and return the names; ties keep the given order."""
    return [name for name, _, _ in sorted(tasks, key=lambda it: (-it[1], -it[2]))]


@dataclass(frozen=True, slots=True)
class WeightingContext:
    """The inputs of the formula that are common to all tasks of an episode.

    ``fairshare`` is by campaign (percent below its share). ``targets`` are of waiting (minutes) and
    expansion; without a target, waiting aims at the latest start of the run. With ``longest``, the
    longest of otherwise equal tasks comes first. ``classes`` are the priorities of scheduling
    classes, ``duration_min`` is in µs.
    """

    now: int
    campaigns: Mapping[str, CampaignView]
    fairshare: Mapping[str, float]
    state: RememberedState = field(default_factory=RememberedState)
    classes: Mapping[str, float] = field(default_factory=dict)
    duration_min: int = 0
    targets: Mapping[str, float] = field(default_factory=dict)
    longest: bool = False


def tasks_in_order(
    candidates: Sequence[Candidate], weights: Weights, standing: WeightingContext
) -> list[str]:
    """Return the tasks, highest priority first, then by waiting time, then by age."""
    sums = _formula(weights)
    ranked = []

    def number_of(candidate: Candidate) -> tuple[int, int]:
        return -candidate.duration if standing.longest else 0, candidate.added_at

    # Compiled once for all, because pools have thousands of candidates.
    for candidate in sorted(candidates, key=number_of):
        waited = waited_minutes(candidate, standing)
        total = 0.0
        for weight, cap, terms in sums:
            component_total = 0.0
            for term, term_weight, term_cap in terms:
                value = term(candidate, standing, waited)
                component_total += term_weight * (min(value, term_cap) if term_cap else value)
            total += weight * (min(component_total, cap) if cap else component_total)
        ranked.append((candidate.task, min(max(total, 0.0), PRIORITY_MAX), waited))
    return names_by_priority(ranked)


def _formula(weights: Weights) -> list[_Sum]:
    """Return the formula without the terms that weigh nothing."""
    return [
        (
            weights.components.get(name, 1.0),
            weights.component_caps.get(name),
            [
                (_TERMS[name][term], weight, weights.term_caps.get(name, {}).get(term))
                for term, weight in terms.items()
                if weight
            ],
        )
        for name, terms in weights.terms.items()
        if weights.components.get(name, 1.0)
    ]


def waited_minutes(candidate: Candidate, standing: WeightingContext) -> float:
    """Return how long (minutes) a candidate has been waiting, as far as that counts."""
    since = max(candidate.waits_since, standing.state.eligible_since.get(candidate.task, 0))
    return max(0, standing.now - since) / times.MINUTE


def _campaign(candidate: Candidate, standing: WeightingContext, _: float) -> float:
    return standing.campaigns[candidate.campaign].priority


def _parent(candidate: Candidate, standing: WeightingContext, _: float) -> float:
    parent = standing.campaigns.get(standing.campaigns[candidate.campaign].parent or "")
    return parent.priority if parent else 0.0


def _class(candidate: Candidate, standing: WeightingContext, _: float) -> float:
    return standing.classes.get(candidate.scheduling_class, 0.0)


def _fairshare(candidate: Candidate, standing: WeightingContext, _: float) -> float:
    return standing.fairshare.get(candidate.campaign, 0.0)


def _parent_fairshare(candidate: Candidate, standing: WeightingContext, _: float) -> float:
    return standing.fairshare.get(standing.campaigns[candidate.campaign].parent or "", 0.0)


def _nodes(candidate: Candidate, _: WeightingContext, __: float) -> float:
    return candidate.k


def _duration(candidate: Candidate, _: WeightingContext, __: float) -> float:
    return candidate.duration / times.MINUTE


def _seat_time(candidate: Candidate, _: WeightingContext, __: float) -> float:
    return candidate.k * candidate.duration / times.MINUTE


def _waiting(_: Candidate, __: WeightingContext, waited: float) -> float:
    return waited


def _expansion(candidate: Candidate, standing: WeightingContext, waited: float) -> float:
    return expansion_factor(waited * times.MINUTE, candidate.duration, standing.duration_min)


def _bypass(candidate: Candidate, standing: WeightingContext, _: float) -> float:
    return standing.state.passes.get(candidate.task, 0)


def _waiting_target(candidate: Candidate, standing: WeightingContext, waited: float) -> float:
    target = standing.targets.get("waiting")
    if target is not None:
        return urgency(target, waited)
    return urgency((candidate.start_by - standing.now) / times.MINUTE, 0)


def _expansion_target(candidate: Candidate, standing: WeightingContext, waited: float) -> float:
    target = standing.targets.get("expansion")
    return 0.0 if target is None else urgency(target, _expansion(candidate, standing, waited))


_Term = Callable[[Candidate, WeightingContext, float], float]
_Sum = tuple[float, float | None, list[tuple[_Term, float, float | None]]]
_TERMS: Final[dict[str, dict[str, _Term]]] = {
    "credential": {"campaign": _campaign, "parent": _parent, "class": _class},
    "fairshare": {"campaign": _fairshare, "parent": _parent_fairshare},
    "size": {"nodes": _nodes, "duration": _duration, "seat_time": _seat_time},
    "service": {"waiting": _waiting, "expansion": _expansion, "bypass": _bypass},
    "target": {"waiting": _waiting_target, "expansion": _expansion_target},
}
COMPONENTS: Final = {name: tuple(terms) for name, terms in _TERMS.items()}
"""The terms that can be weighted, by component."""
