"""What campaigns are promised by their weights, and what they and those below them have used. Pure.

A campaign's weight counts among its siblings: of what their parent is promised each gets its part.
Only those take part that want something: that have tasks or were charged, themselves or below.
Suspended ones get nothing, and urgent ones no part: they are served before all others.
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
    """By campaign, its part of the whole by weight; None for urgent ones and all below them."""
    found: dict[int, Fraction | None] = {member.id: Fraction(0) for member in members}
    below = _below(members)
    wanting = {member.id for member in members if _wants(member, below)}
    open_: list[tuple[int | None, Fraction | None]] = [(None, Fraction(1))]
    while open_:
        parent, whole = open_.pop()
        siblings = [member for member in below.get(parent, ()) if member.id in wanting]
        total = sum((m.weight for m in siblings if not m.urgent), Fraction(0))
        for member in siblings:
            part = None
            if whole is not None and not member.urgent:
                part = whole * member.weight / total if total else Fraction(0)
            found[member.id] = part
            open_.append((member.id, part))
    return found


def with_descendants(members: Sequence[Member], used: Mapping[int, int]) -> dict[int, int]:
    """By campaign, what it and all below it have used."""
    parents = {member.id: member.parent for member in members}
    sums = dict.fromkeys(parents, 0)
    for campaign, amount in used.items():
        at: int | None = campaign
        while at is not None and at in sums:
            sums[at] += amount
            at = parents[at]
    return sums


def _below(members: Sequence[Member]) -> dict[int | None, list[Member]]:
    below: dict[int | None, list[Member]] = {}
    for member in members:
        below.setdefault(member.parent, []).append(member)
    return below


def _wants(member: Member, below: Mapping[int | None, Sequence[Member]]) -> bool:
    if member.suspended:
        return False
    return member.wants or any(_wants(child, below) for child in below.get(member.id, ()))
