"""Shares by weight, served in the order of recent usage. Pure.

Each campaign's ideal is its part by weight, limited by demand and rounded up, so that the smallest
campaign with work gets a seat. The sum of the ideals may exceed the seats; then the campaign that
used most per weight within the window goes short, because it is served last. That is how rounding
evens out. Seats left after the ideals are handed out one by one in turn.
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
"""The default window of usage (µs): hours are divided at once, so it must span many."""

SHARE_USED = RefusalRule(
    Axis.SHARE,
    "share-used",
    "{campaign} has {allocated} of its {ideal:seat} in the hour of {hour}; others come first",
)


def usage_within(ledger: Iterable[Charge], now: int, window: int) -> dict[str, int]:
    """Return the seat-µs by campaign in ``[now - window, now)``; running runs count up to now."""
    begin = now - window
    used: dict[str, int] = {}
    for charge in ledger:
        inside = min(charge.end, now) - max(charge.start, begin)
        if inside > 0:
            part = charge.amount * inside // (charge.end - charge.start)
            used[charge.campaign] = used.get(charge.campaign, 0) + part
    return used


def newcomer_charge(campaign: str, ideal: Exact, now: int, window: int) -> Charge:
    """Return the usage a new campaign begins with: ideal usage over the whole window.

    ``ideal`` is its exact share of the seats, itself counted as active. The charge slides out of
    the window like real usage.
    """
    return Charge(campaign, now - window, now, int(ideal * window))


def ideals(seats: int, stakes: Iterable[CampaignStake], unit: int = 1) -> dict[str, int]:
    """Return how much each should hold; inactive campaigns get nothing."""
    all_stakes = list(stakes)
    active = [stake for stake in all_stakes if stake.active]
    weights = {stake.name: stake.weight for stake in active}
    division = divide(seats, weights, {stake.name: stake.demand for stake in active})
    return dict.fromkeys((stake.name for stake in all_stakes), 0) | division.rounded_shares(unit)


def serving_order(
    stakes: Iterable[CampaignStake], weights: Mapping[str, Exact] | None = None
) -> list[CampaignStake]:
    """Sort campaigns with a weight by usage per weight, least first, then by creation.

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


def allot(
    order: Sequence[CampaignStake], ideal: Mapping[str, int], seats: FreeSeats, unit: int = 1
) -> list[tuple[str, int]]:
    """Return what each may add, in serving order: up to its ideal, then the rest one by one."""
    additions: dict[str, int] = {}
    for stake in order:
        wanted = max(0, ideal[stake.name] - stake.allocated)
        addable = stake.addable
        wanted = wanted if addable is None else min(wanted, addable)
        additions[stake.name] = seats.take(stake.name, wanted)
    return _go_round(order, additions, seats, unit)


def _go_round(
    order: Sequence[CampaignStake], additions: dict[str, int], seats: FreeSeats, unit: int
) -> list[tuple[str, int]]:
    unmet = [stake for stake in order if stake.active]
    while seats.free and unmet:
        still_unmet = []
        for stake in unmet:
            room = None if stake.addable is None else stake.addable - additions[stake.name]
            count = seats.take(stake.name, unit if room is None else min(unit, room))
            additions[stake.name] += count
            if count:
                still_unmet.append(stake)
        unmet = still_unmet
    return list(additions.items())
