"""Priorities as weighted sums: terms, caps, bounds, and the resulting order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lead.policy.order import weighted
from lead.policy.order.weighted import (
    COMPONENTS,
    PRIORITY_MAX,
    WAITING_ONLY,
    WeightingContext,
    Weights,
    expansion_factor,
    names_by_priority,
    tasks_in_order,
    urgency,
    waited_minutes,
)
from lead.policy.view import CampaignView, Candidate, RememberedState
from node.model import times
from tests.golden.originals.weighted_sum import priority, weighed

NOW = 1000 * times.MINUTE
DUE = Candidate("t", "ops", NOW, 10 * times.MINUTE, ("n1",), slip=20 * times.MINUTE, k=3)
CAMPAIGNS = {
    "ops": CampaignView("ops", parent="net", priority=7),
    "net": CampaignView("net", priority=2),
}
STANDING = WeightingContext(NOW, CAMPAIGNS, {"ops": 5.0, "net": -1.0}, classes={"exclusive": 4.0})
ALL = {
    "credential": {"campaign": 1.0, "parent": 1.0, "class": 1.0},
    "fairshare": {"campaign": 1.0, "parent": 1.0},
    "size": {"nodes": 1.0, "duration": 1.0, "seat_time": 1.0},
    "service": {"waiting": 1.0, "expansion": 1.0, "bypass": 1.0},
    "target": {"waiting": 1.0, "expansion": 1.0},
}
numbers = st.floats(-1e6, 1e6)


def _values(
    candidate: Candidate, standing: WeightingContext, waited: float
) -> dict[str, dict[str, float]]:
    """Return the value of every term for a candidate."""
    return {
        name: {term: value(candidate, standing, waited) for term, value in terms.items()}
        for name, terms in weighted._TERMS.items()
    }


def test_every_documented_term_exists() -> None:
    """The terms that an operator may weigh are exactly those that are computed."""
    assert {name: tuple(terms) for name, terms in ALL.items()} == COMPONENTS


def test_the_terms_of_a_task() -> None:
    """Every term of the table has its value, those of the parent too."""
    waited = replace(DUE, waits_since=NOW - 30 * times.MINUTE)
    standing = replace(STANDING, state=RememberedState(passes={"t": 2}), targets={"expansion": 6.0})
    assert _values(waited, standing, 30.0) == {
        "credential": {"campaign": 7, "parent": 2, "class": 4.0},
        "fairshare": {"campaign": 5.0, "parent": -1.0},
        "size": {"nodes": 3, "duration": 10.0, "seat_time": 30.0},
        "service": {"waiting": 30.0, "expansion": 4.0, "bypass": 2},
        "target": {"waiting": 1 / 400, "expansion": 0.25},
    }


@given(st.dictionaries(st.sampled_from("abc"), numbers), st.floats(1, 100), st.floats(-9, 9))
def test_caps_bound_terms_before_weights_and_sums_after(
    values: dict[str, float], cap: float, weight: float
) -> None:
    """The sum agrees with the formula written out."""
    weights = Weights(
        terms={"x": {"a": 2.0, "b": weight}},
        components={"x": 3.0},
        term_caps={"x": {"a": cap, "b": 0.0}},
        component_caps={"x": 50.0},
    )
    inner = 2.0 * min(values.get("a", 0.0), cap) + weight * values.get("b", 0.0)
    assert weighed({"x": values}, weights) == pytest.approx(3.0 * min(inner, 50.0))


def test_priorities_are_bounded_and_an_administrators_are_above_all() -> None:
    """Computed priorities lie between 0 and the maximum, and an administrator's exceed it."""
    weights = Weights({"x": {"a": 1.0}})
    assert priority({"x": {"a": -5}}, weights) == 0
    assert priority({"x": {"a": 1e12}}, weights) == PRIORITY_MAX
    assert priority({"x": {"a": -5}}, weights, given=1) == PRIORITY_MAX + 1


def test_a_component_without_weight_is_left_out() -> None:
    """A component with a weight of 0 does not count, nor do its terms."""
    weights = Weights({"service": {"waiting": 1.0}, "size": {"nodes": 1.0}}, {"size": 0.0})
    assert weighed({"service": {"waiting": 3.0}, "size": {"nodes": 9.0}}, weights) == 3.0


