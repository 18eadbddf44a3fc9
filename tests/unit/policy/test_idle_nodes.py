"""No run of a pool waits while a node is idle that its policies do not forbid."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lead.policy.view import CampaignView, NodeView, PostedRun
from lead.pool.rehearsal.world import DemandStream, Fleet, FleetBooking, HeldEpisode, Situation
from lead.simulation.clock import START
from node.model import times
from tests.support.policies import COMPOSITIONS

MINUTE = times.MINUTE
CAMPAIGNS = [CampaignView(name, target=3) for name in ("a", "b")]


def _fleet(policy: str, nodes: int, streams: list[DemandStream], seed: int = 1) -> Fleet:
    return Fleet(
        [NodeView(f"n{number}") for number in range(nodes)],
        CAMPAIGNS,
        streams,
        COMPOSITIONS[policy],
        horizon=times.DAY,
        step=times.MINUTE,
        rng=random.Random(seed),
        situation=Situation(START),
    )


def _booked(fleet: Fleet, until: int) -> list[FleetBooking]:
    bookings: list[FleetBooking] = []
    for _ in fleet.play(until, lambda held: bookings.extend(held.booked)):
        pass
    return bookings


@pytest.mark.parametrize("policy", COMPOSITIONS)
def test_six_runs_take_three_idle_nodes_at_once(policy: str) -> None:
    """Three begin at their nominal start and three after them, on three nodes each."""
    streams = [
        DemandStream(f"t{number}", "a", times.HOUR, times.HOUR, MINUTE, 8 * MINUTE, count=1)
        for number in range(6)
    ]
    bookings = _booked(_fleet(policy, 3, streams), times.HOUR + MINUTE)
    starts = [(it.run.start - START - times.HOUR) // MINUTE for it in bookings]
    assert sorted(starts) == [0, 0, 0, 1, 1, 1]
    for start in (0, 1):
        nodes = [it.run.nodes for it, at in zip(bookings, starts, strict=True) if at == start]
        assert len(set(nodes)) == 3


STREAMS = st.lists(
    st.builds(
        lambda number, campaign, first, length, slip, known_for: DemandStream(
            f"t{number}",
            campaign,
            times.HOUR + first * MINUTE,
            7 * MINUTE,
            length * MINUTE,
            slip * MINUTE,
            count=3,
            known_for=known_for * MINUTE,
        ),
        number=st.integers(0, 10**6),
        campaign=st.sampled_from(["a", "b"]),
        first=st.integers(0, 10),
        length=st.integers(1, 5),
        slip=st.integers(0, 12),
        known_for=st.integers(1, 40),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda it: it.name,
)


@pytest.mark.parametrize("policy", COMPOSITIONS)
@settings(max_examples=6, phases=[Phase.generate])  # to shrink a fleet takes minutes
@given(streams=STREAMS, nodes=st.integers(2, 4), seed=st.integers(0, 99))
@pytest.mark.mostly_nightly
def test_no_run_begins_later_than_on_another_free_node(
    policy: str, streams: list[DemandStream], nodes: int, seed: int
) -> None:
    """Nothing else that is booked or known changes that, but time kept for the blocked."""
    fleet = _fleet(policy, nodes, streams, seed)

    def watch(held: HeldEpisode) -> None:
        others = list(held.view.runs)  # also those that are given back once the episode is over
        for number, booking in enumerate(held.booked):
            if booking.displaced or booking.slots:
                return
            before = others + [it.run for it in held.booked[:number]]
            due = max(booking.candidate.next_run_at, held.view.now)
            assert booking.run.start == min(
                _first_free(due, booking.candidate.duration, _spans(name, before))
                for name in held.view.nodes
            )

    for _ in fleet.play(2 * times.HOUR, watch):
        pass


def _spans(node: str, runs: Sequence[PostedRun]) -> list[tuple[int, int]]:
    return sorted((run.start, run.end) for run in runs if node in run.nodes)


def _first_free(since: int, duration: int, busy: list[tuple[int, int]]) -> int:
    """Return the first start of a run beside what is busy, by trying each end of a run."""
    starts = [since, *(end for _, end in busy if end > since)]
    return min(
        at for at in starts if all(end <= at or at + duration <= begin for begin, end in busy)
    )
