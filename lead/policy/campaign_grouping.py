"""Who counts together with whom where seats are shared by weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from lead.policy.episode_figures import Board
from lead.policy.seats import CampaignStake
from lead.policy.share import aggregation, usage
from lead.policy.view import Exact


class CampaignGrouping(StrEnum):
    """Which campaigns count as one: none, those of one level, or those under one parent."""

    NONE = "none"
    LEVEL = "level"
    PARENT = "parent"


class CampaignLines:
    """Who counts together with whom, as far as anybody does."""

    def __init__(
        self, board: Board, together: CampaignGrouping, counted: Iterable[CampaignStake]
    ) -> None:
        campaigns = board.view.campaigns
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
            found = aggregation.inherited(at_work, parents, weights)
            tops = {name: top for name, (top, _) in found.items()}
            self._parts = {name: part for name, (_, part) in found.items()}
        members: dict[str, set[str]] = {}
        for name, top in tops.items():
            members.setdefault(top, set()).add(name)
        self.groups = [
            aggregation.WeightGroup(top, weights[top], frozenset(some))
            for top, some in members.items()
        ]

    def weighted(self, stakes: Iterable[CampaignStake]) -> list[CampaignStake]:
        """The same stakes, each with its weight among those that it counts together with."""
        if not self.groups:
            return list(stakes)
        parts = self._parts
        return [replace(stake, weight=parts[stake.name]) for stake in stakes if stake.name in parts]

    def entitlements(self, stakes: Iterable[CampaignStake]) -> Mapping[str, Exact]:
        """The weight of each among all."""
        if not self.groups:
            return {stake.name: stake.weight for stake in stakes}
        return aggregation.entitlements(stakes, self.groups)

    def ideals(self, amount: int, stakes: Sequence[CampaignStake], grain: int) -> dict[str, int]:
        """How much each should hold of an hour, rounded up to whole grains unless it wants less.

        A grain is a run: whole seats of an hour would be far coarser, and shares would swing.
        """
        if not self.groups:
            return usage.ideals(amount, stakes, grain)
        return aggregation.ideals(amount, stakes, self.groups, grain)
