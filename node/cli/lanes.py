"""Draw a timeline in characters: a lane per scheduling class, more where runs overlap. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.cli.times import clock_time
from node.model.times import MINUTE

_MARKS = {
    "finished": "█",
    "running": "▓",
    "merging": "▓",
    "scheduled": "░",
    "held": "░",
    "set-aside": "░",
    "waiting": "·",
    "reserved": "▒",
}
_LOST = "✗"
_LANES_MAX = 4
_TICK_COLUMNS = 8
_STEPS = tuple(minutes * MINUTE for minutes in (1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440))
LEGEND = "█ measured  ▓ running  ░ planned  · no time yet  ✗ did not happen  ▒ reserved  │ now"


@dataclass(frozen=True)
class Bar:
    """A run on the timeline, or reserved time in a lane of its own."""

    scheduling_class: str
    state: str
    starts_at: int
    ends_at: int


@dataclass(frozen=True)
class Frame:
    """The time span to draw, and its width in columns."""

    starts_at: int
    ends_at: int
    width: int

    def column(self, instant: int) -> int:
        """Return the column of an instant, or the nearest one if it is outside the frame."""
        share = (instant - self.starts_at) / max(1, self.ends_at - self.starts_at)
        return min(self.width - 1, max(0, int(share * self.width)))


def timeline_lines(bars: Sequence[Bar], frame: Frame, now: int) -> list[str]:
    """Return the lines of the picture: a scale, then the lanes of each class that has runs."""
    classes = list(dict.fromkeys(bar.scheduling_class for bar in bars))
    margin = max(map(len, classes), default=0) + 2
    lines = [" " * margin + _scale(frame)]
    for name in sorted(classes):
        rows = _rows([bar for bar in bars if bar.scheduling_class == name], frame)
        for number, row in enumerate(rows):
            heading = name if number == 0 else ""
            lines.append(heading.ljust(margin) + _with_now(row, frame, now))
    return lines


def _scale(frame: Frame) -> str:
    """Return the scale: round times of day, each beginning at its column."""
    least = (frame.ends_at - frame.starts_at) * _TICK_COLUMNS // frame.width
    step = next((step for step in _STEPS if step >= least), _STEPS[-1])
    line = ""
    for instant in range(-(-frame.starts_at // step) * step, frame.ends_at, step):
        column = frame.column(instant)
        if len(line) < column <= frame.width - len("00:00") or not column:
            line = line.ljust(column) + clock_time(instant)[:5]
    return line


def _rows(bars: Sequence[Bar], frame: Frame) -> list[str]:
    """Draw each bar in the first row that is free then, or in the last row if none is."""
    rows: list[list[str]] = []
    ends: list[int] = []
    for bar in sorted(bars, key=lambda bar: (bar.starts_at, bar.ends_at)):
        free = next((n for n, end in enumerate(ends) if end <= bar.starts_at), None)
        if free is None and len(rows) < _LANES_MAX:
            rows.append([" "] * frame.width)
            ends.append(0)
            free = len(rows) - 1
        row = len(rows) - 1 if free is None else free
        ends[row] = max(ends[row], bar.ends_at)
        first, last = frame.column(bar.starts_at), frame.column(bar.ends_at - 1)
        mark = _MARKS.get(bar.state, _LOST)
        rows[row][first : last + 1] = mark * (last + 1 - first)
    return ["".join(row) for row in rows]


def _with_now(row: str, frame: Frame, now: int) -> str:
    column = frame.column(now)
    if not frame.starts_at <= now < frame.ends_at or row[column] != " ":
        return row.rstrip()
    return (row[:column] + "│" + row[column + 1 :]).rstrip()
