"""The room that limits of campaigns leave, and the reasons where they leave none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lead.planning.agenda import Slot
from lead.planning.campaign_room import Counted, room_for
from lead.policy.limit_counting import CountedRun, RunDemand
from lead.policy.throttle.active_limits import LimitLevel
from lead.policy.view import CampaignView, LimitView

LENGTH = 5

booked = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 20)).map(
        lambda it: CountedRun("ops", it[0], it[0] + it[1], 1, 0)
    ),
    max_size=12,
)


@given(booked, st.integers(0, 45), st.integers(1, 3))
def test_a_reason_counts_the_runs_of_its_own_time(
    runs: list[CountedRun], start: int, most: int
) -> None:
    """A run is refused with a number of runs that it would be one of, if that is too many."""
    campaigns = {"ops": CampaignView("ops", limits={"runs": LimitView(None, most)})}
    room = room_for(RunDemand("ops", LENGTH, 1, 0), campaigns, Counted(runs), LimitLevel.HARD, 0)
    end = start + LENGTH
    instants = range(start, end)
    too_many = {
        wanted
        for at in instants
        if (wanted := 1 + sum(run.start <= at < run.end for run in runs)) > most
    }
    _, proposal = room.offer([Slot(start, 1, start, end)], LENGTH, 0)
    sentences = [obstacle.why() for obstacle in proposal.obstacles]
    assert bool(sentences) == bool(too_many)
    if (why := room.why_not(start, end)) is not None:
        sentences.append(why)
    true_ones = {
        f"ops would have {wanted} runs at once, of at most {most} (hard)" for wanted in too_many
    }
    assert {each.partition(", until ")[0] for each in sentences} <= true_ones
