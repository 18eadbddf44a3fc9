"""The names of figures that thresholds and alerts may have."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import node.plugins.tests
from node.model.figure_names import FIGURE_NAMES, figure_faults, is_figure

_MAKERS = {"metric": "{}", "Metric": "{}", "delay_metrics": "{}_median_ms"}
SOURCES = sorted(Path(node.plugins.tests.__path__[0]).glob("[a-z]*.py"))


def _bases(source: Path) -> set[str]:
    """Return the names of the figures that a test makes, without labels, from its source."""
    calls = [
        each
        for each in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(each, ast.Call)
    ]
    return {
        _MAKERS[call.func.id].format(call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id in _MAKERS
        and isinstance(call.args[0], ast.Constant)
    }


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_table_has_each_figure_of_each_test(source: Path) -> None:
    """A figure that a test of ours makes is in the table."""
    assert source.stem in FIGURE_NAMES
    assert [name for name in _bases(source) if not is_figure(source.stem, name)] == []


def test_a_name_that_no_result_has_is_told_with_what_was_meant() -> None:
    """Wrong figures, wrong directions and alerts that could never be raised are faults."""
    bounds = {"fair": 1, "bad": 2}
    reference = {
        "thresholds": {"loss.forward": bounds, "delay_ms": bounds, "loss.forwards": bounds},
        "alerts": {"outcome": {}, "path": {}, "jitter_ms": {"count": 1}, "loss": {"change": 3}},
    }
    told = {fault.pointer: fault.detail for fault in figure_faults("latency", reference)}
    assert list(told) == [
        "/reference/thresholds/delay_ms",
        "/reference/thresholds/loss.forwards",
        "/reference/alerts/path",
        "/reference/alerts/jitter_ms",
    ]
    assert "delay_p95_ms" in told["/reference/thresholds/delay_ms"]
    assert "loss.forward" in told["/reference/thresholds/loss.forwards"]
    assert "would never be raised" in told["/reference/alerts/jitter_ms"]


def test_tests_of_others_and_other_references_are_taken() -> None:
    """Nothing is known of the figures of a plug-in, nor of what else stands in a reference."""
    assert list(figure_faults("theirs", {"thresholds": {"any": {}}})) == []
    assert list(figure_faults("latency", "text")) == []
    assert list(figure_faults("latency", {"thresholds": 3, "alerts": None})) == []
    assert list(figure_faults("http", {"thresholds": {"phase_ms.connect": {}}})) == []
    assert list(figure_faults("trace", {"alerts": {"path": {"count": 1}}})) == []
