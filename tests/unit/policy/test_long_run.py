"""Many episodes: the shares reached in the long run, and late tasks within a campaign."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from lead.policy.axes import order
from lead.policy.placement_requests import EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.view import CampaignView, Charge, QueueView, View
from node.model import times
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of


def _an_hour_later(view: View, outcome: EpisodeOutcome) -> View:
    charges = [
        Charge(run.campaign, run.start, run.end, len(run.nodes) * (run.end - run.start))
        for run in outcome.placed
    ]
    now = view.now + times.HOUR
    candidates = [replace(it, next_run_at=now, waits_since=now) for it in view.candidates]
    ledger = [*view.ledger[-100:], *charges]
    return replace(view, now=now, candidates=candidates, ledger=ledger, state=outcome.state)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("campaign-default", {"a": 1 / 7, "b": 2 / 7, "c": 4 / 7}),
        *(
            pytest.param(name, parts, marks=pytest.mark.nightly)
            for name, parts in (
                ("gridserver-usage", {"a": 1 / 7, "b": 2 / 7, "c": 4 / 7}),
                ("fbsng-dynamic", {"a": 1 / 7, "b": 2 / 7, "c": 4 / 7}),
                ("gridserver-sla", {"a": 0.2, "b": 0.3, "c": 0.5}),
            )
        ),
    ],
)
@pytest.mark.nightly
def test_shares_come_true_in_the_long_run(name: str, parts: dict[str, float]) -> None:
    """Over many episodes in which all want everything, each gets its part within two percent."""
    nodes = nodes_of(20)
    campaigns = [
        CampaignView(it, weight=weight, target=target, queue=QueueView(price=12 // weight))
        for it, weight, target in (("a", 1, 20), ("b", 2, 30), ("c", 4, 50))
    ]
    crowd = [
        due(f"{campaign.name}{number}", campaign.name, nodes, duration=times.HOUR, slip=0)
        for campaign in campaigns
        for number in range(20)
    ]
    view = view_of(nodes, campaigns, crowd)
    seats: Counter[str] = Counter()
    for _ in range(100):
        outcome = Driver(view).drive(COMPOSITIONS[name])
        for run in outcome.placed:
            seats[run.campaign] += len(run.nodes)
        view = _an_hour_later(view, outcome)
    assert sum(seats.values()) == 2000
    assert all(abs(seats[it] / 2000 - part) < 0.02 for it, part in parts.items())


def test_late_tasks_go_first_within_their_campaign() -> None:
    """A task that would start too late passes others of its campaign only."""
    nodes = nodes_of(1)
    figures = {"duration": 20 * times.MINUTE, "waits_since": NOW}
    candidates = [
        due("a-easy", "a", nodes, added_at=1, slip=times.HOUR, **figures),
        due("b-easy", "b", nodes, added_at=2, slip=times.HOUR, **figures),
        due("a-tight", "a", nodes, added_at=3, slip=10 * times.MINUTE, **figures),
    ]
    campaigns = [CampaignView("a"), CampaignView("b")]
    driver = Driver(view_of(nodes, campaigns, candidates))
    driver.drive(replace(PolicyComposition(), order=order.LateFirst()))
    assert [ask.candidate.task for ask in driver.asks] == ["a-tight", "b-easy", "a-easy"]
