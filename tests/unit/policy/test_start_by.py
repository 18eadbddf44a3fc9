"""The forecast of late runs, and moving them ahead."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.policy.feasible.start_by import ForecastRun, Supply, forecast
from lead.policy.order.deadline_first import late_tasks, run_list, tasks_in_order
from lead.policy.share.recent_work import RecentWorkSelector, WorkItem
from lead.policy.view import CampaignView, Candidate
from node.model import times
from node.model.classes import SchedulingClass
from tests.support.policies import COMPOSITIONS
from tests.support.policy_pools import NOW, Driver, due, nodes_of, view_of

SHARES = {"a": 1.0, "b": 2.0, "c": 0.0}
NODES = ("n1", "n2", "n3")


def _disjoint(some: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted spans that do not touch, of starts and lengths."""
    found: list[tuple[int, int]] = []
    for start, length in sorted(some):
        if not found or start > found[-1][1]:
            found.append((start, start + length))
    return found


spans = st.lists(
    st.tuples(st.integers(0, 200), st.integers(1, 40)), max_size=4, unique_by=lambda it: it[0]
).map(_disjoint)
busy = st.fixed_dictionaries(dict.fromkeys(NODES, spans))
candidates = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 200),
        st.integers(1, 50),
        st.integers(1, 3),
        st.integers(0, 60),
    ),
    max_size=12,
).map(
    lambda some: [
        _candidate(f"t{at}", campaign, nominal, duration, slip, k)
        for at, (campaign, nominal, duration, k, slip) in enumerate(some)
    ]
)


def _candidate(
    task: str, campaign: str, nominal: int, duration: int, slip: int = 0, k: int = 1
) -> Candidate:
    return Candidate(task, campaign, nominal, duration, NODES, slip=slip, k=k)


@given(candidates, busy, st.integers(0, 100))
def test_a_forecast_is_a_timetable(
    some: list[Candidate], taken: dict[str, list[tuple[int, int]]], now: int
) -> None:
    """No run starts before its time, and at no instant are more nodes in use than are free."""
    runs = forecast(some, Supply(NODES, taken, SHARES, {}), now)
    known = {it.task: it for it in some}
    assert sorted(run.task for run in runs) == sorted(known)
    for run in runs:
        assert run.starts_at >= max(now, run.nominal)
        assert (run.nominal, run.start_by) == (
            known[run.task].spans[0][0],
            known[run.task].start_by,
        )
    for at in {run.starts_at for run in runs}:
        under_way = [
            known[run.task].k
            for run in runs
            if run.starts_at <= at < run.starts_at + known[run.task].duration
        ]
        free = sum(not any(start <= at < end for start, end in taken[name]) for name in NODES)
        assert sum(under_way) <= free


@given(candidates, busy)
def test_no_node_is_idle_while_a_run_waits_for_one(
    some: list[Candidate], taken: dict[str, list[tuple[int, int]]]
) -> None:
    """The first run of a campaign starts at once when its nodes are free and nobody else starts."""
    alone = [replace(it, campaign="a") for it in some[:1]]
    for run in forecast(alone, Supply(NODES, taken, SHARES, {}), 0):
        it = alone[0]
        free_at = [
            at
            for at in range(run.nominal, run.starts_at + 1)
            if sum(
                not any(start < at + it.duration and at < end for start, end in taken[name])
                for name in NODES
            )
            >= it.k
        ]
        assert free_at == [run.starts_at]


def test_seats_follow_the_shares() -> None:
    """With shares of one and two, the second gets twice as many of the first starts."""
    some = [_candidate(f"{name}{at}", name, 0, 10, k=3) for name in "ab" for at in range(9)]
    started = forecast(some, Supply(NODES, {}, SHARES, {}), 0)[:9]
    assert sum(run.campaign == "b" for run in started) == 6


