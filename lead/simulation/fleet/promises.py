"""The shares that policies promise: seats by campaign, from what they want. Pure.

What is promised follows from the rules that a set consists of, so that options and overrides count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from lead.policy.axes.fill import Protected
from lead.policy.axes.order import ByRecentWorkOrder
from lead.policy.axes.share import (
    ByCreation,
    ByFairshare,
    ByPromise,
    ByRecentWorkShare,
    ByUsage,
)
from lead.policy.campaign_grouping import CampaignGrouping
from lead.policy.division import divide
from lead.policy.sets import PolicyComposition
from lead.policy.share import promised
from lead.policy.view import BUCKET, CampaignView, Exact
from lead.simulation.fleet import starts
from node.model import times

Seats = Mapping[str, Fraction]
Sharing = Callable[[Sequence[CampaignView], Mapping[str, int], int], Seats]
"""``shared(campaigns, demand, amount)``: demand and amount in one unit, e.g. seat-microseconds."""


def _by(key: Callable[[CampaignView], Exact]) -> Sharing:
    def shared(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
        return divide(amount, {it.name: key(it) for it in campaigns}, demand).exact_shares()

    return shared


EQUAL: Final = 10 * times.MINUTE
"""Length of runs where all must be equally long."""


def _by_starts(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Divide by price if all want their share; else by the rule's long run (``starts.py``)."""
    inverse = {it.name: Fraction(1) / it.queue.price for it in campaigns}
    by_price = divide(amount, inverse, demand)
    if not by_price.limited:
        return by_price.exact_shares()
    rules = {it.name: it.queue for it in campaigns}
    wanted = {name: demand[name] // EQUAL for name in rules}
    starts_by_campaign = starts.long_run_starts(rules, amount // EQUAL, wanted)
    return {name: count * EQUAL for name, count in starts_by_campaign.items()}


def _targets(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Grant the targets in whole seats of an hour, up to the demand; the rest is lent."""
    promises = {it.name: it.target for it in campaigns if it.target is not None}
    seats = promised.targets(amount, promises, BUCKET)
    return {name: Fraction(min(demand[name], most)) for name, most in seats.items()}


def _fairshares(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Return the shares that points pull to: all equally far above their targets, up to demand.

    A fairshare counts in percent of the whole, not of the target.
    """
    targets = {
        it.name: Fraction(0) if it.fairshare is None else amount * it.fairshare.part
        for it in campaigns
    }
    shares: dict[str, Fraction] = {}
    remaining = Fraction(amount)
    while targets:
        more = (remaining - sum(targets.values())) / len(targets)
        satisfied = [name for name, target in targets.items() if demand[name] <= target + more]
        if not satisfied:
            return shares | {name: target + more for name, target in targets.items()}
        for name in satisfied:
            del targets[name]
            shares[name] = Fraction(demand[name])
            remaining -= demand[name]
    return shares


def _levels(campaigns: Iterable[CampaignView]) -> dict[int, list[CampaignView]]:
    by_level: dict[int, list[CampaignView]] = {}
    for campaign in sorted(campaigns, key=lambda it: -it.level):
        by_level.setdefault(campaign.level, []).append(campaign)
    return by_level


def _aggregated_seats(
    campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int
) -> Seats:
    """Divide among the levels by their numbers, and inside a level by weight."""
    levels = _levels(campaigns)
    wanted = {str(level): sum(demand[it.name] for it in some) for level, some in levels.items()}
    parts = divide(amount, {str(level): level for level in levels}, wanted).exact_shares()
    shares: dict[str, Fraction] = {}
    for level, some in levels.items():
        weights = {it.name: it.weight for it in some}
        shares |= divide(
            parts[str(level)], weights, {it: demand[it] for it in weights}
        ).exact_shares()
    return shares


def _serial(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Serve level after level, and divide inside a level by weight."""
    shares: dict[str, Fraction] = {}
    remaining = Fraction(amount)
    for some in _levels(campaigns).values():
        weights = {it.name: it.weight for it in some}
        granted = divide(remaining, weights, {it: demand[it] for it in weights}).exact_shares()
        remaining -= sum(granted.values())
        shares |= granted
    return shares


def _first_come(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Give each campaign all it wants in the order of creation."""
    shares: dict[str, Fraction] = {}
    remaining = amount
    for it in sorted(campaigns, key=lambda it: it.created_at):
        granted = min(remaining, demand[it.name])
        shares[it.name] = Fraction(granted)
        remaining -= granted
    return shares


BY_WEIGHT: Final = _by(lambda it: it.weight)


def sharing_of(policy: PolicyComposition) -> Sharing | None:
    """Return the function that returns the promised shares; None if none are promised."""
    sharing: Sharing | None = _by_starts if policy.holds_others else None
    match policy.share:
        case ByUsage(serial=True):
            sharing = _serial
        case ByUsage(together=CampaignGrouping.LEVEL):
            sharing = _aggregated_seats
        case ByUsage():
            sharing = BY_WEIGHT
        case ByCreation(serial=False):
            sharing = _first_come
        case ByPromise():
            sharing = _targets
        case ByFairshare():
            sharing = _fairshares
        case ByRecentWorkShare() if not _minds_deadlines(policy):
            sharing = BY_WEIGHT
    return sharing


def _minds_deadlines(policy: PolicyComposition) -> bool:
    return isinstance(policy.order, ByRecentWorkOrder) and policy.order.deadlines


def wants_equal_runs(policy: PolicyComposition) -> bool:
    """Return whether the policies are played with runs of equal length.

    They count runs and not their time, or the last campaign in line gets what is left of an hour,
    which may be in pieces that are too short for its runs.
    """
    in_line = isinstance(policy.share, ByUsage | ByCreation) and policy.share.serial
    return policy.holds_others or in_line or isinstance(policy.share, ByCreation)


def promises_seats(policy: PolicyComposition) -> bool:
    """Return whether the policies promise at least a share."""
    return isinstance(policy.share, ByPromise)


def pulls(policy: PolicyComposition) -> bool:
    """Return whether shares are one term of a sum and therefore only pull (``pull_order.py``)."""
    return isinstance(policy.share, ByFairshare)


def keeps_time_ahead(policy: PolicyComposition) -> bool:
    """Return whether a part of the hours ahead is kept for campaigns that ask later.

    A new campaign then gets its share at once, and no more.
    """
    return promises_seats(policy) or (isinstance(policy.share, ByUsage) and not policy.share.serial)


def protects_slots(policy: PolicyComposition) -> bool:
    """Return whether slots are protected, and shorter runs fill the time before them."""
    return isinstance(policy.fill, Protected)
