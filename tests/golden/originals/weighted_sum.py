"""The weighted sum of one task as a formula; episodes use the same, compiled for all. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lead.policy.order.weighted import PRIORITY_MAX, Values, Weights


def component(values: Mapping[str, float], weights: Weights, name: str) -> float:
    """Return the sum of one component's terms, before the component is capped and weighted."""
    caps = weights.term_caps.get(name, {})
    total = 0.0
    for term, weight in weights.terms.get(name, {}).items():
        if weight:
            total += weight * _capped(values.get(term, 0.0), caps.get(term))
    return total


def weighed(values: Values, weights: Weights) -> float:
    """Return the weighted sum, not bounded yet."""
    total = 0.0
    for name in weights.terms:
        weight = weights.components.get(name, 1.0)
        if weight:
            total_of_terms = component(values.get(name, {}), weights, name)
            total += weight * _capped(total_of_terms, weights.component_caps.get(name))
    return total


def priority(values: Values, weights: Weights, given: int = 0) -> float:
    """Return the bounded priority; one ``given`` by an administrator exceeds all computed ones."""
    if given > 0:
        return PRIORITY_MAX + given
    return min(max(weighed(values, weights), 0.0), PRIORITY_MAX)


def _capped(value: float, cap: float | None) -> float:
    return min(value, cap) if cap else value
