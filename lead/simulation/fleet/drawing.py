"""The drawing of a fleet's report: measured values beside their bounds, set by set. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from lead.simulation.fleet.report import FleetCheck, FleetReport, FleetTrial
from lead.simulation.svg import Scale, document, group, label, rectangle

WIDTH = 960
_ROW = 18
_NAME = 40
_BARS = 470
_END = 900
_HEADING = 52
_LINE = 120
"""Maximum number of characters per line of a promise."""


def draw_fleet_report(report: FleetReport) -> str:
    """Return the whole drawing as the text of an SVG file."""
    facts = f"{report.nodes} nodes, seed {report.seed}, shares over {report.runs:,} runs"
    broken = len(report.violations)
    parts = [
        label(_NAME, 30, report.title, "ink heading"),
        label(_NAME, 50, f"{facts}; {broken} promises broken" if broken else facts),
        _legend(),
    ]
    y = 90.0
    for trial in report.trials:
        if trial.checks:
            height, content = panel(trial)
            parts.append(group(content, y=y))
            y += height
    return document(WIDTH, y + 20, report.title, *parts)


def _legend() -> str:
    kinds = [("holds", "good"), ("does not", "bad"), ("not promised", "gone"), ("bounds", "strong")]
    parts = []
    x = float(_NAME)
    for name, kind in kinds:
        parts += [rectangle(x, 64, 10, 10, kind), label(x + 14, 73, name)]
        x += 40 + 7 * len(name)
    return "".join(parts)


def panel(trial: FleetTrial) -> tuple[float, str]:
    """Return the height and the content of a trial's panel."""
    parts = [label(_NAME, 18, trial.name, "ink heading")]
    lines = _wrapped_lines(trial.promise)
    parts += [label(_NAME, 36 + 16 * number, text) for number, text in enumerate(lines)]
    y = _HEADING + 16.0 * (len(lines) - 1)
    for policy, of_set in groupby(trial.checks, key=lambda check: check.policy):
        parts.append(label(_NAME, y + 13, policy, "ink"))
        y += _ROW
        for _, alike in groupby(of_set, key=lambda check: check.unit):
            listed = list(alike)
            scale = Scale(0, max(map(_axis_end, listed)) or 1, _BARS, _END)
            for check in listed:
                parts.append(_bar(check, y, scale))
                y += _ROW
    return y + 24, "".join(parts)


def _axis_end(check: FleetCheck) -> float:
    return max(check.found, check.promised, check.least or 0, check.most or 0)


def _bar(check: FleetCheck, y: float, scale: Scale) -> str:
    free = check.least is None and check.most is None
    kind = "gone" if free else "good" if check.holds else "bad"
    tooltip = f"{check.found:g} {check.unit}, promised {check.promised:g}"
    begin = _BARS
    parts = [
        label(_NAME + 16, y + 13, check.who),
        label(_BARS - 8, y + 13, f"{check.found:g} {check.unit}", text_anchor="end"),
        rectangle(begin, y + 4, max(1, scale(check.found) - begin), 9, kind, tooltip),
    ]
    parts += [
        rectangle(scale(bound) - 1, y + 1, 2, 15, "strong", f"{bound:g}")
        for bound in (check.least, check.most)
        if bound is not None
    ]
    return "".join(parts)


def _wrapped_lines(text: str) -> Sequence[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > _LINE:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
