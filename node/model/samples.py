"""Results as samples of time series, for Prometheus and OpenTelemetry. Pure.

A series is identified by its name, ``parley_result_<metric>``, and by labels: ``test``, ``task``,
``participants`` (their names, with commas), ``target`` (the spec's ``dest``, if it has one), and
the metric's own. Each outcome also has ``parley_result_succeeded``, 1 or 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_FOREIGN = re.compile(r"[^a-zA-Z0-9_]")
_VALUE_MAX = 200


@dataclass(frozen=True)
class Sample:
    """One value of one series; ``labels`` are sorted by name, ``unit`` is that of the metric."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    unit: str


def samples_of(document: object) -> list[Sample]:
    """Return the samples of an archived document; none if it is not a valid one."""
    if not isinstance(document, Mapping) or not isinstance(document.get("succeeded"), bool):
        return []
    common = _common(document)
    samples = [
        Sample("parley_result_succeeded", _sorted(common), float(document["succeeded"]), "1")
    ]
    metrics = document.get("metrics")
    for metric in metrics if isinstance(metrics, list) else ():
        sample = _sample(metric, common)
        if sample is not None:
            samples.append(sample)
    return _first_of_each(samples)


def _common(document: Mapping[str, Any]) -> dict[str, str]:
    test = document.get("test")
    test = test if isinstance(test, Mapping) else {}
    spec = test.get("spec")
    participants = document.get("participants")
    names = [
        str(one.get("name"))
        for one in (participants if isinstance(participants, list) else ())
        if isinstance(one, Mapping)
    ]
    return {
        "test": str(test.get("type") or ""),
        "task": str(document.get("task") or ""),
        "participants": ",".join(names),
        "target": str(spec.get("dest") or "") if isinstance(spec, Mapping) else "",
    }


def _sample(metric: object, common: Mapping[str, str]) -> Sample | None:
    if not isinstance(metric, Mapping):
        return None
    name, value, labels = metric.get("name"), metric.get("value"), metric.get("labels")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(name, str) or not number or not math.isfinite(value or 0):
        return None
    own = labels if isinstance(labels, Mapping) else {}
    # A metric's own label must not replace one of the labels that identify the series.
    own_labels = {
        name_of(key) if key not in common else f"metric_{key}": str(own[key]) for key in own
    }
    unit = str(metric.get("unit") or "1")
    return Sample(
        f"parley_result_{name_of(name)}", _sorted({**own_labels, **common}), float(value or 0), unit
    )


def name_of(text: str) -> str:
    """Return a valid Prometheus name for a metric or a label."""
    name = _FOREIGN.sub("_", text) or "_"
    return f"_{name}" if name[0].isdecimal() or name.startswith("__") else name


def _sorted(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the labels by name; one without a value equals an absent one, and is left out."""
    return tuple(sorted((name, value[:_VALUE_MAX]) for name, value in labels.items() if value))


def _first_of_each(samples: Iterable[Sample]) -> list[Sample]:
    """Return one sample per series, since a series has one value at one instant."""
    by_series: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        by_series.setdefault((sample.name, sample.labels), sample)
    return list(by_series.values())
