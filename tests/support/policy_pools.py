"""Pools for tests of the policies: small views, and a driver that finds all free time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from lead.policy.episode import Episode
from lead.policy.feasible.backoff import Key
from lead.policy.placement_requests import Ask, EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.timetable import timetable_for, timetables_by_class
from lead.policy.view import (
    URGENT,
    Backoff,
    CampaignView,
    Candidate,
    Deferral,
    LimitView,
    NodeView,
    PoolView,
    PostedRun,
    QueueView,
    RememberedState,
    View,
)
from lead.pool.rehearsal.seats import starts_by_node
from node.model import times
from node.model.classes import SchedulingClass
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


@st.composite
def pools(draw: st.DrawFn) -> View:
    """Draw small pools with every feature: scarcity, limits, levels, promises, refusals."""
    return pool_of(random.Random(draw(st.integers(0, 2**32))), draw(st.integers(0, 20)))


def pool_of(rng: random.Random, count: int) -> View:
    """Return a small pool with ``count`` candidates."""
    nodes = {
        name: replace(node, up=rng.random() < 0.9, resources={"mbps": 1000}, load=rng.random())
        for name, node in nodes_of(rng.randrange(1, 7)).items()
    }
    campaigns = [CampaignView("top", target=2, created_at=NOW - 5)]
    campaigns += [
        CampaignView(
            f"c{number}",
            parent=rng.choice([None, "top"]),
            weight=rng.randrange(1, 4),
            level=rng.choice([0, 1, 5, 9, URGENT]),
            created_at=NOW - rng.randrange(2 * times.HOUR),
            seats_max=rng.choice([None, 1, 3]),
            preemptor=rng.random() < 0.5,
            preemptee=rng.random() < 0.5,
            limits=rng.choice([{}, {"runs": LimitView(1, 2), "due_runs": LimitView(None, 3)}]),
            quotas=rng.choice([{}, {"mbps": 1500}]),
            queue=QueueView(gap=rng.choice([1, 100]), price=rng.randrange(1, 5), passes=2),
        )
        for number in range(4)
    ]
    candidates = [_candidate(number, nodes, rng) for number in range(count)]
    runs = [_run(number, nodes, rng) for number in range(rng.randrange(4))]
    alone: dict[Key, Backoff] = {("c0", "n0", "exclusive"): Backoff(1, NOW + times.HOUR)}
    state = RememberedState(
        backoffs=alone, failures={("n0", "c1"): 1}, deferrals={"t0": Deferral(held=True)}
    )
    return view_of(nodes, campaigns, candidates, runs=runs, state=state)


def _candidate(number: int, nodes: dict[str, NodeView], rng: random.Random) -> Candidate:
    k = rng.randrange(1, 4)
    return due(
        f"t{number}",
        f"c{rng.randrange(5)}",
        nodes,
        next_run_at=NOW + rng.randrange(2) * times.HOUR,
        duration=rng.choice([10, 40]) * times.MINUTE,
        slip=rng.choice([0, 20]) * times.MINUTE,
        added_at=number,
        scheduling_class=rng.choice(list(SchedulingClass)),
        priority=rng.randrange(3),
        k=k,
        k_min=rng.randrange(1, k + 1),
        spare=rng.randrange(2),
        together=rng.random() < 0.3,
        named=rng.random() < 0.1,
        spread=rng.choice([{}, {"site": 1}]),
        prefer={("site", "s1"): 7},
        needs=rng.choice([{}, {"mbps": 600}]),
        waits_since=NOW - rng.randrange(times.HOUR),
    )


def _run(number: int, nodes: dict[str, NodeView], rng: random.Random) -> PostedRun:
    start = NOW + rng.randrange(times.HOUR)
    name = rng.choice(list(nodes))
    campaign = f"c{rng.randrange(4)}"
    end = start + 30 * times.MINUTE
    return PostedRun(f"p{number}", f"o{number}", campaign, (name,), start, end)


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
        while (ask := episode.next_ask()) is not None:
            self.asks.append(ask)
            starts = starts_by_node(ask, self._free(ask)) if self.has_time(ask) else {}
            if not starts:
                episode.record_refusal(ask, [name for name in ask.nodes if name in self.refusing])
                continue
            run = self._run(ask, starts)
            self.runs.append(run)
            episode.record_placement(ask, run)
        assert not episode.unanswered_runs
        return episode.outcome()

    def _free(self, ask: Ask) -> dict[str, list[Span]]:
        busy = timetable_for(ask.candidate, timetables_by_class(self.runs), self.view.reservations)
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
