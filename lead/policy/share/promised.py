"""Promised seats: groups with targets; the remainder is lent out in proportion. Pure.

Targets are all whole seats, or all parts of the existing seats (rounded down: rounding up would
feign a shortage). If there is enough, each group gets its target, or what it wants if that is less;
the rest is split in proportion to the targets, rounded up, and handed out until it is used up, so
the group served last gets what is left. In a shortage, everything is split that way. What a group
cannot use is split again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from lead.policy.division import whole_weights
from lead.policy.seats import CampaignStake, FreeSeats
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import Exact

Promise = Exact

NO_GROUP = RefusalRule(
    Axis.SHARE,
    "no-group",
    "{campaign} belongs to no group with promised seats (groups: {groups}); give it a target or "
    "a parent that has one (parley campaign edit {campaign} --target …)",
)
NO_PROMISES = RefusalRule(
    Axis.SHARE,
    "no-group",
    "no campaign has promised seats, and these policies serve no others; give {campaign} a target "
    "(parley campaign edit {campaign} --target …), or the pool another policy set",
    "promised",
)


@dataclass(frozen=True, slots=True)
class Settlement:
    """The amount for each group, and how it was computed.

    ``first_round`` is what the targets give (nothing in a shortage), ``numbers`` how the
    ``remainder`` would be split if every number were met.
    """

    enough: bool
    targets: Mapping[str, int]
    first_round: Mapping[str, int]
    remainder: int
    numbers: Mapping[str, int]
    total: Mapping[str, int]


def find_promise_refusal(
    campaign: str, group: str | None, promises: Mapping[str, Promise]
) -> PolicyRefusal | None:
    """Return a refusal if the campaign's group has no promise."""
    if group in promises:
        return None
    if not promises:
        return NO_PROMISES.refuse(campaign=campaign)
    return NO_GROUP.refuse(campaign=campaign, groups=", ".join(promises))


def targets(seats: int, promises: Mapping[str, Promise], unit: int = 1) -> dict[str, int]:
    """Return the promised seats of each group."""
    return {
        name: promise * unit
        if isinstance(promise, int)
        else seats * promise.numerator // (promise.denominator * unit) * unit
        for name, promise in promises.items()
    }


def settlement_of(
    seats: int,
    promises: Mapping[str, Promise],
    demand: Mapping[str, int | None],
    order: Sequence[str],
    unit: int = 1,
) -> Settlement:
    """Divide among the groups in ``order`` (least used first); a demand of None is unlimited."""
    target = targets(seats, promises, unit)
    needs = {name: _least(target[name], demand.get(name)) for name in order}
    enough = sum(needs.values()) <= seats
    total = dict(needs) if enough else dict.fromkeys(order, 0)
    first_round, unassigned = dict(total), seats - sum(total.values())
    remainder, numbers = unassigned, None
    while unassigned:
        unmet = [name for name in order if _wants_more(demand.get(name), total[name])]
        split = _split(unassigned, unmet, target, promises, unit)
        numbers = split if numbers is None else numbers
        for name in unmet:
            room = None if (most := demand.get(name)) is None else most - total[name]
            amount = min(unassigned, _least(split[name], room))
            total[name] += amount
            unassigned -= amount
        if not any(split.values()):
            break
    all_numbers = dict.fromkeys(order, 0) | (numbers or {})
    return Settlement(enough, target, first_round, remainder, all_numbers, total)


def _split(
    remaining: int,
    groups: Iterable[str],
    target: Mapping[str, int],
    promises: Mapping[str, Promise],
    unit: int,
) -> dict[str, int]:
    names = list(groups)
    by_target = [Fraction(target[name]) for name in names]
    weights = whole_weights(
        by_target if any(by_target) else [Fraction(promises[name]) for name in names]
    )
    total = sum(weights) or 1
    return {
        name: -(-remaining * weight // (total * unit)) * unit
        for name, weight in zip(names, weights, strict=True)
    }


def _least(amount: int, most: int | None) -> int:
    return amount if most is None else min(amount, most)


def _wants_more(demand: int | None, held: int) -> bool:
    return demand is None or demand > held


def allot_within_group(
    order: Sequence[CampaignStake], seats: FreeSeats, unit: int = 1
) -> list[tuple[str, int]]:
    """Divide a group's seats among its campaigns: one by one in turn, the least used first."""
    additions = {stake.name: 0 for stake in order}
    unmet = list(order)
    while seats.free and unmet:
        still_unmet = []
        for stake in unmet:
            room = None if stake.addable is None else stake.addable - additions[stake.name]
            count = seats.take(stake.name, _least(unit, room))
            additions[stake.name] += count
            if count:
                still_unmet.append(stake)
        unmet = still_unmet
    return list(additions.items())
