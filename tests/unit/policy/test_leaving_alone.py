"""Backoff, deferral, work fetch, and the resources and ranking of nodes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.policy.feasible import deferral
from lead.policy.feasible.availability import CapacityBasis, available_amount, seats_on
from lead.policy.feasible.backoff import (
    FIRST,
    MOST,
    Key,
    after_answer,
    after_refusal,
    capped_backoffs,
    find_backoff_refusal,
    pause,
)
from lead.policy.feasible.deferral import DeferralRule, after_failed_start, find_deferral_refusal
from lead.policy.feasible.work_fetch import (
    LOW_MIN,
    Buffer,
    amount_to_ask,
    buffer_of,
)
from lead.policy.select import linear_function, rankings
from lead.policy.view import Backoff, Deferral, NodeView
from node.model import times
from node.model.spare_capacity import SpareCapacity
from tests.golden.originals.lead_choice import adjusted, seats_to_ask, whom_to_ask

KEY: Key = ("ops", "n1", "exclusive")
OTHER: Key = ("ops", "n1", "normal")


def test_pauses_double_up_to_a_day() -> None:
    """The first pause is ten minutes, and no pause is longer than a day."""
    assert [pause(n) // times.MINUTE for n in (0, 1, 2, 8, 9, 500)] == [0, 10, 20, 1280, 1440, 1440]


@given(st.integers(0, 30), st.integers(0, 10**15), st.integers(0, 99))
def test_a_refusal_lengthens_the_pause_within_its_jitter(
    failures: int, now: int, seed: int
) -> None:
    """The next pause is drawn between half and one and a half of the doubled one."""
    before = Backoff(failures, now) if failures else None
    after = after_refusal(before, now, random.Random(seed))
    assert after.failures == failures + 1
    drawn = after.until - now
    assert pause(failures + 1) // 2 <= drawn <= pause(failures + 1) * 3 // 2 + 1


def test_a_question_during_the_pause_changes_nothing() -> None:
    """Only a question asked after the pause counts as another refusal."""
    before = Backoff(2, 100)
    assert after_refusal(before, 99, random.Random(0)) == before
    assert after_refusal(before, 100, random.Random(0)).failures == 3


def test_no_pause_outlasts_a_clock_that_was_set_back() -> None:
    """A pause that a clock chose which was ahead lasts no longer than the longest of its kind."""
    drawn = after_refusal(None, 0, random.Random(0))
    assert capped_backoffs({KEY: drawn}, 0) == {KEY: drawn}
    now, longest = -times.DAY, pause(1) * 3 // 2
    assert capped_backoffs({KEY: drawn}, now) == {KEY: Backoff(1, now + longest)}
    rule = DeferralRule(pause=times.HOUR)
    deferred = after_failed_start(Deferral(), 0, rule)
    assert deferral.capped_deferral(deferred, 0, rule) == deferred
    assert deferral.capped_deferral(deferred, now, rule) == Deferral(0, 1, now + times.HOUR)


def test_an_answer_clears_only_its_own_pauses() -> None:
    """Each class of each node has its own pause."""
    before = {KEY: Backoff(3, 0), OTHER: Backoff(1, 999)}
    after = after_answer(before, [KEY, OTHER], [KEY], 5, random.Random(0))
    assert after == {OTHER: Backoff(1, 999)}
    after = after_answer(before, [KEY], [], 5, random.Random(0))
    assert (after[KEY].failures, after[OTHER]) == (4, Backoff(1, 999))


def test_a_backoff_states_its_end() -> None:
    """The refusal holds for the pause and states how often the node refused."""
    assert find_backoff_refusal({}, KEY, 0) is None
    assert find_backoff_refusal({KEY: Backoff(2, 50)}, KEY, 50) is None
    refusal = find_backoff_refusal({KEY: Backoff(2, 50)}, KEY, 49)
    assert refusal is not None
    assert refusal.until == 50
    assert refusal.reason.figures == {"node": "n1", "campaign": "ops", "failures": 2}
    assert FIRST < MOST


def test_a_task_is_deferred_and_then_held() -> None:
    """Failed starts defer a task up to the limit, and further ones put it on hold."""
    patience = DeferralRule(pause=10, deferrals=2, starts=2)
    state, seen = Deferral(), []
    for now in range(0, 60, 10):
        state = after_failed_start(state, now, patience)
        seen.append((state.failed, state.count, state.until, state.held))
    assert seen == [
        (1, 0, 0, False),
        (0, 1, 20, False),
        (1, 1, 20, False),
        (0, 2, 40, False),
        (1, 2, 40, False),
        (0, 2, 50, True),
    ]


def test_deferrals_and_holds_are_explained() -> None:
    """A deferred task may be retried after its deferral, one on hold never by itself."""
    assert find_deferral_refusal("t", Deferral(), 0) is None
    refusal = find_deferral_refusal("t", Deferral(0, 3, 50), 49)
    assert refusal is not None
    assert refusal.until == 50
    assert find_deferral_refusal("t", Deferral(0, 3, 50), 50) is None
    on_hold = find_deferral_refusal("t", Deferral(0, 24, 50, held=True), 99)
    assert on_hold is not None
    assert on_hold.reason.code == "feasible-batch-hold"
    assert on_hold.reason.figures == {"task": "t", "count": 24}


BUFFER = Buffer(5, 10)


@pytest.mark.parametrize(
    ("saturated", "on_contact", "highest", "asked"),
    [
        (4, False, True, 7),
        (5, False, True, 0),
        (5, True, True, 7),
        (10, True, True, 0),
        (4, True, False, 0),
        (4, False, False, 0),
    ],
)
def test_work_is_fetched_below_the_buffer(
    saturated: int, asked: int, *, on_contact: bool, highest: bool
) -> None:
    """A node asks below the low mark, or on contact below the high one, and only the best lead."""
    spare = SpareCapacity(7, saturated, 0)
    result = amount_to_ask(spare, BUFFER, on_contact=on_contact, stands_highest=highest)
    assert result == asked


def test_queued_work_lowers_the_standing() -> None:
    """A queue as long as the buffer on all seats is worth one share."""
    assert adjusted(-1.0, 40, BUFFER, 4) == -2.0
    assert whom_to_ask({"a": -1.0, "b": -1.0, "c": -0.5}, {"a", "b"}) == "a"
    assert whom_to_ask({"a": -1.0}, set()) is None
    assert seats_to_ask(0, 8, 0.25, 4) == 0
    assert seats_to_ask(0, 8, 0.5, 1) == 3


def test_a_buffer_is_never_shorter_than_three_minutes() -> None:
    """The configured buffer has a minimum, so that a node does not ask all the time."""
    assert buffer_of(1, 2) == Buffer(LOW_MIN, LOW_MIN + 2)
    assert buffer_of() == Buffer(times.DAY // 10, times.DAY // 10 + times.DAY // 2)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_available_is_what_is_neither_reserved_nor_used(has: int, promised: int, used: int) -> None:
    """The combined count is the stricter of the two, and none leaves less than nothing."""
    left_by_basis = {
        counted: available_amount(has, promised, used, counted) for counted in CapacityBasis
    }
    assert left_by_basis[CapacityBasis.COMBINED] == min(
        left_by_basis[CapacityBasis.DEDICATED], left_by_basis[CapacityBasis.UTILISED]
    )
    assert left_by_basis[CapacityBasis.DEDICATED] == max(0, has - promised)


def test_seats_do_not_add_up_across_nodes() -> None:
    """Each seat needs all its resources on one node, and a node with too few seats gives none."""
    assert seats_on({"cpu": 4, "gb": 5}, {"cpu": 1, "gb": 2}) == 2
    assert seats_on({"cpu": 4, "gb": 5}, {"cpu": 1, "gb": 2}, least=3) == 0
    assert seats_on({"cpu": 4}, {"cpu": 1, "gb": 2}) == 0
    assert seats_on({}, {}) == 1


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 9))),
    st.integers(1, 9),
)
def test_nodes_with_the_least_left_come_first(free: dict[str, int | None], duration: int) -> None:
    """Only nodes that are free for long enough are ranked, those without an end last."""
    ranked = rankings.by_time_left(free, duration)
    free_times = [free[name] for name in ranked]
    assert free_times == sorted(free_times, key=lambda it: 99 if it is None else it)
    assert set(ranked) == {name for name, has in free.items() if has is None or has >= duration}


def test_the_richest_node_is_spared() -> None:
    """The poorest node that has all that is needed comes first."""
    configured = {
        "big": {"mbps": 100_000, "lanes": 4},
        "small": {"mbps": 1_000, "lanes": 2},
        "odd": {"mbps": 10_000},
    }
    assert rankings.by_wealth(configured, {"mbps": 500}) == ["odd", "small", "big"]
    assert rankings.by_wealth(configured, {"mbps": 500, "lanes": 1}) == ["small", "big"]
    assert rankings.by_wealth({}, {"mbps": 1}) == []


def test_quiet_nodes_come_first() -> None:
    """Nodes are sorted by load, then by last use; else they stay as listed."""
    nodes = [NodeView("d", load=0.5), NodeView("c", used_at=9), NodeView("b"), NodeView("a")]
    assert [node.name for node in rankings.by_load(nodes)] == ["b", "a", "c", "d"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SPEED + 0.01*AMEM - 10*JOBCOUNT", 110),
        ("AMEM*.5-SPEED", 900),
        ("-SPEED", -100),
        ("7", 7),
        ("SPEED + SPEED - 3", 197),
        ("MISSING", 0),
    ],
)
def test_an_operators_function_is_computed(text: str, value: int) -> None:
    """Coefficients may come before or after a figure, and a missing figure is 0."""
    figures = {"SPEED": 100, "AMEM": 2000, "JOBCOUNT": 1}
    assert linear_function.value(linear_function.parse(text), figures) == value


@pytest.mark.parametrize("text", ["", "SPEED SPEED", "SPEED *", "2*3*SPEED", "(SPEED)", "SPEED/2"])
def test_a_nonlinear_function_is_refused_with_its_position(text: str) -> None:
    """The message quotes the text from where it cannot be read."""
    with pytest.raises(ValueError, match="as a sum of figures"):
        linear_function.parse(text)


def test_nodes_are_ranked_by_the_function() -> None:
    """The highest value comes first, and ties go to the node listed first."""
    function = linear_function.parse("x")
    ranked = linear_function.ranking(function, {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 1}})
    assert [name for name, _ in ranked] == ["b", "a", "c"]
