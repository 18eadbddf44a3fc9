"""The runs without a place that will start too late as things are, after an episode."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lead.policy.episode import Episode
from lead.policy.view import CampaignView, Candidate, NodeView, PostedRun
from node.model import times
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, due, nodes_of, view_of

TONIGHT = NOW + 9 * times.HOUR
HALF = 30 * times.MINUTE


def _task(name: str, nodes: Mapping[str, NodeView], **figures: Any) -> Candidate:
    usual = {"next_run_at": TONIGHT, "duration": HALF, "slip": times.MINUTE}
    return due(name, "ops", nodes, **{**usual, **figures})


def _booked(*nodes: str, until: int = times.HOUR) -> PostedRun:
    return PostedRun("r", "other", "lab", nodes, TONIGHT, TONIGHT + until)


def _misses(
    nodes: Mapping[str, NodeView],
    candidates: Sequence[Candidate],
    *runs: PostedRun,
    policy: str = "campaign-default",
    without_time: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, list[int]]:
    """Return the misses, in minutes after the start, of an episode in which nothing is asked."""
    campaigns = [CampaignView("ops"), CampaignView("lab")]
    view = view_of(nodes, campaigns, candidates, runs=runs)
    episode = Episode(view, COMPOSITIONS[policy], random.Random(1))
    found = episode.expected_misses(without_time or {})
    return {
        task: [(at - TONIGHT) // times.MINUTE for at in starts] for task, starts in found.items()
    }


def test_runs_beyond_the_time_of_the_nodes_miss_their_start() -> None:
    """Two of three runs at one instant on one node are late, hours before."""
    nodes = nodes_of(1)
    found = _misses(nodes, [_task(name, nodes) for name in "abc"])
    assert sorted(found.values()) == [[1], [1]]


def test_a_run_with_slip_misses_nothing_behind_another() -> None:
    """A run that may slip behind what is booked is in time."""
    nodes = nodes_of(1)
    assert _misses(nodes, [_task("a", nodes, slip=times.HOUR)], _booked("n0")) == {}
    assert _misses(nodes, [_task("a", nodes, slip=HALF)], _booked("n0")) == {"a": [30]}


def test_nodes_that_had_no_time_when_asked_do_not_count() -> None:
    """The bookings of others are known by asking only."""
    nodes = nodes_of(2)
    task = _task("a", nodes)
    assert _misses(nodes, [task], without_time={"a": ["n0"]}) == {}
    assert _misses(nodes, [task], without_time={"a": ["n0", "n1"]}) == {"a": [1]}


def test_each_run_of_a_term_counts_on_each_node() -> None:
    """Two runs on three nodes are six, of which those on the missing nodes are late."""
    nodes = nodes_of(2)
    runs = [(TONIGHT + each * times.HOUR, TONIGHT + each * times.HOUR + HALF) for each in (0, 1)]
    apart = _task("a", nodes, k=3, k_min=1, runs=runs)
    assert _misses(nodes, [apart]) == {"a": [1, 61]}
    together = _task("a", nodes, k=3, k_min=1, together=True, runs=runs)
    assert _misses(nodes, [together]) == {"a": [1, 61]}
    assert _misses(nodes, [apart], without_time={"a": ["n0", "n1"]}) == {"a": [1] * 3 + [61] * 3}


def test_a_run_that_was_placed_is_not_expected_to_miss() -> None:
    """A run that an episode has placed takes time from the others, and is no miss itself."""
    nodes = nodes_of(1)
    tasks = [_task("a", nodes), _task("b", nodes)]
    view = view_of(nodes, [CampaignView("ops")], tasks)
    episode = Episode(view, COMPOSITIONS["campaign-default"], random.Random(1))
    ask = episode.next_ask()
    assert ask is not None
    placed = PostedRun("r", ask.candidate.task, "ops", ("n0",), TONIGHT, TONIGHT + HALF)
    episode.record_placement(ask, placed)
    [other] = {"a", "b"} - {ask.candidate.task}
    assert episode.expected_misses({}) == {other: [TONIGHT + times.MINUTE]}


@pytest.mark.parametrize("policy", list(COMPOSITIONS))
def test_sets_that_mind_deadlines_forecast(policy: str) -> None:
    """The recommended set forecasts misses, and those of the BOINC client with deadlines."""
    nodes = nodes_of(1)
    found = _misses(nodes, [_task("a", nodes)], _booked("n0"), policy=policy)
    minds = policy in {"campaign-default", "boinc-rrsim", "boinc-edf", "boinc-fetch"}
    assert bool(found) == minds


def test_a_suspended_campaign_misses_nothing() -> None:
    """Runs of a suspended campaign are not meant to start, so they miss nothing."""
    nodes = nodes_of(1)
    view = view_of(nodes, [CampaignView("ops", level=0)], [_task("a", nodes)], runs=[_booked("n0")])
    assert (
        Episode(view, COMPOSITIONS["campaign-default"], random.Random(1)).expected_misses({}) == {}
    )
