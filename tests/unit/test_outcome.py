"""The judgement of figures: total loss first, then the worst one by its thresholds."""

from __future__ import annotations

import pytest

from node.model.outcome import Judged, Judgement, judge
from node.model.wire.meshes import Threshold, thresholds_of
from node.plugins.contracts import Metric

FORWARD, BACKWARD = {"direction": "forward"}, {"direction": "backward"}
LOSS = {"loss": Threshold(fair=0.01, bad=0.1)}


def _judged(*losses: tuple[float, dict[str, str]]) -> Judged:
    return judge([Metric("loss", value, "1", labels) for value, labels in losses], LOSS)


@pytest.mark.parametrize(
    ("losses", "judgement"),
    [
        ([(0.0, {})], Judgement.GOOD),
        ([(0.01, {})], Judgement.FAIR),
        ([(0.02, FORWARD), (0.3, BACKWARD)], Judgement.BAD),
        ([(0.3, FORWARD), (0.02, BACKWARD)], Judgement.BAD),
        ([(0.0, FORWARD), (1.0, BACKWARD)], Judgement.NO_ANSWER),
        ([(1.0, {})], Judgement.NO_ANSWER),
        ([], Judgement.GOOD),
    ],
)
def test_the_worst_figure_decides(
    losses: list[tuple[float, dict[str, str]]], judgement: Judgement
) -> None:
    """Total loss of one direction is no answer; otherwise the worst figure is the judgement."""
    judged = _judged(*losses)
    assert judged.judgement is judgement
    assert (judged.reason is None) == (judgement is Judgement.GOOD)


def test_reasons_name_what_is_wrong() -> None:
    """The reason has the direction that lost all, or the figure with its value and threshold."""
    lost = _judged((0.0, FORWARD), (1.0, BACKWARD)).reason
    assert lost is not None
    assert lost.code == "all-lost-backward"
    for both in (_judged((1.0, FORWARD), (1.0, BACKWARD)).reason, _judged((1.0, {})).reason):
        assert both is not None
        assert both.code == "all-lost"
    bad = _judged((0.3, BACKWARD)).reason
    assert bad is not None
    assert (bad.code, bad.figures["figure"], bad.figures["bound"]) == (
        "beyond-threshold",
        "loss.backward",
        0.1,
    )


def test_without_thresholds_only_total_loss_is_not_good() -> None:
    """A figure without thresholds is good, whatever it is, as long as something arrives."""
    assert judge([Metric("loss", 0.99, "1")], {}).judgement is Judgement.GOOD
    assert judge([Metric("loss", 1.0, "1")], {}).judgement is Judgement.NO_ANSWER


def test_a_threshold_may_be_of_one_direction_and_smaller_values_may_be_worse() -> None:
    """A threshold with labels comes before one without; bad below fair turns the comparison."""
    rate = Metric("throughput_bps", 4e6, "bit/s", FORWARD)
    own = {
        "throughput_bps": Threshold(fair=2, bad=1),
        "throughput_bps.forward": Threshold(fair=9e6, bad=5e6),
    }
    assert judge([rate], own).judgement is Judgement.BAD
    assert judge([rate], {"throughput_bps": own["throughput_bps"]}).judgement is Judgement.GOOD


def test_thresholds_of_a_wrong_form_are_left_out() -> None:
    """Anybody may post a task with any reference; what is no threshold judges nothing."""
    written = {"loss": {"fair": 0.1, "bad": 0.2}, "rtt": {"fair": "x"}, "jitter": 3}
    assert list(thresholds_of({"thresholds": written})) == ["loss"]
    for reference in ({"thresholds": [1]}, None, "thresholds", ["thresholds"], 1):
        assert thresholds_of(reference) == {}
