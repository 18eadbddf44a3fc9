"""Shares for groups first, then inside each group. Pure.

A group (a level, or the campaigns under one parent) counts once, however many of its campaigns are
active: splitting one project into ten campaigns gains nothing. What a campaign cannot use goes to
the others of its group, and only what the whole group cannot use goes to other groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from lead.policy.division import Division, divide
from lead.policy.seats import CampaignStake
from lead.policy.view import Exact


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """The names of campaigns that share one weight."""

    name: str
    weight: Exact
    members: frozenset[str]


def entitlements(
    stakes: Iterable[CampaignStake], groups: Iterable[WeightGroup]
) -> dict[str, Fraction]:
    """Return each active campaign's weight: its part of the group's weight, by active weights."""
    active = {stake.name: stake.weight for stake in stakes if stake.active}
    weights: dict[str, Fraction] = {}
    for group in groups:
        inside = {name: weight for name, weight in active.items() if name in group.members}
        total = sum(inside.values(), Fraction(0))
        for name, weight in inside.items():
            weights[name] = Fraction(group.weight) * weight / total if total else Fraction(0)
    return weights


def top_and_part(
    active: Iterable[str], parents: Mapping[str, str | None], weights: Mapping[str, Exact]
) -> dict[str, tuple[str, Exact]]:
    """Return each active campaign's topmost ancestor, and its part of that one's share.

    On every level the parent's part is split by weight among those children that have anything
    active below them. What a parent does itself counts as one more child, of weight 1.
    """
    children: dict[str, dict[str, None]] = {}
    names = list(active)
    tops: dict[str, None] = {}
    for name in names:
        child: str | None = name
        while child is not None and (parent := parents.get(child)) is not None:
            children.setdefault(parent, {})[child] = None
            child = parent
        tops[child or name] = None
    active_names = set(names)
    tops_and_parts: dict[str, tuple[str, Exact]] = {}
    pending: list[tuple[str, str, Exact]] = [(top, top, 1) for top in tops]
    while pending:
        name, top, part = pending.pop()
        weights_below = children.get(name, {})
        total = sum(
            (weights[child] for child in weights_below), 0 if name not in active_names else 1
        )
        if name in active_names:
            tops_and_parts[name] = (top, Fraction(part) / total if weights_below else part)
        if total:
            pending += [
                (child, top, Fraction(part) * weights[child] / total) for child in weights_below
            ]
    return tops_and_parts


def ideals(
    seats: int, stakes: Iterable[CampaignStake], groups: Iterable[WeightGroup], unit: int = 1
) -> dict[str, int]:
    """Return how much each should hold: limited by demand, rounded up, 0 for the inactive."""
    result: dict[str, int] = {}
    stakes_of: dict[str, list[CampaignStake]] = {}
    all_groups = list(groups)
    by_member = {member: group.name for group in all_groups for member in group.members}
    for stake in stakes:
        result[stake.name] = 0
        if stake.active:
            stakes_of.setdefault(by_member[stake.name], []).append(stake)
    weights = {group.name: group.weight for group in all_groups if group.name in stakes_of}
    parts = divide(
        seats, weights, {name: _demand(members) for name, members in stakes_of.items()}
    ).exact_shares()
    for name, members in stakes_of.items():
        result |= _divide_inside(parts[name], members).rounded_shares(unit)
    return result


def _demand(stakes: Iterable[CampaignStake]) -> int | None:
    demands = [stake.demand for stake in stakes]
    limited = [demand for demand in demands if demand is not None]
    return sum(limited) if len(limited) == len(demands) else None


def _divide_inside(part: Fraction, stakes: Iterable[CampaignStake]) -> Division:
    members = list(stakes)
    weights = {stake.name: stake.weight for stake in members}
    return divide(part, weights, {stake.name: stake.demand for stake in members})
