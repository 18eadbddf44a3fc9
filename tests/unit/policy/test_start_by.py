"""The forecast of late runs, and moving them ahead."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lead.policy.feasible.start_by import forecast, late
from lead.policy.order.deadline_first import Supply, moved, order, run_list
from lead.policy.share.recent_work import RecentWorkSelector, WorkItem
from lead.policy.view import Candidate

SHARES = {"a": 1.0, "b": 2.0, "c": 0.0}
works = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.integers(1, 3), st.integers(0, 200)),
    max_size=15,
).map(lambda some: [WorkItem(f"t{at}", *one) for at, one in enumerate(some)])
free = st.lists(st.integers(0, 60), min_size=1, max_size=4)


@given(works, free)
def test_a_forecast_is_a_timetable(work: list[WorkItem], free_at: list[int]) -> None:
    """At no instant are more seats in use than have become free, and starts are in order."""
    starts = forecast(work, free_at, SHARES, {})
    known = {it.task: it for it in work}
    assert starts.keys() == {it.task for it in work if it.seats <= len(free_at)}
    for at in {*starts.values()}:
        used = sum(
            known[task].seats
            for task, start in starts.items()
            if start <= at < start + known[task].duration
        )
        assert used <= sum(1 for it in free_at if it <= at)


@given(works, free)
def test_tasks_of_one_campaign_start_in_the_order_of_arrival(
    work: list[WorkItem], free_at: list[int]
) -> None:
    """Within a campaign no task is passed."""
    starts = forecast(work, free_at, SHARES, {})
    for name in SHARES:
        mine = [it.task for it in work if it.campaign == name and it.task in starts]
        assert [task for task in starts if task in mine] == mine


def test_seats_follow_the_shares() -> None:
    """With shares of one and two, the second gets twice as many of the first starts."""
    work = [WorkItem(f"{name}{at}", name, 10) for name in "ab" for at in range(9)]
    started = list(forecast(work, [0], SHARES, {}))[:9]
    assert sum(task.startswith("b") for task in started) == 6


def candidate(task: str, campaign: str, duration: int, slip: int) -> Candidate:
    """Return a due task."""
    return Candidate(task, campaign, 0, duration, ("n1",), slip=slip)


def test_late_tasks_go_first() -> None:
    """A task that would be late in its turn is moved ahead, the nearest deadline first."""
    due = [candidate(f"a{at}", "a", 10, 1000) for at in range(3)]
    due += [candidate("b0", "b", 10, 9), candidate("a3", "a", 10, 25), candidate("a4", "a", 10, 5)]
    supply = Supply([0], {"a": 1, "b": 1}, {})
    assert moved(due, supply) == ["a4", "b0", "a3"]
    assert order(due, supply) == ["a4", "b0", "a3", "a0", "a1", "a2"]


@given(works, free)
def test_the_order_names_every_task_once(work: list[WorkItem], free_at: list[int]) -> None:
    """No task is lost or doubled, and the late ones come first."""
    due = [Candidate(it.task, it.campaign, 0, it.duration, (), k=int(it.seats)) for it in work]
    supply = Supply(free_at, SHARES, {})
    ordered, ahead = order(due, supply), moved(due, supply)
    assert sorted(ordered) == sorted(it.task for it in work)
    assert ordered[: len(ahead)] == ahead
    starting_at_once = [WorkItem(it.task, it.campaign, it.duration, it.k, 0) for it in due]
    result = late(starting_at_once, forecast(starting_at_once, free_at, SHARES, {}))
    assert set(ahead) == {it.task for it in result}


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
    assert [
        it.task for it in run_list(work, late_ones, RecentWorkSelector(recent, shares, 2), 2)
    ] == [
        "soon",
        "short",
    ]
