"""Alerts: when rules are raised, and when they are over."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.alerts import (
    SAMPLES_MAX,
    AlertMemory,
    RunEvidence,
    UsualValues,
    evaluated,
    path_of,
    rules_of,
    usual_range,
    watched_figures,
    with_value,
)
from node.model.outcome import Judgement
from node.model.times import HOUR, MINUTE

LOSS = {"loss": {"fair": 0.01, "bad": 0.05}}
RECORDED = json.loads(
    (Path(__file__).parents[1] / "golden" / "series" / "rtt.json").read_text("utf-8")
)


@dataclass(frozen=True)
class Figure:
    """A figure of a result."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def _run(value: float, direction: str = "forward") -> RunEvidence:
    return RunEvidence(Judgement.GOOD, None, [Figure("loss", value, {"direction": direction})])


def _changes(
    reference: Mapping[str, Any],
    every: Iterable[RunEvidence],
    usual: Mapping[str, Sequence[float]] | None = None,
) -> list[tuple[int, str, bool]]:
    """Return which rules were raised (True) or over, each with the number of the run."""
    memory, told = AlertMemory(), list[tuple[int, str, bool]]()
    for number, run in enumerate(every):
        memory, done = evaluated(rules_of(reference), memory, run, usual or {})
        told += [(number, each.name, each.became == "raised") for each in done]
    return told


def test_a_threshold_is_raised_by_two_of_three_runs_and_over_after_two_calm_ones() -> None:
    """A single bad run wakes nobody, and a single good one ends nothing."""
    values = [0.0, 0.06, 0.0, 0.06, 0.0, 0.06, 0.0, 0.0, 0.0]
    told = _changes({"thresholds": LOSS}, map(_run, values))
    assert told == [(3, "loss.forward", True), (7, "loss.forward", False)]


def test_a_value_between_the_bounds_neither_raises_nor_ends() -> None:
    """With clear, a figure has to return further than to the threshold that it crossed."""
    terms = {"loss": {"count": 1, "of": 1, "clear": 0.01}}
    values = [0.04, 0.05, 0.04, 0.02, 0.01, 0.04]
    told = _changes({"thresholds": LOSS, "alerts": terms}, map(_run, values))
    assert told == [(1, "loss.forward", True), (4, "loss.forward", False)]


def test_smaller_values_are_worse_if_bad_is_below_fair() -> None:
    """A rate is raised by what falls below it."""
    rate = {"throughput_bps": {"fair": 9e8, "bad": 5e8}}
    runs = [
        RunEvidence(Judgement.GOOD, None, [Figure("throughput_bps", value)])
        for value in (9e8, 4e8, 5e8, 6e8, 9e8)
    ]
    told = _changes({"thresholds": rate}, runs)
    assert told == [(2, "throughput_bps", True), (4, "throughput_bps", False)]
    fair = {"thresholds": rate, "alerts": {"throughput_bps": {"at": "fair", "count": 1}}}
    assert _changes(fair, runs)[0] == (0, "throughput_bps", True)


def test_each_direction_is_judged_by_itself() -> None:
    """A rule without a direction is one for each; one with a direction is for that alone."""
    runs = [_run(0.06, way) for way in ("forward", "backward", "backward", "forward")]
    assert _changes({"thresholds": LOSS}, runs) == [
        (2, "loss.backward", True),
        (3, "loss.forward", True),
    ]
    one = {"thresholds": {"loss.backward": LOSS["loss"]}}
    assert _changes(one, runs) == [(2, "loss.backward", True)]


def test_a_rule_may_be_switched_off_and_never_raises_then() -> None:
    """A count of nought says never, and a task without rules has none, not even for outcomes."""
    off = {"thresholds": LOSS, "alerts": {"loss": {"count": 0}}}
    assert _changes(off, [_run(1.0)] * 5) == []
    for reference in (None, {}, "text", {"alerts": {"loss": {"count": 5, "of": 3}}}):
        assert rules_of(reference) == ()


def test_a_task_without_answers_is_raised_by_its_outcomes() -> None:
    """No answer, failures and missed runs are one rule; what was not planned says nothing."""
    good, planned = RunEvidence(Judgement.GOOD), RunEvidence(Judgement.NOT_PLANNED)
    bad = [RunEvidence(each) for each in (Judgement.NO_ANSWER, Judgement.FAILED)]
    told = _changes({"thresholds": LOSS}, [good, bad[0], planned, bad[1], good, planned, good])
    assert told == [(3, "outcome", True), (6, "outcome", False)]


def test_a_rule_that_is_taken_away_is_over() -> None:
    """An edit that takes a rule away ends its alert."""
    memory = AlertMemory()
    for _ in range(2):
        memory, _done = evaluated(rules_of({"thresholds": LOSS}), memory, _run(1.0), {})
    other = rules_of({"thresholds": {"jitter_ms": {"fair": 1, "bad": 2}}})
    memory, done = evaluated(other, memory, _run(1.0), {})
    assert [(each.name, each.became == "raised") for each in done] == [("loss.forward", False)]
    assert memory.raised == []


