"""The shares that campaigns are promised by weight, and the usage of their descendants. Pure.

A campaign's weight counts among its siblings, which divide what their parent is promised. Only
campaigns with demand take part: those that have tasks or were charged, themselves or below them.
Suspended campaigns get nothing, and urgent ones have no share: they are served before all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Member:
    """A campaign among the others; ``wants``: it has tasks, or was charged."""

    id: int
    parent: int | None
    weight: Fraction
    urgent: bool = False
    suspended: bool = False
    wants: bool = True


def promised_shares(members: Sequence[Member]) -> dict[int, Fraction | None]:
    """Return each campaign's part of the whole; None for urgent ones and their descendants."""
    shares: dict[int, Fraction | None] = {member.id: Fraction(0) for member in members}
    below = _children_by_parent(members)
    wanting = {member.id for member in members if _has_demand(member, below)}
    pending: list[tuple[int | None, Fraction | None]] = [(None, Fraction(1))]
    while pending:
        parent, whole = pending.pop()
        siblings = [member for member in below.get(parent, ()) if member.id in wanting]
        total = sum((m.weight for m in siblings if not m.urgent), Fraction(0))
        for member in siblings:
            part = None
            if whole is not None and not member.urgent:
                part = whole * member.weight / total if total else Fraction(0)
            shares[member.id] = part
            pending.append((member.id, part))
    return shares


def with_descendants(members: Sequence[Member], used: Mapping[int, int]) -> dict[int, int]:
    """Return by campaign what it and all its descendants have used."""
    parents = {member.id: member.parent for member in members}
    sums = dict.fromkeys(parents, 0)
    for campaign, amount in used.items():
        at: int | None = campaign
        while at is not None and at in sums:
            sums[at] += amount
            at = parents[at]
    return sums


def _children_by_parent(members: Sequence[Member]) -> dict[int | None, list[Member]]:
    below: dict[int | None, list[Member]] = {}
    for member in members:
        below.setdefault(member.parent, []).append(member)
    return below


def _has_demand(member: Member, below: Mapping[int | None, Sequence[Member]]) -> bool:
    if member.suspended:
        return False
    return member.wants or any(_has_demand(child, below) for child in below.get(member.id, ()))