def test_runs_that_share_a_node_are_left_out() -> None:
    """Runs of the normal and the background class are never late in a forecast."""
    some = [
        replace(_candidate(each.value, "a", 0, 10), scheduling_class=each)
        for each in SchedulingClass
    ]
    [run] = forecast(some, Supply(NODES, {}, SHARES, {}), 0)
    assert run.task == SchedulingClass.EXCLUSIVE


def test_each_run_of_a_candidate_is_forecast() -> None:
    """A candidate is as late as its first late run."""
    often = replace(_candidate("often", "a", 0, 10, slip=5), runs=((0, 10), (100, 110), (200, 210)))
    taken = {name: [(100, 150), (190, 250)] for name in NODES}
    runs = forecast([often], Supply(NODES, taken, SHARES, {}), 0)
    assert runs == [
        ForecastRun("often", "a", 0, 5, 0),
        ForecastRun("often", "a", 100, 105, 150),
        ForecastRun("often", "a", 200, 205, 250),
    ]
    assert late_tasks(runs) == {"often": 105}


@given(candidates, busy)
def test_the_order_names_every_task_once(
    some: list[Candidate], taken: dict[str, list[tuple[int, int]]]
) -> None:
    """No task is lost or doubled, and late ones pass those that have more time, and no others."""
    late = late_tasks(forecast(some, Supply(NODES, taken, SHARES, {}), 0))
    turns = RecentWorkSelector({}, SHARES, len(NODES))
    in_turn = tasks_in_order(some, {}, turns)
    ordered = tasks_in_order(some, late, RecentWorkSelector({}, SHARES, len(NODES)))
    assert sorted(ordered) == sorted(in_turn) == sorted(it.task for it in some)
    deadlines = {it.task: late.get(it.task, it.start_by) for it in some}
    for one, other in combinations(in_turn, 2):
        if ordered.index(one) > ordered.index(other):
            assert deadlines[other] <= max(late.values())
            assert deadlines[one] > deadlines[other]
    for task, deadline in late.items():
        later = [it for it in in_turn if it not in late and deadlines[it] > deadline]
        assert all(ordered.index(task) < ordered.index(it) for it in later)


@pytest.mark.parametrize("policy_set", ["boinc-edf", "boinc-rrsim", "campaign-default"])
@pytest.mark.parametrize("minutes", [0, 5, 8 * 60], ids=["now", "soon", "tonight"])
def test_short_slips_go_first_whenever_the_runs_are(policy_set: str, minutes: int) -> None:
    """Runs that only fit if they go first do so, now and tonight."""
    nodes, start = nodes_of(3), NOW + minutes * times.MINUTE
    figures = {"next_run_at": start, "k": 1}
    some = [
        due(f"easy{at}", "ops", nodes, added_at=at, slip=50 * times.MINUTE, **figures)
        for at in range(3)
    ]
    some += [
        due(f"tight{at}", "ops", nodes, added_at=3 + at, slip=times.MINUTE, **figures)
        for at in range(3)
    ]
    driver = Driver(view_of(nodes, [CampaignView("ops")], some))
    driver.drive(COMPOSITIONS[policy_set])
    assert {ask.candidate.task for ask in driver.asks[:3]} == {"tight0", "tight1", "tight2"}


def test_the_run_list_continues_after_the_late_tasks() -> None:
    """Late tasks take seats by deadline, the shorter first on a tie; others share the rest."""
    work = [
        WorkItem("long", "a", 9, deadline=50),
        WorkItem("short", "a", 3, deadline=50),
        WorkItem("soon", "b", 5, deadline=20),
        WorkItem("b1", "b", 1),
        WorkItem("a1", "a", 1),
    ]
    late_ones = {"long", "short", "soon"}
    shares, recent = {"a": 1.0, "b": 1.0}, {"a": 0.5, "b": 0.5}
    listed = run_list(work, late_ones, RecentWorkSelector(recent, shares, 4), 4)
    assert [it.task for it in listed] == ["soon", "short", "long", "b1"]
    listed = run_list(work, late_ones, RecentWorkSelector(recent, shares, 2), 2)
    assert [it.task for it in listed] == ["soon", "short"]
