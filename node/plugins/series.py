"""Checks whether series can be made of the figures that a plugin returns. Pure.

A faulty third-party plugin must not keep anyone from reading the runs of other plugins, so figures
are checked before they are stored, and once more before they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from node.plugins.contracts import Metric


def faults_of(metrics: Iterable[object]) -> Iterator[str]:
    """Yield the fault of each bad figure, for a sentence that begins with the plugin's name."""
    return (fault for each in metrics if (fault := _fault_of(each)) is not None)


def usable_metrics(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return the metrics that can be stored, sent and read again."""
    return tuple(each for each in metrics if _fault_of(each) is None)


def _fault_of(metric: object) -> str | None:
    if not isinstance(metric, Metric):
        return f"returned {metric!r} as a figure, not a Metric"[:200]
    name: object = metric.name
    unit: object = metric.unit
    labels: object = metric.labels
    if not isinstance(name, str) or not name:
        return f"gave a figure the name {name!r}"[:200]
    if not _is_number(metric.value):
        return f"gave {name!r} the value {metric.value!r}, which is not a number"[:200]
    if not isinstance(unit, str):
        return f"gave {name!r} the unit {unit!r}, which is not a text"[:200]
    if not isinstance(labels, Mapping) or not all(
        isinstance(word, str) for pair in labels.items() for word in pair
    ):
        return f"gave {name!r} the labels {labels!r}, which are not texts"[:200]
    return None


def _is_number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond what any database can hold
        return False
