"""Results as samples of time series."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.samples import name_of, samples_of
from node.plugins.archivers import prometheus

DOCUMENT: dict[str, Any] = {
    "task": "t",
    "succeeded": True,
    "test": {"type": "latency", "spec": {"dest": "b.example"}},
    "participants": [{"name": "a"}, {"name": "b"}],
    "metrics": [
        {"name": "loss", "value": 0.5, "unit": "1", "labels": {"direction": "forward", "task": "x"}}
    ],
}
COMMON = {
    "participants": "a,b",
    "source": "a",
    "dest": "b",
    "target": "b.example",
    "task": "t",
    "test": "latency",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def test_each_figure_is_a_sample() -> None:
    """Each figure is a sample whose identifying labels a metric's own labels cannot replace."""
    succeeded, loss = samples_of(DOCUMENT)
    assert (succeeded.name, dict(succeeded.labels), succeeded.value) == (
        "parley_result_succeeded",
        COMMON,
        1.0,
    )
    assert (loss.name, loss.value, loss.unit) == ("parley_result_loss_ratio", 0.5, "1")
    assert dict(loss.labels) == {**COMMON, "direction": "forward", "metric_task": "x"}
    assert list(loss.labels) == sorted(loss.labels)


@pytest.mark.parametrize(
    ("metric", "sample"),
    [
        (("rtt_median_ms", 12.5, "ms"), ("rtt_median_seconds", 0.0125, "s")),
        (("throughput_bps", 1e9, "bit/s"), ("throughput_bps", 1e9, "bit/s")),
        (("ttl_s", 300, "s"), ("ttl_seconds", 300, "s")),
        (("days_left", 2, "days"), ("days_left_seconds", 172_800, "s")),
        (("retransmits", 3, "1"), ("retransmits", 3, "1")),
    ],
)
def test_samples_are_in_base_units(
    metric: tuple[str, float, str], sample: tuple[str, float, str]
) -> None:
    """Names and values are in seconds and bits per second, whatever unit the metric has."""
    name, value, unit = metric
    document = {**DOCUMENT, "metrics": [{"name": name, "value": value, "unit": unit}]}
    made = samples_of(document)[1]
    assert (made.name, made.value, made.unit) == (f"parley_result_{sample[0]}", *sample[1:])


def test_samples_name_mesh_and_campaign() -> None:
    """A mesh's samples name the mesh, the campaign, and the direction of what is measured."""
    spec = {"dest": "b", "reverse": True}
    more = {"reference": {"mesh": "m"}, "campaign": "c", "test": {"type": "rtt", "spec": spec}}
    labels = dict(samples_of({**DOCUMENT, **more})[0].labels)
    assert (labels["mesh"], labels["campaign"]) == ("m", "c")
    assert (labels["source"], labels["dest"]) == ("b", "a")


def test_a_run_that_failed_has_one_sample() -> None:
    """A failed run has one sample, which says so."""
    [found] = samples_of({**DOCUMENT, "succeeded": False, "metrics": []})
    assert (found.name, found.value) == ("parley_result_succeeded", 0.0)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(DOCUMENT, JSON)) | JSON)
def test_whatever_a_transform_makes_is_read(document: Any) -> None:
    """Any document is accepted; names and labels are valid, and series are unique."""
    found = samples_of(document)
    for sample in found:
        assert re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", sample.name)
        assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) for name, _ in sample.labels)
    assert len({(sample.name, sample.labels) for sample in found}) == len(found)


@pytest.mark.parametrize(
    ("text", "name"), [("a.b", "a_b"), ("1a", "_1a"), ("__name__", "___name__"), ("", "_")]
)
def test_names_are_made_fit(text: str, name: str) -> None:
    """Characters that Prometheus does not accept are replaced."""
    assert name_of(text) == name


def test_of_two_values_at_one_instant_the_later_counts() -> None:
    """Only one of two values at one instant is kept, because Prometheus accepts only one."""
    low, high = (
        samples_of(json.loads(json.dumps(DOCUMENT).replace("0.5", text))) for text in ("0.1", "0.2")
    )
    made = prometheus.series_of([(2_000_500, low), (1_000_000, low), (2_000_900, high)], {"x": "y"})
    loss = next(
        values
        for series, values in made.items()
        if ("__name__", "parley_result_loss_ratio") in series
    )
    assert list(loss.items()) == [(1000, 0.1), (2000, 0.2)]
    assert all(("x", "y") in series for series in made)


def test_nothing_that_arrived_is_no_success() -> None:
    """A run to which nothing came back has a result, and its samples tell no success."""
    document = {**DOCUMENT, "outcome": {"judgement": "no-answer"}, "metrics": []}
    found = {each.name: each.value for each in samples_of(document)}
    assert found == {"parley_result_succeeded": 0.0, "parley_result_judgement": 3.0}
    strange = {**DOCUMENT, "outcome": {"judgement": []}, "metrics": []}
    assert [each.name for each in samples_of(strange)] == ["parley_result_succeeded"]
