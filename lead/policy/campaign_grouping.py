"""Campaigns that count as one where seats are shared by weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from lead.policy.seats import CampaignStake
from lead.policy.share import aggregation, usage
from lead.policy.share.weight_tree import Branch, Tiers
from lead.policy.view import SUSPENDED, URGENT, CampaignView, Exact


class CampaignGrouping(StrEnum):
    """The campaigns that count as one: none, those of one level, or those under one parent."""

    NONE = "none"
    LEVEL = "level"
    PARENT = "parent"


class CampaignLines:
    """The groups of campaigns that count as one, if any."""

    def __init__(
        self,
        campaigns: Mapping[str, CampaignView],
        together: CampaignGrouping,
        counted: Iterable[CampaignStake],
    ) -> None:
        at_work = [stake.name for stake in counted]
        self.groups: list[aggregation.WeightGroup] = []
        self._parts = {name: campaigns[name].weight for name in at_work}
        weights = {name: it.weight for name, it in campaigns.items()}
        if together is CampaignGrouping.NONE:
            return
        if together is CampaignGrouping.LEVEL:
            tops = {name: str(campaigns[name].level) for name in at_work}
            weights = {str(it.level): it.level for it in campaigns.values()}
        else:
            parents = {name: it.parent for name, it in campaigns.items()}
            top_and_part = aggregation.top_and_part(at_work, parents, weights)
            tops = {name: top for name, (top, _) in top_and_part.items()}
            self._parts = {name: part for name, (_, part) in top_and_part.items()}
        members: dict[str, set[str]] = {}
        for name, top in tops.items():
            members.setdefault(top, set()).add(name)
        self.groups = [
            aggregation.WeightGroup(top, weights[top], frozenset(names))
            for top, names in members.items()
        ]

    def with_group_weights(self, stakes: Iterable[CampaignStake]) -> list[CampaignStake]:
        """Return the same stakes, each with its weight within its group."""
        if not self.groups:
            return list(stakes)
        parts = self._parts
        return [replace(stake, weight=parts[stake.name]) for stake in stakes if stake.name in parts]

    def entitlements(self, stakes: Iterable[CampaignStake]) -> Mapping[str, Exact]:
        """Return the weight of each campaign among all."""
        if not self.groups:
            return {stake.name: stake.weight for stake in stakes}
        return aggregation.entitlements(stakes, self.groups)

    def ideals(self, amount: int, stakes: Sequence[CampaignStake], grain: int) -> dict[str, int]:
        """Return how much each should hold of an hour, rounded up to grains unless it wants less.

        A grain is the longest run: whole seats of an hour would be far coarser, and shares would
        swing.
        """
        if not self.groups:
            return usage.ideals(amount, stakes, grain)
        return aggregation.ideals(amount, stakes, self.groups, grain)


def tiers_by_weight(
    campaigns: Mapping[str, CampaignView], together: CampaignGrouping, *, serial: bool = False
) -> Tiers:
    """Return the tree by which campaigns divide time: by weight, and as they count together.

    With ``serial``, each level is a tier. Campaigns without a weight have what is left by all. The
    urgent and the suspended are left out: the former do not divide.
    """
    dividing = {name: it for name, it in campaigns.items() if SUSPENDED < it.level < URGENT}
    weighted = {name: it for name, it in dividing.items() if it.weight > 0}
    levels = sorted({it.level for it in weighted.values()}, reverse=True) if serial else [None]
    tiers = []
    for level in levels:
        some = {name: it for name, it in weighted.items() if level in (None, it.level)}
        match together:
            case CampaignGrouping.NONE:
                tiers.append([Branch(name, it.weight) for name, it in some.items()])
            case CampaignGrouping.LEVEL:
                tiers.append(_branches_by_level(some))
            case CampaignGrouping.PARENT:
                tiers.append(_branches_below(None, some))
    idle = [Branch(name, 1) for name in dividing if name not in weighted]
    return [*tiers, idle]


def _branches_by_level(campaigns: Mapping[str, CampaignView]) -> list[Branch]:
    levels: dict[int, list[Branch]] = {}
    for name, it in campaigns.items():
        levels.setdefault(it.level, []).append(Branch(name, it.weight))
    return [Branch(f"level {level}", level, tuple(below)) for level, below in levels.items()]


def _branches_below(parent: str | None, campaigns: Mapping[str, CampaignView]) -> list[Branch]:
    """Return the branches of the children; what a parent does itself is one more, of weight 1."""
    branches = []
    for name, it in campaigns.items():
        if it.parent == parent or (parent is None and it.parent not in campaigns):
            below = _branches_below(name, campaigns)
            branches.append(Branch(name, it.weight, (Branch(name, 1), *below) if below else ()))
    return branches
