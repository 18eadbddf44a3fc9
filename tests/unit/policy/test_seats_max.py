"""The maximum of seats that a campaign may hold at every instant."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from lead.policy.episode import Episode
from lead.policy.sets import PolicyComposition
from lead.policy.view import CampaignView, PostedRun
from node.model import times
from node.model.classes import SchedulingClass
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

POLICY = PolicyComposition()
LANES = 4
TAKES = {SchedulingClass.EXCLUSIVE: LANES, SchedulingClass.NORMAL: 1}

spans = st.tuples(st.integers(0, 150), st.integers(1, 150), st.integers(1, 3))
"""A run that begins in some minutes, with its duration and its number of nodes."""


@given(
    st.lists(st.tuples(spans, st.sampled_from(SchedulingClass)), max_size=12),
    st.lists(spans, max_size=3),
    st.integers(1, 4),
)
def test_the_maximum_holds_at_every_instant(
    some: list[tuple[tuple[int, int, int], SchedulingClass]],
    booked: list[tuple[int, int, int]],
    most: int,
) -> None:
    """The seats at any instant of a placed run stay within the maximum."""
    nodes = nodes_of(6, lanes=LANES)
    candidates = [
        due(
            f"t{number}",
            "a",
            nodes,
            next_run_at=NOW + begin * times.MINUTE,
            duration=length * times.MINUTE,
            slip=0,
            k=k,
            k_min=k,
            scheduling_class=kind,
        )
        for number, ((begin, length, k), kind) in enumerate(some)
    ]
    runs = [
        PostedRun(f"p{number}", "x", "a", tuple(nodes)[:k], NOW + begin, NOW + begin + length)
        for number, (begin, length, k) in enumerate(
            (begin * times.MINUTE, length * times.MINUTE, k) for begin, length, k in booked
        )
    ]
    view = view_of(nodes, [CampaignView("a", seats_max=most)], candidates, runs=runs)
    outcome = Driver(view).drive(POLICY)
    held = [*runs, *outcome.placed]
    for run in outcome.placed:
        if run.scheduling_class in TAKES:
            for at in (it.start for it in held if run.start <= it.start < run.end):
                there = [it for it in held if it.start <= at < it.end]
                taken = sum(len(it.nodes) * TAKES.get(it.scheduling_class, 0) for it in there)
                assert taken <= most * LANES


def test_overlapping_runs_count_together() -> None:
    """Two overlapping runs are two seats however short; a run without a seat adds none."""
    nodes = nodes_of(3, lanes=LANES)
    at = partial(due, campaign="a", nodes=nodes, slip=0)
    later = NOW + 5 * times.MINUTE
    candidates = [
        at("first"),
        at("beside", next_run_at=later),
        at("after", next_run_at=NOW + 10 * times.MINUTE),
        at("none", next_run_at=later, scheduling_class=SchedulingClass.BACKGROUND),
    ]
    view = view_of(nodes, [CampaignView("a", seats_max=1)], candidates)
    outcome = Driver(view).drive(POLICY)
    assert [run.task for run in outcome.placed] == ["first", "none", "after"]
    [refusal] = outcome.refused["beside"]
    [free_at] = [run.end for run in outcome.placed if run.task == "after"]
    until = times.to_the_second(free_at)
    assert refusal.reason == f"a would hold 2 seats at once, of at most 1, until {until}"
    # Open runs count like placed ones.
    episode = Episode(view, POLICY, random.Random(1))
    asked = [episode.next_ask() for _ in candidates]
    assert [ask and ask.candidate.task for ask in asked] == ["first", "none", "after", None]


def test_every_run_of_a_term_is_checked() -> None:
    """A term is refused for its second slot as well, but not for a slot of another hour."""
    nodes = nodes_of(2)
    slots = [(NOW + n * times.HOUR, NOW + n * times.HOUR + 10 * times.MINUTE) for n in range(3)]
    term = due("term", "a", nodes, slip=0, runs=slots[:2])
    there = PostedRun("p", "x", "a", ("n0",), *slots[1])
    view = view_of(nodes, [CampaignView("a", seats_max=1)], [term], runs=[there])
    assert set(Driver(view).drive(POLICY).refused) == {"term"}
    view = replace(view, runs=[replace(there, start=slots[2][0], end=slots[2][1])])
    assert not Driver(view).drive(POLICY).refused
