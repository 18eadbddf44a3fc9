"""Seats by weight, served in the order of what each used of late. Pure.

Everybody's ideal is its part by weight, limited by demand and rounded up, so that the smallest
campaign with work gets a seat; the sum of the ideals may exceed what there is, and whoever used
most per weight within the window goes short, because it is served last. That is how rounding evens
out. What is left after the ideals goes round one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from lead.policy.division import divide
from lead.policy.seats import CampaignStake, FreeSeats
from lead.policy.verdict import Axis, RefusalRule
from lead.policy.view import Charge, Exact
from node.model import times

WINDOW = times.DAY
"""How far back usage counts, unless configured: some hours, each of which is divided at once."""
_CATCH_UP = 4
"""So small a part of its ideal may a campaign have more in an hour while it is behind."""

SHARE_USED = RefusalRule(
    Axis.SHARE,
    "share-used",
    "{campaign} has {allocated} of its {ideal} seats in the hour of {hour}; others come first",
)


def used_within(ledger: Iterable[Charge], now: int, window: int) -> dict[str, int]:
    """Seat-µs by campaign that lie in ``[now - window, now)``; what runs counts up to now."""
    begin = now - window
    used: dict[str, int] = {}
    for charge in ledger:
        inside = min(charge.end, now) - max(charge.start, begin)
        if inside > 0:
            part = charge.amount * inside // (charge.end - charge.start)
            used[charge.campaign] = used.get(charge.campaign, 0) + part
    return used


def newcomer(campaign: str, ideal: Exact, now: int, window: int) -> Charge:
    """The usage a new campaign begins with: as if it had run ideally over the whole window.

    ``ideal`` is its exact share of the seats, itself counted as active. The charge slides out of
    the window like what was really used.
    """
    return Charge(campaign, now - window, now, int(ideal * window))


def ideals(seats: int, stakes: Iterable[CampaignStake], unit: int = 1) -> dict[str, int]:
    """How much each should hold; those not active get nothing."""
    listed = list(stakes)
    active = [stake for stake in listed if stake.active]
    weights = {stake.name: stake.weight for stake in active}
    division = divide(seats, weights, {stake.name: stake.demand for stake in active})
    return dict.fromkeys((stake.name for stake in listed), 0) | division.rounded_up(unit)


def serving_order(
    stakes: Iterable[CampaignStake], weights: Mapping[str, Exact] | None = None
) -> list[CampaignStake]:
    """Those with a weight by usage per weight, least first; of equals the one created earlier.

    ``weights`` replaces the weights of those it names.
    """
    replaced = weights or {}
    weighed = [(replaced.get(stake.name, stake.weight), stake) for stake in stakes]
    keyed = [
        (Fraction(stake.usage) / weight, stake.created_at, place, stake)
        for place, (weight, stake) in enumerate(weighed)
        if weight > 0
    ]
    return [stake for *_, stake in sorted(keyed, key=lambda entry: entry[:3])]


def behind(stakes: Sequence[CampaignStake], weights: Mapping[str, Exact]) -> dict[str, int]:
    """How much less than its part of what all of them used each has used (seat-µs); others none."""
    used = sum(stake.usage for stake in stakes)
    total = sum(weights.get(stake.name, 0) for stake in stakes)
    if not used or not total:
        return {}
    lacks = {it.name: int(used * weights.get(it.name, 0) / total) - it.usage for it in stakes}
    return {name: lack for name, lack in lacks.items() if lack > 0}


def caught_up(ideal: Mapping[str, int], lacks: Mapping[str, int], grain: int) -> dict[str, int]:
    """Ideals with some of what each is behind: whole runs, a quarter of the ideal or one at most.

    Being served first gives no more than the ideal, rounded up, while being served last can cost
    all of it, so that rounding alone does not even out. Who comes back after a long while gets no
    more than others can bear.
    """
    return {
        name: amount + min(lacks[name] // grain * grain, max(grain, amount // _CATCH_UP))
        if name in lacks
        else amount
        for name, amount in ideal.items()
    }


def allot(
    order: Sequence[CampaignStake], ideal: Mapping[str, int], seats: FreeSeats, unit: int = 1
) -> list[tuple[str, int]]:
    """What each may add, in serving order: up to its ideal, then what is left one by one."""
    given: dict[str, int] = {}
    for stake in order:
        wanted = max(0, ideal[stake.name] - stake.allocated)
        addable = stake.addable
        wanted = wanted if addable is None else min(wanted, addable)
        given[stake.name] = seats.take(stake.name, wanted)
    return _go_round(order, given, seats, unit)


def _go_round(
    order: Sequence[CampaignStake], given: dict[str, int], seats: FreeSeats, unit: int
) -> list[tuple[str, int]]:
    asking = [stake for stake in order if stake.active]
    while seats.free and asking:
        still = []
        for stake in asking:
            room = None if stake.addable is None else stake.addable - given[stake.name]
            taken = seats.take(stake.name, unit if room is None else min(unit, room))
            given[stake.name] += taken
            if taken:
                still.append(stake)
        asking = still
    return list(given.items())
