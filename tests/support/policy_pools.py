"""Pools for tests of the policies: small views, and a driver that finds all free time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lead.policy.episode import Episode
from lead.policy.joint_placement import place
from lead.policy.placement_requests import Ask, EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.timetable import booked, timetable_for
from lead.policy.view import CampaignView, Candidate, NodeView, PoolView, PostedRun, View
from node.model import times
from node.model.spans import Span, subtract

NOW = 500_000 * times.HOUR
"""The current instant; a full hour, so that the hour in progress is a whole one."""


def nodes_of(count: int, **figures: Any) -> dict[str, NodeView]:
    """Return nodes n0, n1, …, two to a site."""
    return {
        f"n{number}": NodeView(f"n{number}", {"site": f"s{number // 2}"}, **figures)
        for number in range(count)
    }


def view_of(
    nodes: Mapping[str, NodeView],
    campaigns: Sequence[CampaignView],
    candidates: Sequence[Candidate],
    **others: Any,
) -> View:
    """Return a view of all these nodes as one pool."""
    return View(
        now=NOW,
        horizon=times.DAY,
        pool=PoolView("pool", tuple(nodes)),
        nodes=nodes,
        campaigns={campaign.name: campaign for campaign in campaigns},
        candidates=candidates,
        **{"workers": 10_000, **others},
    )


def due(task: str, campaign: str, nodes: Mapping[str, NodeView], **figures: Any) -> Candidate:
    """Return a task of ten minutes that is due now and may slip within the hour."""
    usual = {"next_run_at": NOW, "duration": 10 * times.MINUTE, "slip": 50 * times.MINUTE}
    usual["waits_since"] = NOW
    return Candidate(task, campaign, nodes=tuple(nodes), **{**usual, **figures})


@dataclass
class Driver:
    """A driver that answers an episode from its own timetable, without pass 2."""

    view: View
    asks: list[Ask] = field(default_factory=list)
    runs: list[PostedRun] = field(default_factory=list)
    has_time: Callable[[Ask], bool] = lambda _: True
    refusing: frozenset[str] = frozenset()

    def drive(self, policy: PolicyComposition, rng: random.Random | None = None) -> EpisodeOutcome:
        """Drive the whole episode."""
        episode = Episode(self.view, policy, rng or random.Random(1))
        self.runs = list(self.view.runs)
        while (ask := episode.next()) is not None:
            self.asks.append(ask)
            starts = place(ask, self._free(ask)) if self.has_time(ask) else {}
            if not starts:
                episode.refused(ask, [name for name in ask.nodes if name in self.refusing])
                continue
            run = self._run(ask, starts)
            self.runs.append(run)
            episode.placed(ask, run)
        assert not episode.open
        return episode.outcome()

    def _free(self, ask: Ask) -> dict[str, list[Span]]:
        busy = timetable_for(ask.candidate, booked(self.runs), self.view.reservations)
        always = [(self.view.now, self.view.now + self.view.horizon)]
        there = (name for name in ask.nodes if name not in self.refusing)
        return {name: subtract(always, list(busy[name])) for name in there}

    def _run(self, ask: Ask, starts: Mapping[str, int]) -> PostedRun:
        candidate, start = ask.candidate, min(starts.values())
        end = max(starts.values()) + candidate.duration
        number = f"r{len(self.runs)}"
        return PostedRun(
            number,
            candidate.task,
            candidate.campaign,
            tuple(starts),
            start,
            end,
            candidate.scheduling_class,
            candidate.priority,
            needs=candidate.needs,
        )
