"""Seats by group first, then inside each group. Pure.

A group (a level, or the campaigns under one parent) counts once, however many of its campaigns are
at work: splitting one project into ten buys nothing. What a campaign cannot use goes to the others
of its group, and only what the whole group cannot use goes to other groups.
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
    """Campaigns that share one weight, by the names they go by."""

    name: str
    weight: Exact
    members: frozenset[str]


def entitlements(
    stakes: Iterable[CampaignStake], groups: Iterable[WeightGroup]
) -> dict[str, Fraction]:
    """The weight of each active campaign: its part of its group's, by the weights of the active."""
    active = {stake.name: stake.weight for stake in stakes if stake.active}
    entitled: dict[str, Fraction] = {}
    for group in groups:
        inside = {name: weight for name, weight in active.items() if name in group.members}
        total = sum(inside.values(), Fraction(0))
        for name, weight in inside.items():
            entitled[name] = Fraction(group.weight) * weight / total if total else Fraction(0)
    return entitled


def inherited(
    active: Iterable[str], parents: Mapping[str, str | None], weights: Mapping[str, Exact]
) -> dict[str, tuple[str, Exact]]:
    """For each active campaign the top of its line, and its part of what that one gets.

    On every level the parent's part is split among those children that have anything active below
    them, by weight. What a parent does itself counts as one more child, of weight 1.
    """
    children: dict[str, dict[str, None]] = {}
    at_work = list(active)
    tops: dict[str, None] = {}
    for name in at_work:
        below: str | None = name
        while below is not None and (parent := parents.get(below)) is not None:
            children.setdefault(parent, {})[below] = None
            below = parent
        tops[below or name] = None
    own = set(at_work)
    found: dict[str, tuple[str, Exact]] = {}
    open_: list[tuple[str, str, Exact]] = [(top, top, 1) for top in tops]
    while open_:
        name, top, part = open_.pop()
        below_it = children.get(name, {})
        total = sum((weights[child] for child in below_it), 0 if name not in own else 1)
        if name in own:
            found[name] = (top, Fraction(part) / total if below_it else part)
        if total:
            open_ += [(child, top, Fraction(part) * weights[child] / total) for child in below_it]
    return found


def ideals(
    seats: int, stakes: Iterable[CampaignStake], groups: Iterable[WeightGroup], unit: int = 1
) -> dict[str, int]:
    """How much each should hold: limited by demand, rounded up; those not active get nothing."""
    result: dict[str, int] = {}
    inside: dict[str, list[CampaignStake]] = {}
    listed = list(groups)
    by_member = {member: group.name for group in listed for member in group.members}
    for stake in stakes:
        result[stake.name] = 0
        if stake.active:
            inside.setdefault(by_member[stake.name], []).append(stake)
    weights = {group.name: group.weight for group in listed if group.name in inside}
    parts = divide(seats, weights, {name: _demand(some) for name, some in inside.items()}).exact()
    for name, some in inside.items():
        result |= _divide_inside(parts[name], some).rounded_up(unit)
    return result


def _demand(stakes: Iterable[CampaignStake]) -> int | None:
    demands = [stake.demand for stake in stakes]
    known = [demand for demand in demands if demand is not None]
    return sum(known) if len(known) == len(demands) else None


def _divide_inside(part: Fraction, stakes: Iterable[CampaignStake]) -> Division:
    listed = list(stakes)
    weights = {stake.name: stake.weight for stake in listed}
    return divide(part, weights, {stake.name: stake.demand for stake in listed})
