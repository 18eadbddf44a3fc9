"""Rules for Prometheus that say what the thresholds of a mesh file say. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from node.mesh.document import Measure, MeshDocument
from node.model import times
from node.model.samples import samples_of
from node.model.wire.alerts import AlertTerms
from node.model.wire.meshes import Threshold

_UNITS = (("_ms", "ms"), ("_bps", "bit/s"), ("_s", "s"), ("days_left", "days"))
_WAYS = frozenset({"forward", "backward", "round_trip"})
_INTERVAL = 10 * times.MINUTE
"""The interval that is assumed of what has none in the file."""


def prometheus_rules(document: MeshDocument) -> str:
    """Return a file of rules (YAML), one rule for each threshold of the entries of a mesh file.

    ``for`` is as long as it takes for as many runs to end as raise an alert of the node itself.
    """
    lines = [f"# The thresholds of mesh {document.name}: parley mesh rules", "groups:"]
    lines += [f"  - name: parley-mesh-{document.name}", "    rules:"]
    found = [
        line
        for measure in document.measure
        for name, threshold in measure.thresholds.items()
        for line in _rule_lines(document, measure, name, threshold)
    ]
    return "\n".join(lines + found if found else [lines[0], "groups: []"]) + "\n"


def _rule_lines(
    document: MeshDocument, measure: Measure, name: str, threshold: Threshold
) -> Iterator[str]:
    terms = measure.alerts.get(name, AlertTerms())
    if not terms.count:
        return
    fair = terms.at == "fair"
    series, bound = _series(document, measure, name, threshold.fair if fair else threshold.bad)
    compared = "<=" if threshold.bad < threshold.fair else ">="
    title = "".join(word.capitalize() for word in re.split(r"\W|_", f"{measure.label}_{name}"))
    lasting = _interval(document, measure) * max(0, terms.count - 1)
    yield f"      - alert: Parley{title}"
    yield f"        expr: {json.dumps(f'{series} {compared} {bound:g}')}"
    if lasting:
        yield f"        for: {lasting // times.SECOND}s"
    severity = "warning" if fair else "critical"
    yield f"        labels: {{severity: {severity}, mesh: {document.name}}}"
    yield "        annotations:"
    where = "{{ $labels.source }} → {{ $labels.dest }}"
    yield f"          summary: {json.dumps(f'{measure.label} {where}: {name}', ensure_ascii=False)}"
    limit = f"{terms.at} from {threshold.fair if fair else threshold.bad:g} on"
    value = "It is {{ $value }}"
    yield f"          description: {json.dumps(f'{value}; the mesh file says {limit}.')}"


def _series(document: MeshDocument, measure: Measure, name: str, bound: float) -> tuple[str, float]:
    """Return the series of a figure with its labels, and a bound in its unit."""
    base, _, label = name.partition(".")
    unit = next((unit for end, unit in _UNITS if base.endswith(end)), "1")
    labels = {"direction": label} if label in _WAYS else {}
    test = document.tests[measure.test].type if measure.test in document.tests else measure.test
    example = {
        "succeeded": True,
        "test": {"type": test},
        "reference": {"mesh": document.name},
        "metrics": [{"name": base, "value": bound, "unit": unit, "labels": labels}],
    }
    *_, sample = samples_of(example)
    chosen = ",".join(f"{key}={json.dumps(value)}" for key, value in sample.labels)
    return f"{sample.name}{{{chosen}}}", sample.value


def _interval(document: MeshDocument, measure: Measure) -> int:
    schedule = document.schedules.get(measure.schedule or "")
    return (schedule.repeat if schedule is not None else None) or _INTERVAL
