"""The latest figures of each task, and how /metrics shows them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from node.execution import latest_results
from node.execution.latest_results import LatestResults
from node.model import times
from node.model.samples import Sample
from node.operation import metrics
from tests.support.clocks import START, ManualClock


def samples(value: float, task: str = "t", count: int = 1) -> list[Sample]:
    """Return samples of different series."""
    return [
        Sample("parley_result_loss", (("hop", str(number)), ("task", task)), value, "1")
        for number in range(count)
    ]


def test_only_the_last_is_kept() -> None:
    """New figures of a task replace its old ones, and disappear after a day."""
    kept = LatestResults()
    kept.keep(UUID(int=1), START, samples(0.5, count=100))
    kept.keep(UUID(int=1), START + 1, samples(0.25, count=1))
    assert [(at, one.value) for at, one in kept.samples(START + 2)] == [(START + 1, 0.25)]
    assert list(kept.samples(START + 2 + times.DAY)) == []


def test_what_is_older_than_twice_the_interval_is_stale() -> None:
    """Its values are shown no more, and its judgement is stale (7), until it measures again."""
    kept, task = LatestResults(), UUID(int=1)
    good = Sample("parley_result_judgement", (("task", "t"),), 0.0, "1")
    for at in (START, START + 10 * times.MINUTE):
        kept.keep(task, at, [good, *samples(0.5)], times.MINUTE)
        on_time = [one.value for _, one in kept.samples(at + 2 * times.MINUTE)]
        late = [(one.name, one.value) for _, one in kept.samples(at + 2 * times.MINUTE + 1)]
        assert (on_time, late) == ([0.0, 0.5], [("parley_result_judgement", 7.0)])


@pytest.mark.nightly
def test_there_are_never_too_many() -> None:
    """Samples per task and tasks are bounded; the task updated longest ago is dropped."""
    kept = LatestResults()
    for number in range(latest_results.TASKS_MAX + 5):
        kept.keep(UUID(int=number), START, samples(number, count=latest_results.SAMPLES_MAX + 1))
    values = [one.value for _, one in kept.samples(START)]
    assert len(values) == latest_results.TASKS_MAX * latest_results.SAMPLES_MAX
    assert min(values) == 5


def test_metrics_show_them_with_their_age() -> None:
    """Metrics have the names and labels of remote write, and their age."""
    kept = LatestResults()
    kept.keep(UUID(int=1), START, samples(0.5))
    node: Any = SimpleNamespace(collector=SimpleNamespace(latest=kept), clock=ManualClock())
    registry = CollectorRegistry()
    registry.register(metrics._Results(node))
    text = generate_latest(registry).decode()
    assert 'parley_result_loss{hop="0",task="t"} 0.5' in text
    assert 'parley_result_time_seconds{task="t"} 1.7960832e+09' in text
