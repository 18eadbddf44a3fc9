"""The latest figures of each task, and how /metrics shows them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

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
