"""Limits on active and on due runs, for every holder that a run counts for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.policy.limit_counting import CountedRun, RunDemand, booked_time, full_at_once
from lead.policy.preempt.flagged import find_preemption_refusal
from lead.policy.throttle.active_limits import (
    NODES,
    RUNS,
    SEAT_TIME,
    SEATS,
    TIME,
    Holder,
    LimitLevel,
    find_limit_refusal,
    limit_at,
    outstanding_time,
    request_of,
)
from lead.policy.throttle.due_limits import DueTask, ageing_since, tasks_within_limits
from lead.policy.view import CampaignView, Candidate, LimitView, PostedRun

CAMPAIGNS = {
    "probe": CampaignView("probe", parent="ops", limits={RUNS: LimitView(2, 4)}),
    "ops": CampaignView("ops", limits={NODES: LimitView(None, 10)}),
    "free": CampaignView("free"),
}
RUN = PostedRun("r", "t", "probe", ["n1", "n2"], 10, 30)


@pytest.mark.parametrize(
    ("limit", "soft", "hard"),
    [
        (LimitView(2, 8), 2, 8),
        (LimitView(None, 8), 8, 8),
        (LimitView(9, 8), 8, 8),
        (LimitView(2, None), 2, None),
        (LimitView(None, None), None, None),
    ],
)
def test_a_missing_or_looser_soft_limit_is_the_hard_one(
    limit: LimitView, soft: int | None, hard: int | None
) -> None:
    """The soft limit is never looser than the hard one."""
    assert (limit_at(limit, LimitLevel.SOFT), limit_at(limit, LimitLevel.HARD)) == (soft, hard)


def test_every_limit_of_every_holder_counts() -> None:
    """The refusal names the first limit exceeded, with the wanted and the allowed number."""
    holders = [
        Holder("probe", {RUNS: LimitView(1, 2)}, {RUNS: 1}),
        Holder("ops", {NODES: LimitView(5, 5)}),
    ]
    assert find_limit_refusal({RUNS: 1, NODES: 5}, holders, LimitLevel.HARD) is None
    refusal = find_limit_refusal({RUNS: 1, NODES: 5}, holders, LimitLevel.SOFT)
    assert refusal is not None
    figures = {"holder": "probe", "wanted": 2, "kind": "runs", "limit": 1, "level": "soft"}
    assert refusal.reason.figures == figures
    refusal = find_limit_refusal({RUNS: 1, NODES: 6}, holders, LimitLevel.HARD)
    assert refusal is not None
    assert dict(refusal.figures)["holder"] == "ops"


def test_an_override_replaces_other_limits_but_not_those_of_runs() -> None:
    """Overridden node limits may exceed others, overridden run limits may not."""
    holders = [
        Holder("probe", {RUNS: LimitView(2, 2), NODES: LimitView(3, 3)}, {RUNS: 1, NODES: 3})
    ]
    overrides = {RUNS: LimitView(9, 9), NODES: LimitView(9, 9)}
    assert find_limit_refusal({RUNS: 1, NODES: 6}, holders, LimitLevel.HARD, overrides) is None
    assert find_limit_refusal({RUNS: 1, NODES: 7}, holders, LimitLevel.HARD, overrides) is not None
    assert find_limit_refusal({RUNS: 2, NODES: 1}, holders, LimitLevel.HARD, overrides) is not None


def test_outstanding_time_shrinks_as_runs_progress() -> None:
    """The rest of each run counts for each of its seats, and is never negative."""
    assert [outstanding_time([(4, 3), (2, 6)], after) for after in (0, 3, 9)] == [24, 6, 0]


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 4)), max_size=12)


@given(spans, st.integers(0, 60), st.integers(1, 20), st.integers(1, 12), st.integers(0, 40))
def test_counts_agree_with_a_plain_search(
    booked: list[tuple[int, int, int]], start: int, length: int, most: int, now: int
) -> None:
    """The use at an instant, and booked time, agree with a plain search."""
    runs = [CountedRun("ops", at, at + lasts, k, 0) for at, lasts, k in booked]
    holder = CampaignView("ops", limits={NODES: LimitView(None, most)})
    full = full_at_once(holder, RunDemand("ops", length, 1, 0), runs, LimitLevel.HARD)
    closed = {at for each in full for at in range(each.start, min(each.end, 99))}
    had = {at: sum(run.nodes for run in runs if run.start <= at < run.end) for at in range(99)}
    assert closed == {at for at, nodes in had.items() if nodes + 1 > most}
    left = [(run.nodes, max(0, run.end - max(run.start, now))) for run in runs]
    assert booked_time(runs, now, by_node=True) == sum(nodes * time for nodes, time in left)
    assert booked_time(runs, now, by_node=False) == sum(time for _, time in left)


@pytest.mark.parametrize(
    ("together", "named", "runs"),
    [(True, False, 1), (False, True, 1), (False, False, 3)],
)
def test_a_candidate_requests_all_it_will_book(*, together: bool, named: bool, runs: int) -> None:
    """Nodes together have one run, others one each; time is the sum over all its runs."""
    spans = [(0, 7), (10, 17)]
    candidate = Candidate(
        "t", "probe", 0, 14, ("a", "b", "c"), k=3, together=together, named=named, runs=spans
    )
    request = request_of(candidate)
    assert request == {RUNS: runs, NODES: 3, SEATS: 3, SEAT_TIME: 42, TIME: 14 * runs}


def test_due_tasks_beyond_a_limit_are_left_out_with_the_reason() -> None:
    """A wide task that exceeds a limit leaves it to narrower ones after it."""
    due = [DueTask(f"t{k}", ("ops",), {RUNS: 1, NODES: k}) for k in (3, 4, 2)]
    tasks, refused = tasks_within_limits(
        [*due, DueTask("x", ("free",), {RUNS: 1})], {"ops": {NODES: 5}}
    )
    assert tasks == ["t3", "t2", "x"]
    [refusal] = refused.values()
    assert refusal.reason.figures == {"holder": "ops", "wanted": 7, "kind": "nodes", "limit": 5}


@given(st.lists(st.sampled_from("uvw"), max_size=20), st.integers(0, 4))
def test_each_holder_has_its_first_due_tasks_considered(names: list[str], most: int) -> None:
    """With a limit on runs, exactly the first tasks of each holder are considered."""
    due = [DueTask(f"{name}{at}", (name,), {RUNS: 1}) for at, name in enumerate(names)]
    tasks, refused = tasks_within_limits(due, {name: {RUNS: most} for name in "uvw"})
    for name in "uvw":
        mine = [it.task for it in due if it.holders == (name,)]
        assert [task for task in tasks if task in mine] == mine[:most]
        assert [task for task in refused if task in mine] == mine[most:]


def test_waiting_counts_from_when_a_task_is_considered() -> None:
    """A task considered before keeps its age; one that was not in between begins anew."""
    assert ageing_since({"a": 3, "gone": 4}, ["a", "b"], 9) == {"a": 3, "b": 9}


def test_each_refusal_to_displace_has_its_own_rule() -> None:
    """A run is displaced only by a preemptor of higher priority, and only if it is a preemptee."""

    def rule(new: int, old: int, *, preemptor: bool = True, preemptee: bool = True) -> str | None:
        refusal = find_preemption_refusal(
            ("a", new), ("b", old), preemptor=preemptor, preemptee=preemptee
        )
        return None if refusal is None else refusal.rule.name

    assert rule(9, 5) is None
    assert rule(5, 5) == "not higher"
    assert rule(9, 5, preemptor=False) == "no preemptor"
    assert rule(9, 5, preemptee=False) == "no preemptee"
