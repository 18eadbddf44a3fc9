"""The shares that each named set promises: seats by campaign, from what they want. Pure.

A set that is not listed promises no shares: the first due is served first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from lead.policy.division import divide
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

SHARES: Final[Mapping[str, Sharing]] = {
    "campaign-default": BY_WEIGHT,
    "gridserver-usage": BY_WEIGHT,
    "gridserver-usage-aggregated": _aggregated_seats,
    "gridserver-serial-usage": _serial,
    "gridserver-time": _first_come,
    "gridserver-urgent": BY_WEIGHT,
    "gridserver-sla": _targets,
    "gridserver-sla-preempt": _targets,
    "gridserver-blacklist": BY_WEIGHT,
    "fbsng-dynamic": _by_starts,
    "fbsng-quota": _by_starts,
    "fbsng-partition": _by_starts,
    "fbsng-placement": _by_starts,
    "maui-fairshare": _fairshares,
    "boinc-wrr": BY_WEIGHT,
    "boinc-backoff": BY_WEIGHT,
}
"""By set: the function that returns its promised shares."""

ALIKE: Final = frozenset(
    [
        *(name for name in SHARES if name.startswith("fbsng-")),
        "gridserver-time",
        "gridserver-serial-usage",
    ]
)
"""Sets played with runs of equal length.

They count runs and not their time, or the last campaign in line gets what is left of an hour, which
may be in pieces that are too short for its runs.
"""
AT_LEAST: Final = frozenset({"gridserver-sla", "gridserver-sla-preempt"})
"""Sets that promise at least a share."""
PULLED: Final = frozenset({"maui-fairshare"})
"""Sets with shares that are one term of a sum and therefore only pull (``pull_order.py``)."""
NEWCOMERS: Final = (
    "campaign-default",
    "gridserver-usage",
    "gridserver-usage-aggregated",
    "gridserver-sla",
)
"""Sets that promise that a new campaign gets its share at once, and no more."""
LATECOMERS: Final = (*NEWCOMERS, "gridserver-urgent", "gridserver-sla-preempt")
"""Sets that reserve a share of the hours ahead for campaigns that ask later."""
FILLING: Final = ("campaign-default", "maui-fifo", "maui-backfill", "maui-reservations")
"""Sets that protect slots and let shorter runs fill the time before them."""
GAPS: Final = tuple(name for name in SHARES if name.startswith("fbsng-"))
"""Sets in which a task may be passed a limited number of times, and a stuck queue holds others."""
URGENT_SETS: Final = ("campaign-default", "gridserver-urgent")
"""Sets with urgent runs that may displace others within a budget."""
