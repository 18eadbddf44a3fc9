"""What each named set promises of shares: seats by campaign, from what they want. Pure.

A set that is not listed promises no shares: who is due first is served first.
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
"""``shared(campaigns, demand, amount)``: demand and amount in one unit, a seat-microsecond say."""


def _by(key: Callable[[CampaignView], Exact]) -> Sharing:
    def shared(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
        return divide(amount, {it.name: key(it) for it in campaigns}, demand).exact()

    return shared


EQUAL: Final = 10 * times.MINUTE
"""How long runs take where all are made equally long."""


def _by_starts(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """By price, if nobody wants less than that; else what the rule comes to (``starts.py``)."""
    inverse = {it.name: Fraction(1) / it.queue.price for it in campaigns}
    by_price = divide(amount, inverse, demand)
    if not by_price.limited:
        return by_price.exact()
    rules = {it.name: it.queue for it in campaigns}
    wanted = {name: demand[name] // EQUAL for name in rules}
    found = starts.long_run_starts(rules, amount // EQUAL, wanted)
    return {name: count * EQUAL for name, count in found.items()}


def _targets(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Whole seats of an hour, as far as they are wanted; what is left is lent to anybody."""
    promises = {it.name: it.target for it in campaigns if it.target is not None}
    seats = promised.targets(amount, promises, BUCKET)
    return {name: Fraction(min(demand[name], most)) for name, most in seats.items()}


def _fairshares(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """What points pull to: all equally far above their targets, who wants less what it wants.

    A fairshare counts percent of the whole, and not of the target.
    """
    aimed = {
        it.name: Fraction(0) if it.fairshare is None else amount * it.fairshare.part
        for it in campaigns
    }
    found: dict[str, Fraction] = {}
    left = Fraction(amount)
    while aimed:
        more = (left - sum(aimed.values())) / len(aimed)
        met = [name for name, target in aimed.items() if demand[name] <= target + more]
        if not met:
            return found | {name: target + more for name, target in aimed.items()}
        for name in met:
            del aimed[name]
            found[name] = Fraction(demand[name])
            left -= demand[name]
    return found


def _levels(campaigns: Iterable[CampaignView]) -> dict[int, list[CampaignView]]:
    found: dict[int, list[CampaignView]] = {}
    for campaign in sorted(campaigns, key=lambda it: -it.level):
        found.setdefault(campaign.level, []).append(campaign)
    return found


def _aggregated(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Each level by its number, whoever is in it; inside by weight."""
    levels = _levels(campaigns)
    wanted = {str(level): sum(demand[it.name] for it in some) for level, some in levels.items()}
    parts = divide(amount, {str(level): level for level in levels}, wanted).exact()
    found: dict[str, Fraction] = {}
    for level, some in levels.items():
        weights = {it.name: it.weight for it in some}
        found |= divide(parts[str(level)], weights, {it: demand[it] for it in weights}).exact()
    return found


def _serial(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Level after level; inside by weight."""
    found: dict[str, Fraction] = {}
    left = Fraction(amount)
    for some in _levels(campaigns).values():
        weights = {it.name: it.weight for it in some}
        given = divide(left, weights, {it: demand[it] for it in weights}).exact()
        left -= sum(given.values())
        found |= given
    return found


def _first_come(campaigns: Sequence[CampaignView], demand: Mapping[str, int], amount: int) -> Seats:
    """Whoever was created first all it can use."""
    found: dict[str, Fraction] = {}
    left = amount
    for it in sorted(campaigns, key=lambda it: it.created_at):
        given = min(left, demand[it.name])
        found[it.name] = Fraction(given)
        left -= given
    return found


BY_WEIGHT: Final = _by(lambda it: it.weight)

SHARES: Final[Mapping[str, Sharing]] = {
    "campaign-default": BY_WEIGHT,
    "gridserver-usage": BY_WEIGHT,
    "gridserver-usage-aggregated": _aggregated,
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
"""By set, how its seats are promised to be shared."""

ALIKE: Final = frozenset(
    [
        *(name for name in SHARES if name.startswith("fbsng-")),
        "gridserver-time",
        "gridserver-serial-usage",
    ]
)
"""In these all runs are made equally long: they count runs and not their time, or whoever is last
in line gets what is left of an hour, which may be in pieces that are too short for it."""
AT_LEAST: Final = frozenset({"gridserver-sla", "gridserver-sla-preempt"})
"""These promise so much or more."""
PULLED: Final = frozenset({"maui-fairshare"})
"""In these a share is one wish of several in a sum: it pulls (see ``pulls.py``), no more."""
NEWCOMERS: Final = (
    "campaign-default",
    "gridserver-usage",
    "gridserver-usage-aggregated",
    "gridserver-sla",
)
"""These promise that a new campaign has its part at once, and no more."""
LATECOMERS: Final = (*NEWCOMERS, "gridserver-urgent", "gridserver-sla-preempt")
"""These keep of the hours ahead what is the part of campaigns that ask for it later."""
FILLING: Final = ("campaign-default", "maui-fifo", "maui-backfill", "maui-reservations")
"""These protect slots, and let shorter runs fill the time before them."""
URGENT_SETS: Final = ("campaign-default", "gridserver-urgent")
"""In these the urgent may displace others within a budget."""