def test_short_tasks_expand_faster_but_not_at_once() -> None:
    """The factor grows with waiting over duration, and the minimum duration bounds it."""
    assert expansion_factor(30, 10) == 4
    assert expansion_factor(30, 60) == 1.5
    assert expansion_factor(30, 1, 60) == 1.5
    assert expansion_factor(30, 0) == 1


def test_urgency_peaks_at_the_target() -> None:
    """Urgency rises with the inverse square of the rest, and stays at its maximum afterwards."""
    assert urgency(10, 5) == pytest.approx(0.04)
    assert urgency(10, 10) == urgency(10, 99) == pytest.approx(1e8)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=9))
def test_by_default_who_has_waited_longest_is_first(since: list[tuple[int, int]]) -> None:
    """The default orders by waiting time, then by when a task was added."""
    due = [
        replace(DUE, task=f"t{at:02}", waits_since=waits * times.MINUTE, added_at=added)
        for at, (waits, added) in enumerate(since)
    ]
    expected = sorted(due, key=lambda it: (it.waits_since, it.added_at, it.task))
    assert tasks_in_order(due, WAITING_ONLY, STANDING) == [it.task for it in expected]


@given(
    st.lists(
        st.tuples(st.sampled_from(["ops", "net"]), st.integers(0, 99), st.integers(1, 5)),
        max_size=9,
    ),
    st.fixed_dictionaries(
        {
            name: st.fixed_dictionaries({term: st.integers(0, 3) for term in ALL[name]})
            for name in ALL
        }
    ),
    st.fixed_dictionaries({name: st.integers(0, 2) for name in ALL}),
    st.fixed_dictionaries({name: st.integers(0, 40) for name in ALL}),
)
def test_the_order_agrees_with_the_priorities(
    some: list[tuple[str, int, int]],
    terms: dict[str, dict[str, int]],
    components: dict[str, int],
    caps: dict[str, int],
) -> None:
    """Ordering many at once agrees with the priority of each, term by term."""
    weights = Weights(terms, components, {"service": {"waiting": 30}}, caps)
    due = [
        replace(DUE, task=f"t{at}", campaign=name, waits_since=NOW - minutes * times.MINUTE, k=k)
        for at, (name, minutes, k) in enumerate(some)
    ]
    minutes = {it.task: waited_minutes(it, STANDING) for it in due}
    result = {it.task: priority(_values(it, STANDING, minutes[it.task]), weights) for it in due}
    expected = names_by_priority([(it.task, result[it.task], minutes[it.task]) for it in due])
    assert tasks_in_order(due, weights, STANDING) == expected


def test_time_under_a_limit_does_not_count() -> None:
    """A task that a limit excluded has waited only since it was considered."""
    old = replace(DUE, task="old", waits_since=0)
    young = replace(DUE, task="young", waits_since=NOW - times.HOUR)
    kept_out = replace(STANDING, state=RememberedState(eligible_since={"old": NOW - times.MINUTE}))
    assert tasks_in_order([old, young], WAITING_ONLY, STANDING) == ["old", "young"]
    assert tasks_in_order([old, young], WAITING_ONLY, kept_out) == ["young", "old"]


def test_the_longest_of_equals_is_first_if_configured() -> None:
    """Duration decides only where nothing else does, not between campaigns of different weight."""
    short = [replace(DUE, task=name, campaign=name, added_at=1) for name in CAMPAIGNS]
    long = [
        replace(it, task=f"long {it.task}", duration=2 * it.duration, added_at=2) for it in short
    ]
    tasks = [*short, *long]
    longest = WeightingContext(NOW, CAMPAIGNS, {}, longest=True)
    assert tasks_in_order(tasks, WAITING_ONLY, longest) == ["long ops", "long net", "ops", "net"]
    assert tasks_in_order(tasks, WAITING_ONLY, replace(longest, longest=False))[:2] == [
        "ops",
        "net",
    ]
    by_campaign = Weights({"credential": {"campaign": 1.0}})
    assert tasks_in_order(tasks, by_campaign, longest) == ["long ops", "ops", "long net", "net"]
