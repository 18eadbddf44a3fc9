"""Promised seats that the pools cannot provide. Pure.

Such a promise is refused when it is made. Later pools may shrink with their nodes, and others may
begin to keep promises: then warnings appear wherever a campaign or a pool is shown.
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
    """A campaign's promise: a number of seats of each pool, or a share of them."""

    campaign: str
    seats: int | None
    share: Fraction | None


@dataclass(frozen=True)
class PoolSize:
    """The size of a pool, and whether its policies keep promises."""

    name: str
    nodes: int
    keeps_promises: bool
    short_term: str | None = None
    """The term in words, if it is so short that it is probably a mistake."""


def keeps_promises(policy_set: str, overrides: Mapping[str, Any]) -> bool:
    """Return whether a pool with these policies honours promises."""
    rule = overrides.get("share", {}).get("rule")
    return SETS.get(policy_set, PolicySetTraits()).targets if rule is None else rule == PROMISING


def campaign_warnings(
    own: CampaignPromise, promised: Sequence[CampaignPromise], pools: Sequence[PoolSize]
) -> tuple[str, ...]:
    """Return warnings about the promise of one campaign, each with the remedy."""
    keeping = [pool for pool in pools if pool.keeps_promises]
    if not keeping:
        warning = "its target has no effect: no pool here has policies that keep promises"
        return (f"{warning}; parley pool set-policy POOL promised",)
    return tuple(warning for pool in keeping for warning in _all_warnings(own, promised, pool))


def promise_refusal(
    own: CampaignPromise, promised: Sequence[CampaignPromise], pools: Sequence[PoolSize]
) -> str | None:
    """Return why a promise cannot be kept, with the remedy; None if it can, or if none is kept."""
    keeping = [pool for pool in pools if pool.keeps_promises]
    return next((why for pool in keeping for why in _all_warnings(own, promised, pool)), None)


def pool_warnings(pool: PoolSize, promised: Sequence[CampaignPromise]) -> tuple[str, ...]:
    """Return warnings about a pool: no nodes, a very short term, or promises it cannot keep."""
    if not pool.nodes:
        warning = f"no node known here belongs to {pool.name} now: its tasks wait"
        return (f"{warning}; parley pool edit {pool.name} --match …, or parley node set there",)
    brief = (_short_term_warnings(pool),) if pool.short_term else ()
    return brief + (_promise_warnings(pool, promised) if pool.keeps_promises else ())


def short_term(choice: str, term: int) -> str | None:
    """Return the term in words if it is below a minute; rotating nodes change with every run."""
    return times.duration_text(term) if choice == "sticky" and term < times.MINUTE else None


def _short_term_warnings(pool: PoolSize) -> str:
    warning = f"its nodes are chosen anew every {pool.short_term}, with a new task for each seat"
    return f"{warning}; parley pool edit {pool.name} --term 6h"


def _promise_warnings(pool: PoolSize, promised: Sequence[CampaignPromise]) -> tuple[str, ...]:
    if not promised:
        warning = (
            "its policies serve campaigns with a target only, and none has one: its tasks wait"
        )
        other = f"or parley pool set-policy {pool.name} {DEFAULT}"
        return (f"{warning}; parley campaign edit NAME --target 20, {other}",)
    warnings = [warning for each in promised for warning in _own_warnings(each, pool)]
    return tuple(warnings or _sum_warnings(promised, pool))


def _all_warnings(
    own: CampaignPromise, promised: Sequence[CampaignPromise], pool: PoolSize
) -> list[str]:
    return _own_warnings(own, pool) or _sum_warnings(promised, pool)


def _own_warnings(own: CampaignPromise, pool: PoolSize) -> list[str]:
    if own.seats is None or own.seats <= pool.nodes:
        return []
    seats = f"{own.seats} seat{'' if own.seats == 1 else 's'}"
    warning = f"{own.campaign} is promised {seats}, and pool {pool.name} has {pool.nodes}"
    return [f"{warning}; lower its target, or widen the pool"]


def _sum_warnings(promised: Sequence[CampaignPromise], pool: PoolSize) -> list[str]:
    """Return a warning if all promises together exceed the pool, which then divides its seats."""
    names = ", ".join(each.campaign for each in promised)
    seats = sum(each.seats or 0 for each in promised)
    if seats > pool.nodes:
        total = (
            f"{names} are promised {seats} seats together, and pool {pool.name} has {pool.nodes}"
        )
        return [f"{total}; lower a target, or widen the pool"]
    share = sum((each.share or Fraction(0) for each in promised), Fraction(0))
    if share > 1:
        total = f"{names} are promised {float(share):.0%} of each pool together"
        return [f"{total}; lower a target"]
    return []