@given(
    st.lists(st.sampled_from([0.0, 0.02, 0.06]), max_size=40),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_raised_and_over_take_turns(values: list[float], count: int, more: int) -> None:
    """A rule is never raised twice without being over in between, and the memory is bounded."""
    alerts = {"loss": {"count": count, "of": count + more, "clear": 0.0}}
    reference = {"thresholds": LOSS, "alerts": alerts}
    told = [raised for _, _, raised in _changes(reference, map(_run, values))]
    assert told == [number % 2 == 0 for number in range(len(told))]
    memory = AlertMemory()
    for value in values:
        memory, _ = evaluated(rules_of(reference), memory, _run(value), {})
    assert len(memory.marks.get("loss.forward", "")) <= count + more


def _trace(*hops: str) -> RunEvidence:
    return RunEvidence(Judgement.GOOD, path=list(hops))


def test_another_path_is_told_once_and_is_over_when_it_stays() -> None:
    """A hop that is silent is no change, and nor is a path that alternates with another."""
    reference = {"alerts": {"path": {"count": 1, "of": 1}}}
    one, silent, other = _trace("a", "b", "c"), _trace("a", "", "c"), _trace("a", "x", "c")
    told = _changes(reference, [one, one, silent, other, other, one, other])
    assert told == [(3, "path", True), (4, "path", False)]
    longer = _trace("a", "b", "d", "c")
    memory, _ = evaluated(rules_of(reference), AlertMemory(), one, {})
    _, [change] = evaluated(rules_of(reference), memory, longer, {})
    assert change.sentence == "the path changed at hop 3: c → d; 3 → 4 hops"


def test_a_path_has_the_networks_of_its_hops() -> None:
    """A hop that is announced by another network is another hop."""
    hops = [{"addresses": [{"address": "192.0.2.1", "as_numbers": [64500]}]}, {"addresses": []}]
    result = {"path": ["192.0.2.1", None], "hops": hops}
    assert path_of(result) == ["192.0.2.1 (AS64500)", ""]
    assert path_of({"loss": 1}) is None
    assert path_of(None) is None


CHANGE = {"alerts": {"rtt_median_ms": {"count": 1, "of": 1, "change": 6}}}


def _rtt(value: float) -> RunEvidence:
    return RunEvidence(Judgement.GOOD, None, [Figure("rtt_median_ms", value)])


def test_a_recorded_series_is_usual_and_its_double_is_not() -> None:
    """Few values of a real series are unusual, and nearly all are that are shifted."""
    earlier, later = RECORDED[:120], RECORDED[120:]
    usual = {"rtt_median_ms": earlier}
    middle, spread = usual_range(earlier)
    told = [len(_changes(CHANGE, [_rtt(value)], usual)) for value in later]
    assert sum(told) <= 0.1 * len(later)
    shifted = [len(_changes(CHANGE, [_rtt(value + 10 * spread)], usual)) for value in later]
    assert sum(shifted) >= 0.9 * len(later)
    assert middle > 0


def test_outliers_do_not_move_what_is_usual() -> None:
    """Up to half of the earlier values may be absurd."""
    earlier = sorted(RECORDED[:120])
    spoilt = [*earlier[10:110], *[1e6] * 60]
    middle, _ = usual_range(earlier)
    assert usual_range(spoilt)[0] == pytest.approx(middle, rel=0.5)


def test_little_is_known_of_a_new_task() -> None:
    """With fewer than eight values nothing is unusual."""
    assert _changes(CHANGE, [_rtt(1e6)], {"rtt_median_ms": [1.0] * 7}) == []
    told = _changes(CHANGE, [_rtt(1e6)], {"rtt_median_ms": [1.0] * 8})
    assert told == [(0, "rtt_median_ms:change", True)]


def test_values_of_an_hour_are_kept_some_minutes_apart() -> None:
    """A task that measures each second has its last days in memory, too, and no more of them."""
    usual, kept = UsualValues(), 0
    for minute in range(24 * 60):
        at = (minute + 1) * MINUTE
        if (more := with_value(usual, 1.0, at)) is not None:
            usual, kept = more, kept + 1
    assert kept == 24 * 12
    assert len(usual.values) == SAMPLES_MAX
    assert with_value(usual, 1.0, usual.last_at + HOUR) is not None


def test_figures_are_watched_of_which_a_rule_asks_what_is_usual() -> None:
    """Only these are kept, in each direction."""
    rules = rules_of({"thresholds": LOSS, "alerts": {"loss": {"change": 3}}})
    figures = [Figure("loss", 0.5, {"direction": way}) for way in ("forward", "backward")]
    assert watched_figures(rules, [*figures, Figure("hops", 3)]) == {
        "loss.forward": 0.5,
        "loss.backward": 0.5,
    }
    assert watched_figures(rules_of({"thresholds": LOSS}), figures) == {}
