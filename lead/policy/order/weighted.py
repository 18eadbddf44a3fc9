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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

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


def component(values: Mapping[str, float], weights: Weights, name: str) -> float:
    """The sum of one component's terms, before the component is capped and weighted."""
    caps = weights.term_caps.get(name, {})
    total = 0.0
    for term, weight in weights.terms.get(name, {}).items():
        if weight:
            total += weight * _capped(values.get(term, 0.0), caps.get(term))
    return total


def weighed(values: Values, weights: Weights) -> float:
    """The weighted sum, not bounded yet."""
    total = 0.0
    for name in weights.terms:
        weight = weights.components.get(name, 1.0)
        if weight:
            found = component(values.get(name, {}), weights, name)
            total += weight * _capped(found, weights.component_caps.get(name))
    return total


def priority(values: Values, weights: Weights, given: int = 0) -> float:
    """The bounded priority; ``given`` by an administrator is above all that is computed."""
    if given > 0:
        return PRIORITY_MAX + given
    return min(max(weighed(values, weights), 0.0), PRIORITY_MAX)


def _capped(value: float, cap: float | None) -> float:
    return min(value, cap) if cap else value


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
    arrived = sorted(candidates, key=lambda it: it.added_at)
    for candidate in arrived:
        waited = waited_minutes(candidate, standing)
        values = values_of(candidate, weights, standing, waited)
        ranked.append((candidate.task, priority(values, weights), waited))
    return in_order(ranked)


def waited_minutes(candidate: Candidate, standing: Standing) -> float:
    """How long a candidate has been waiting, as far as it counts."""
    since = standing.state.eligible_since.get(candidate.task, candidate.waits_since)
    return max(0, standing.now - max(since, candidate.waits_since)) / times.MINUTE


def values_of(
    candidate: Candidate, weights: Weights, standing: Standing, waited: float
) -> dict[str, dict[str, float]]:
    """What speaks for a candidate, of those components that weigh anything."""
    return {
        name: _COMPONENTS[name](candidate, standing, waited)
        for name in weights.terms
        if weights.components.get(name, 1.0)
    }


def _credential(candidate: Candidate, standing: Standing, _: float) -> dict[str, float]:
    campaign = standing.campaigns[candidate.campaign]
    parent = standing.campaigns.get(campaign.parent or "")
    return {
        "campaign": campaign.priority,
        "parent": parent.priority if parent else 0.0,
        "class": standing.classes.get(candidate.scheduling_class, 0.0),
    }


def _fairshare(candidate: Candidate, standing: Standing, _: float) -> dict[str, float]:
    parent = standing.campaigns[candidate.campaign].parent or ""
    return {
        "campaign": standing.fairshare.get(candidate.campaign, 0.0),
        "parent": standing.fairshare.get(parent, 0.0),
    }


def _size(candidate: Candidate, _: Standing, __: float) -> dict[str, float]:
    minutes = candidate.duration / times.MINUTE
    return {"nodes": candidate.k, "duration": minutes, "seat_time": candidate.k * minutes}


def _service(candidate: Candidate, standing: Standing, waited: float) -> dict[str, float]:
    return {
        "waiting": waited,
        "expansion": _expansion(candidate, standing, waited),
        "bypass": standing.state.passes.get(candidate.task, 0),
    }


def _target(candidate: Candidate, standing: Standing, waited: float) -> dict[str, float]:
    most = standing.targets.get("waiting")
    left = (candidate.start_by - standing.now) / times.MINUTE if most is None else most - waited
    aimed = standing.targets.get("expansion")
    reached = _expansion(candidate, standing, waited)
    return {
        "waiting": urgency(left, 0),
        "expansion": 0.0 if aimed is None else urgency(aimed, reached),
    }


def _expansion(candidate: Candidate, standing: Standing, waited: float) -> float:
    minutes = candidate.duration / times.MINUTE
    return expansion(waited, minutes, standing.duration_min / times.MINUTE)


_COMPONENTS: Final = {
    "credential": _credential,
    "fairshare": _fairshare,
    "size": _size,
    "service": _service,
    "target": _target,
}
