"""Conditions on runs that are over, and what of a run meets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from node.model.conditions import parse_condition, what_holds
from node.model.figure_names import condition_fault
from node.model.outcome import Judgement


@dataclass(frozen=True)
class Figure:
    """A figure of a result."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


FIGURES = (
    Figure("loss", 0.02, {"direction": "forward"}),
    Figure("loss", 0.0, {"direction": "backward"}),
    Figure("delay_p95_ms", 48.5, {"direction": "forward"}),
    Figure("throughput_bps", 4.2e7),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("loss.forward > 1 %", "loss.forward is 0.02"),
        ("loss.forward>1%", "loss.forward is 0.02"),
        ("loss > 0.01", "loss.forward is 0.02"),
        ("loss.backward > 1 %", None),
        ("loss.forward > 2 %", None),
        ("loss.forward >= 2 %", "loss.forward is 0.02"),
        ("loss.backward <= 0", "loss.backward is 0"),
        ("throughput_bps < 50 M", "throughput_bps is 4.2e+07"),
        ("throughput_bps < 50 Mbps", "throughput_bps is 4.2e+07"),
        ("throughput_bps < 40M", None),
        ("delay_p95_ms > 45 ms", "delay_p95_ms.forward is 48.5"),
        ("mtu_bytes < 1500", None),
        ("fair", "it is fair"),
        ("good or bad", None),
        ("no-answer or loss > 1 %", "loss.forward is 0.02"),
        ("loss > 1 % and fair", "loss.forward is 0.02 and it is fair"),
        ("loss > 1 % and bad or alert", "the alert loss.forward is raised"),
        ("alert loss", "the alert loss.forward is raised"),
        ("alert loss.forward", "the alert loss.forward is raised"),
        ("alert loss.backward", None),
        ("alert outcome", None),
    ],
)
def test_what_of_a_run_meets_a_condition_is_told(text: str, found: str | None) -> None:
    """Figures, judgements and raised alerts meet a condition as it is written."""
    assert what_holds(parse_condition(text), Judgement.FAIR, FIGURES, ["loss.forward"]) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no_answer", "is no condition"),
        ("noanswer", "did you mean no-answer?"),
        ("stale", "is no judgement"),
        ("loss", "a figure needs a bound, such as loss > 1"),
        ("loss > ", "is no condition"),
        ("loss > -1 %", "is no condition"),
        ("loss = 1", "is no condition"),
        ("loss > 1 % or", "is no condition"),
        ("delay_p95_ms > 3 s", "have the unit of its name, and not s"),
        ("alert Loss", "is no condition"),
        ("", "nothing is no condition"),
    ],
)
def test_what_is_no_condition_is_told(text: str, words: str) -> None:
    """A text that is no condition is refused with what is wrong, and what may be meant."""
    with pytest.raises(ValueError, match=r"no condition|no judgement|unit") as refused:
        parse_condition(text)
    assert words in str(refused.value)


BOUNDS = {"thresholds": {"loss.forward": {"fair": 0.001, "bad": 0.01}}}


@pytest.mark.parametrize(
    ("text", "reference", "words"),
    [
        ("loss.forward > 1 %", None, None),
        ("no-answer or failed or missed", None, None),
        ("los.forward > 1 %", None, "did you mean loss"),
        ("failed or loss.forwards > 1 %", None, "did you mean loss.forward"),
        ("throughput_bps < 5 M", None, "is no figure of latency"),
        ("bad", None, "the task that is followed has no thresholds"),
        ("bad or alert", BOUNDS, None),
        ("alert", None, "no alert is raised by the task that is followed; it has no thresholds"),
        ("alert loss", BOUNDS, None),
        ("alert loss.forward or alert outcome", BOUNDS, None),
        ("alert loss.backward", BOUNDS, "did you mean loss.forward?"),
    ],
)
def test_conditions_that_no_run_meets_are_told(
    text: str, reference: Mapping[str, object] | None, words: str | None
) -> None:
    """Figures that the test has not, and alerts that the task has not, are faults."""
    fault = condition_fault(text, "latency", reference)
    assert fault is None if words is None else words in (fault or "")


def test_a_plug_ins_figures_may_have_any_name() -> None:
    """Nothing is known of the figures of tests of other authors."""
    figures: Sequence[Figure] = [Figure("shade", 3.0)]
    assert condition_fault("shade > 2", "eclipse", None) is None
    assert what_holds(parse_condition("shade > 2"), Judgement.GOOD, figures, ()) == "shade is 3"
