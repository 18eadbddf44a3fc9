"""Rules for Prometheus from the thresholds of a mesh file."""

from __future__ import annotations

from node.mesh.document import parse
from node.mesh.rules import prometheus_rules

FILE = """
name = "lab"

[groups]
all = ["a", "b"]

[tests.latency]
type = "latency"

[schedules.often]
repeat = "PT5M"

[[measure]]
shape = "full-mesh"
members = "all"
test = "latency"
schedule = "often"
thresholds."loss.forward" = { fair = 0.001, bad = 0.01 }
thresholds.delay_median_ms = { fair = 50, bad = 100 }
alerts."loss.forward" = { count = 3, of = 5 }
alerts.delay_median_ms = { at = "fair", count = 1 }
"""
RULES = """\
# The thresholds of mesh lab: parley mesh rules
groups:
  - name: parley-mesh-lab
    rules:
      - alert: ParleyLatencyLossForward
        expr: "parley_result_loss_ratio{direction=\\"forward\\",mesh=\\"lab\\",test=\\"latency\\"} >= 0.01"
        for: 600s
        labels: {severity: critical, mesh: lab}
        annotations:
          summary: "latency {{ $labels.source }} → {{ $labels.dest }}: loss.forward"
          description: "It is {{ $value }}; the mesh file says bad from 0.01 on."
      - alert: ParleyLatencyDelayMedianMs
        expr: "parley_result_delay_median_seconds{mesh=\\"lab\\",test=\\"latency\\"} >= 0.05"
        labels: {severity: warning, mesh: lab}
        annotations:
          summary: "latency {{ $labels.source }} → {{ $labels.dest }}: delay_median_ms"
          description: "It is {{ $value }}; the mesh file says fair from 50 on."
"""  # noqa: E501 - a file of others' form


def _rules(text: str) -> str:
    parsed = parse(text, toml=True)
    assert parsed.document is not None
    assert not parsed.faults
    return prometheus_rules(parsed.document)


def test_each_threshold_is_a_rule_in_the_units_of_prometheus() -> None:
    """Names and bounds are those of the series of results, and runs that count make the time."""
    assert _rules(FILE) == RULES


def test_a_file_without_thresholds_gives_no_rules() -> None:
    """A threshold whose alert is switched off gives none either."""
    without = "\n".join(line for line in FILE.splitlines() if not line.startswith("thresholds"))
    told = _rules("\n".join(it for it in without.splitlines() if not it.startswith("alerts")))
    assert told.endswith("\ngroups: []\n")
    off = FILE.replace("count = 3, of = 5", "count = 0")
    assert "LossForward" not in _rules(off)
