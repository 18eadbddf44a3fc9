"""The report of a simulated world as a drawing: turns figures into the text of an SVG file. Pure.

The panels are stacked from top to bottom. Each has a function that builds it from the report alone:
everything drawn is in ``-o json`` too. A panel without data is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lead.simulation.fleet.drawing import panel
from lead.simulation.report import Report
from lead.simulation.series import PairDelivery, step_for
from lead.simulation.svg import (
    Scale,
    band,
    curve,
    document,
    element,
    group,
    label,
    line,
    rectangle,
    round_steps,
    tip,
)
from node.model.times import SECOND

WIDTH = 960
_LEFT, _RIGHT = 64, 16
_PLOT = 150
_HEADING = 34
_FOOT = 46
_TICKS_MAX = 12
_REASONS_SHOWN = 10
_ROW = 20
_CELL = 14
_LETTERS_MAX = 96

_STATES = {
    "failed": "bad",
    "unplaced": "late",
    "missed": "medium",
    "displaced": "soft",
    "cancelled": "gone",
}
_CLASSES = {"exclusive": "strong", "normal": "medium", "background": "soft"}
_SHADES = ((1.0, "good"), (0.95, "soft"), (0.8, "late"), (0.0, "bad"))
"""The colours of a pair: the one for the highest minimum share of delivered runs it reaches."""


@dataclass(frozen=True)
class Panel:
    """A part of the drawing and its height; its left edge is that of the file."""

    height: float
    content: str


Maker = Callable[[Report], Panel | None]
Shown = Callable[[float], str]


def draw_report(report: Report) -> str:
    """Return the whole drawing as the text of an SVG file."""
    panels = [panel for make in _PANELS if (panel := make(report)) is not None]
    parts = []
    y = 0.0
    for panel in panels:
        parts.append(group(panel.content, y=y))
        y += panel.height
    return document(WIDTH, y, report.title or "A simulated world", *parts)


def _summary_panel(report: Report) -> Panel:
    facts = [
        f"{report.nodes:,} nodes",
        f"{report.days:g} days",
        f"seed {report.seed}",
        f"{report.tasks:,} tasks",
        f"{report.promised:,} runs promised",
    ]
    if report.promised:
        facts.append(f"{report.delivered / report.promised:.2%} delivered")
    if report.violations:
        facts.append(f"{len(report.violations)} promises broken")
    title = label(_LEFT, 30, _short(report.title), "ink heading")
    return Panel(64, title + label(_LEFT, 52, ", ".join(facts)))


def _promises_panel(report: Report) -> Panel | None:
    periods = report.over_time.periods
    if not report.promised:
        return None
    lost = sorted({state for period in periods for state in period.not_delivered})
    kinds = [("delivered", "good"), *((state, _STATES.get(state, "gone")) for state in lost)]
    bars = [
        (
            f"{_length(period.after)}: {period.delivered:,} of {period.promised:,} delivered",
            [period.delivered, *(period.not_delivered.get(state, 0) for state in lost)],
        )
        for period in periods
    ]
    heading = f"Runs promised, by their nominal start, in each {_length(report.over_time.length)}"
    colours = [colour for _, colour in kinds]
    return _bars_panel(heading, colours, bars, _time_axis(report), _count, _legend(kinds))


def _reasons_panel(report: Report) -> Panel | None:
    reasons = report.not_delivered[:_REASONS_SHOWN]
    if not reasons:
        return None
    scale = Scale(0, max(reason.slots for reason in reasons), 0, 180)
    parts = [_heading("Why not; N stands for a node")]
    for number, reason in enumerate(reasons):
        y = _HEADING + number * _ROW
        kind = _STATES.get(reason.state, "gone")
        words = f"{reason.state}: {reason.reason}" if reason.state else reason.reason
        parts += [
            label(_LEFT - 8, y + 12, f"{reason.slots:,}", text_anchor="end"),
            rectangle(_LEFT, y + 2, max(1, scale(reason.slots)), _ROW - 6, kind, words),
            label(_LEFT + 8 + scale(reason.slots), y + 12, _short(words), "ink"),
        ]
    return Panel(_HEADING + len(reasons) * _ROW + 18, "".join(parts))


def _occupancy_panel(report: Report) -> Panel | None:
    periods = report.over_time.periods
    kinds = [occupancy.scheduling_class for occupancy in periods[0].occupancy]
    if not kinds:
        return None
    most = max(o.most for period in periods for o in period.occupancy)
    steps = round_steps(most)
    y = Scale(0, steps[-1], _HEADING + _PLOT, _HEADING)
    places = [_place(report, p.after + report.over_time.length / 2) for p in periods]
    parts = [
        _heading("How full the nodes were: the median one, and all from the least to the fullest"),
        _legend([(kind, _CLASSES.get(kind, "gone")) for kind in kinds]),
        *_value_axis(y, steps, _percent),
    ]
    for number, kind in enumerate(kinds):
        colour = _CLASSES.get(kind, "gone")
        shares = [period.occupancy[number] for period in periods]
        upper = [(x, y(share.most)) for x, share in zip(places, shares, strict=True)]
        lower = [(x, y(share.least)) for x, share in zip(places, shares, strict=True)]
        middle = [(x, y(share.median)) for x, share in zip(places, shares, strict=True)]
        parts += [band(upper, lower, colour), curve(middle, colour)]
    return Panel(_HEADING + _PLOT + _FOOT, "".join([*parts, *_time_axis(report)]))


def _occupancy_by_node_panel(report: Report) -> Panel | None:
    kinds = sorted({kind for node in report.by_node for kind in node.shares})
    if not kinds:
        return None
    nodes = sorted(report.by_node, key=lambda node: -sum(node.shares.values()))
    bars = [
        (
            f"{node.node}: " + ", ".join(f"{k} {share:.1%}" for k, share in node.shares.items()),
            [node.shares.get(kind, 0.0) for kind in kinds],
        )
        for node in nodes
    ]
    y = _HEADING + _PLOT + 16
    axis = [
        label(_LEFT, y, f"fullest: {nodes[0].node}"),
        label(WIDTH - _RIGHT, y, f"least: {nodes[-1].node}", text_anchor="end"),
    ]
    heading = "How full each node was; a second in which two runs were measured counts twice"
    legend = [(kind, _CLASSES.get(kind, "gone")) for kind in kinds]
    colours = [colour for _, colour in legend]
    return _bars_panel(heading, colours, bars, axis, _percent, _legend(legend))


def _waits_panel(report: Report) -> Panel | None:
    waiting = report.waiting
    if waiting is None:
        return None
    step = waiting.step
    bars = [
        (f"{_length(number * step)} to {_length((number + 1) * step)}: {runs:,} runs", [runs])
        for number, runs in enumerate(waiting.runs)
    ]
    half, nearly, longest = (
        _length(waited + SECOND) for waited in (waiting.median, waiting.nearly_all, waiting.longest)
    )
    summary = f"half waited less than {half}, 99 % less than {nearly}, all less than {longest}"
    whole = len(bars) * step
    axis = _duration_axis(Scale(0, whole, _LEFT, WIDTH - _RIGHT), whole)
    heading = "How long after their nominal starts the delivered runs began"
    foot = label(_LEFT, _HEADING + _PLOT + 35, summary)
    return _bars_panel(heading, ["strong"], bars, axis, _count, foot)


def _pairs_panel(report: Report) -> Panel | None:
    pairs = report.pairs
    if pairs is None:
        return None
    names = pairs.groups
    side = len(names) * _CELL
    places = {name: number for number, name in enumerate(names)}
    top = _HEADING + 22
    heading = f"Delivery by pair: {pairs.complete:,} of {pairs.count:,} got all their runs"
    parts = [
        _heading(heading),
        _legend([(_shade_name(number), kind) for number, (_, kind) in enumerate(_SHADES)], 30),
    ]
    for cell in pairs.cells:
        x = _LEFT + places[cell.one] * _CELL
        y = top + places[cell.other] * _CELL
        kind = next(kind for least, kind in _SHADES if cell.delivered >= least * cell.promised)
        parts.append(rectangle(x, y, _CELL - 1, _CELL - 1, kind, _pair_summary(cell)))
    for number, name in enumerate(names):
        if number % (1 + len(names) // 25) == 0:
            y = top + number * _CELL + _CELL - 3
            parts.append(label(_LEFT - 6, y, name, text_anchor="end"))
    worst = [_pair_summary(pair) for pair in pairs.worst]
    for number, text in enumerate(["Worst", *worst] if worst else []):
        kind = "muted" if number else "ink"
        parts.append(label(_LEFT + side + 32, top + 12 + number * _ROW, text, kind))
    return Panel(top + max(side, len(worst) * _ROW + _ROW) + 24, "".join(parts))


def _shares_panel(report: Report) -> Panel | None:
    return None if report.shares is None else Panel(*panel(report.shares))


_PANELS: Sequence[Maker] = (
    _summary_panel,
    _shares_panel,
    _promises_panel,
    _reasons_panel,
    _occupancy_panel,
    _occupancy_by_node_panel,
    _waits_panel,
    _pairs_panel,
)


def _bars_panel(
    heading: str,
    colours: Sequence[str],
    bars: Sequence[tuple[str, Sequence[float]]],
    axis: Iterable[str],
    shown: Shown,
    foot: str,
) -> Panel:
    """Return a panel of stacked bars over the whole width; ``bars`` are pairs of tip and parts."""
    steps = round_steps(max(sum(values) for _, values in bars))
    y = Scale(0, steps[-1], _HEADING + _PLOT, _HEADING)
    width = (WIDTH - _LEFT - _RIGHT) / len(bars)
    gap = min(1.0, width / 4)
    parts = [_heading(heading), *_value_axis(y, steps, shown), *axis, foot]
    for number, (summary, values) in enumerate(bars):
        x = _LEFT + number * width
        below = 0.0
        pieces = []
        for value, colour in zip(values, colours, strict=True):
            top = y(below + value)
            if value:
                pieces.append(rectangle(x, top, width - gap, y(below) - top, colour))
            below += value
        if pieces:
            parts.append(element("g", tip(summary), *pieces))
    return Panel(_HEADING + _PLOT + _FOOT, "".join(parts))


def _heading(text: str) -> str:
    return label(_LEFT, 20, text, "ink heading")


def _legend(kinds: Sequence[tuple[str, str]], y: float = _HEADING + _PLOT + 26) -> str:
    """Return the names with their colours; ``y`` defaults to the place below the axis."""
    parts = []
    x = float(_LEFT)
    for name, kind in kinds:
        parts += [rectangle(x, y, 10, 10, kind), label(x + 14, y + 9, name)]
        x += 30 + 7 * len(name)
    return "".join(parts)


def _value_axis(scale: Scale, steps: Sequence[float], shown: Shown) -> list[str]:
    parts = []
    for step in steps:
        y = scale(step)
        parts.append(line(_LEFT, y, WIDTH - _RIGHT, y))
        parts.append(label(_LEFT - 6, y + 4, shown(step), text_anchor="end"))
    return parts


def _place(report: Report, after: float) -> float:
    return Scale(0, _axis_length(report), _LEFT, WIDTH - _RIGHT)(after)


def _axis_length(report: Report) -> int:
    return len(report.over_time.periods) * report.over_time.length


def _time_axis(report: Report) -> list[str]:
    return _duration_axis(
        Scale(0, _axis_length(report), _LEFT, WIDTH - _RIGHT), _axis_length(report)
    )


def _duration_axis(scale: Scale, whole: int) -> list[str]:
    step = step_for(whole, _TICKS_MAX)
    y = _HEADING + _PLOT + 16
    return [
        label(scale(at), y, _length(at), text_anchor="middle" if at else "start")
        for at in range(0, whole + 1, step)
        if scale(at) < WIDTH - _RIGHT - 12 or at == 0
    ]


def _percent(share: float) -> str:
    return f"{share * 100:g} %"


def _count(runs: float) -> str:
    return f"{runs:,.0f}" if runs == int(runs) else ""


def _length(duration: int) -> str:
    """Format a duration in its two largest units: ``1 d 12 h``, ``1 min 30 s``; ``0`` below 1 s."""
    seconds = duration // SECOND
    parts = []
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, unit)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0"


def _shade_name(number: int) -> str:
    least = _SHADES[number][0]
    if not number:
        return "all"
    return f"at least {least:.0%}" if least else f"below {_SHADES[number - 1][0]:.0%}"


def _pair_summary(pair: PairDelivery) -> str:
    names = pair.one if pair.one == pair.other else f"{pair.one} and {pair.other}"
    return f"{names}: {pair.delivered:,} of {pair.promised:,}, {pair.delivered / pair.promised:.1%}"


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS_MAX else text[: _LETTERS_MAX - 1] + "…"
