"""The number of questions of an episode that may be open at once."""

from __future__ import annotations

import random

from lead.policy.episode import Episode
from lead.policy.view import CampaignView, QueueView
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import due, nodes_of, view_of


def test_several_may_be_open_if_none_depends_on_them() -> None:
    """Fixed lists go on while answers are pending; queues with moving priorities wait for each."""
    nodes = nodes_of(4)
    campaigns = [CampaignView("a", queue=QueueView())]
    view = view_of(nodes, campaigns, [due(f"t{n}", "a", nodes) for n in range(3)])
    lists = Episode(view, COMPOSITIONS["pscheduler"], random.Random(1))
    open_at_once = [lists.next_ask(), lists.next_ask(), lists.next_ask()]
    assert [ask.candidate.task for ask in open_at_once if ask] == ["t0", "t1", "t2"]
    assert lists.next_ask() is None
    moving = Episode(view, COMPOSITIONS["fbsng-dynamic"], random.Random(1))
    first = moving.next_ask()
    assert first is not None
    assert moving.next_ask() is None
    assert len(moving.unanswered_runs) == 1
    moving.record_refusal(first)
    second = moving.next_ask()
    assert second is not None
    assert second.candidate.task == "t1"
