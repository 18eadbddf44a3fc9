"""Promised seats beside the pools that are to keep them: what cannot be kept as it stands. Pure.

None of this is refused: pools grow and shrink with their nodes, and campaigns may be promised more
before there is more. It is said wherever a campaign or a pool is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from node.model import times
from node.model.policysets import DEFAULT, PROMISING, SETS, PolicySetTraits


@dataclass(frozen=True)
class CampaignPromise:
    """What a campaign is promised: so many seats of each pool, or a part of them."""

    campaign: str
    seats: int | None
    share: Fraction | None


@dataclass(frozen=True)
class PoolSize:
    """A pool, how many nodes belong to it, and whether its policies keep promises at all."""

    name: str
    nodes: int
    keeps_promises: bool
    short_term: str | None = None
    """How long nodes are chosen for, where that is so short that it is hardly meant."""


def keeps_promises(policy_set: str, overrides: Mapping[str, Any]) -> bool:
    """Whether a pool with these policies heeds what campaigns are promised."""
    rule = overrides.get("share", {}).get("rule")
    return SETS.get(policy_set, PolicySetTraits()).targets if rule is None else rule == PROMISING


def campaign_warnings(
    own: CampaignPromise, promised: Sequence[CampaignPromise], pools: Sequence[PoolSize]
) -> tuple[str, ...]:
    """What of the promise of one campaign cannot be kept, with the remedy."""
    keeping = [pool for pool in pools if pool.keeps_promises]
    if not keeping:
        said = "its target has no effect: no pool here has policies that keep promises"
        return (f"{said}; parley pool set-policy POOL gridserver-sla",)
    return tuple(said for pool in keeping for said in _of_both(own, promised, pool))


def pool_warnings(pool: PoolSize, promised: Sequence[CampaignPromise]) -> tuple[str, ...]:
    """What a pool cannot keep as it stands, or that it serves nobody; or that it has no nodes."""
    if not pool.nodes:
        said = f"no node known here belongs to {pool.name} now: its tasks wait"
        return (f"{said}; parley pool edit {pool.name} --match …, or parley node set there",)
    brief = (_brief(pool),) if pool.short_term else ()
    return brief + (_of_promises(pool, promised) if pool.keeps_promises else ())


def short_term(choice: str, term: int) -> str | None:
    """The term in words if it is below a minute; nodes that take turns change with every run."""
    return times.format_duration(term) if choice == "sticky" and term < times.MINUTE else None


def _brief(pool: PoolSize) -> str:
    said = f"its nodes are chosen anew every {pool.short_term}, with a task for each seat each time"
    return f"{said}; parley pool edit {pool.name} --term 6h"


def _of_promises(pool: PoolSize, promised: Sequence[CampaignPromise]) -> tuple[str, ...]:
    if not promised:
        said = "its policies serve campaigns with a target only, and none has one: its tasks wait"
        other = f"or parley pool set-policy {pool.name} {DEFAULT}"
        return (f"{said}; parley campaign edit NAME --target 20, {other}",)
    told = [said for each in promised for said in _alone(each, pool)]
    return tuple(told or _together(promised, pool))


def _of_both(
    own: CampaignPromise, promised: Sequence[CampaignPromise], pool: PoolSize
) -> list[str]:
    return _alone(own, pool) or _together(promised, pool)


def _alone(own: CampaignPromise, pool: PoolSize) -> list[str]:
    if own.seats is None or own.seats <= pool.nodes:
        return []
    said = f"{own.campaign} is promised {own.seats} seats, and pool {pool.name} has {pool.nodes}"
    return [f"{said}; lower its target, or widen the pool"]


def _together(promised: Sequence[CampaignPromise], pool: PoolSize) -> list[str]:
    """Whatever is promised beyond what there is, is split: nobody gets all of it."""
    names = ", ".join(each.campaign for each in promised)
    seats = sum(each.seats or 0 for each in promised)
    if seats > pool.nodes:
        said = f"{names} are promised {seats} seats together, and pool {pool.name} has {pool.nodes}"
        return [f"{said}; lower a target, or widen the pool"]
    share = sum((each.share or Fraction(0) for each in promised), Fraction(0))
    if share > 1:
        said = f"{names} are promised {float(share):.0%} of each pool together"
        return [f"{said}; lower a target"]
    return []
