"""Results as samples of time series, for Prometheus and OpenTelemetry. Pure.

A series is identified by its name, ``parley_result_<metric>``, and by labels: ``test``, ``task``,
``source`` and ``dest`` (from whom to whom is measured), ``participants`` (names, with commas),
``target`` (the spec's ``dest``, if it has one), ``mesh`` and ``campaign`` where there are any, and
the metric's own. Each outcome also has ``parley_result_succeeded``, 1, or 0 if there is no result
or nothing arrived, and ``parley_result_judgement``, the place of its judgement among those of
:class:`~node.model.outcome.Judgement`: 0 good, 1 fair, 2 bad, 3 no-answer, 4 failed, 5 missed, 6
not-planned, 7 stale.

Names and values are in the base units of Prometheus (https://prometheus.io/docs/practices/naming/):
``rtt_median_ms`` becomes ``rtt_median_seconds``. Rates stay in bits per second (``_bps``), as
networks are measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from node.model.headline import direction
from node.model.outcome import LOSS, Judgement

_FOREIGN = re.compile(r"[^a-zA-Z0-9_]")
_VALUE_MAX = 200
_JUDGEMENT = "parley_result_judgement"
_DAY_S = 86_400

_BASE_UNITS = {
    "ms": ("_ms", "_seconds", "s", 1e-3),
    "s": ("_s", "_seconds", "s", 1.0),
    "days": ("", "_seconds", "s", _DAY_S),
}
"""By unit of a metric: the end of its name, that of the series, its unit, and the factor."""


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
    common = _common_labels(document)
    judgement = _judgement(document)
    labels = _sorted_labels(common)
    succeeded = document["succeeded"] and judgement is not Judgement.NO_ANSWER
    samples = [Sample("parley_result_succeeded", labels, float(succeeded), "1")]
    if judgement is not None:
        samples.append(Sample(_JUDGEMENT, labels, _place(judgement), "1"))
    metrics = document.get("metrics")
    for metric in metrics if isinstance(metrics, list) else ():
        sample = _sample(metric, common)
        if sample is not None:
            samples.append(sample)
    return _first_of_each(samples)


def stale_samples(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield what is left of samples that are older than twice the interval of their task."""
    for each in samples:
        if each.name == _JUDGEMENT:
            yield replace(each, value=_place(Judgement.STALE))


def _place(judgement: Judgement) -> float:
    return float(list(Judgement).index(judgement))


def _judgement(document: Mapping[str, Any]) -> Judgement | None:
    outcome = document.get("outcome")
    word = outcome.get("judgement") if isinstance(outcome, Mapping) else None
    return Judgement(word) if isinstance(word, str) and word in set(Judgement) else None


def _common_labels(document: Mapping[str, Any]) -> dict[str, str]:
    test = document.get("test")
    test = test if isinstance(test, Mapping) else {}
    spec = test.get("spec")
    participants = document.get("participants")
    names = [
        str(one.get("name"))
        for one in (participants if isinstance(participants, list) else ())
        if isinstance(one, Mapping)
    ]
    spec = spec if isinstance(spec, Mapping) else {}
    reference = document.get("reference")
    mesh = reference.get("mesh") if isinstance(reference, Mapping) else None
    source, dest = direction(names, spec)
    return {
        "test": str(test.get("type") or ""),
        "task": str(document.get("task") or ""),
        "participants": ",".join(names),
        "source": source,
        "dest": dest,
        "target": str(spec.get("dest") or ""),
        "mesh": mesh if isinstance(mesh, str) else "",
        "campaign": str(document.get("campaign") or ""),
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
    given = name_of(name), float(value or 0), str(metric.get("unit") or "1")
    base, amount, unit = _in_base_unit(*given)
    return Sample(f"parley_result_{base}", _sorted_labels({**own_labels, **common}), amount, unit)


def _in_base_unit(name: str, value: float, unit: str) -> tuple[str, float, str]:
    """Return the name, value and unit of a metric as Prometheus wants them."""
    if name == LOSS:
        return f"{name}_ratio", value, unit
    if unit not in _BASE_UNITS:
        return name, value, unit
    end, base_end, base_unit, factor = _BASE_UNITS[unit]
    return name.removesuffix(end) + base_end, value * factor, base_unit


def name_of(text: str) -> str:
    """Return a valid Prometheus name for a metric or a label."""
    name = _FOREIGN.sub("_", text) or "_"
    return f"_{name}" if name[0].isdecimal() or name.startswith("__") else name


def _sorted_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the labels by name; one without a value equals an absent one, and is left out."""
    return tuple(sorted((name, value[:_VALUE_MAX]) for name, value in labels.items() if value))


def _first_of_each(samples: Iterable[Sample]) -> list[Sample]:
    """Return one sample per series, since a series has one value at one instant."""
    by_series: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        by_series.setdefault((sample.name, sample.labels), sample)
    return list(by_series.values())
