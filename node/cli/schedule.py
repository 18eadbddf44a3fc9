"""``parley schedule``: the node's timeline, as a picture on a terminal and as a list.

The picture has a lane for each scheduling class, and more where runs overlap.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from node.cli.groups import CommandGroup
from node.cli.invocation import global_options
from node.cli.listing import expected_members
from node.cli.options import options
from node.cli.output import Column, OutputWriter, Record, RecordLayout
from node.cli.references import short
from node.cli.session import ReadingSession, reads_node, run_reading
from node.cli.times import PAST_MOMENT, clock_time, local_time_text
from node.model import times
from node.model.moments import Moment

if TYPE_CHECKING:
    from node.client.answers import Members
    from node.client.session import NodeSession

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
_STEPS = tuple(
    minutes * times.MINUTE for minutes in (1, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)
)
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


ENTRY = RecordLayout(
    "run,task,headline,test,state,scheduling_class,priority,starts_at,ends_at,participants,"
    "summary,reason",
    Column("run", lambda entry: short(entry["run"] or entry["reservation"]), whole=True),
    Column("state", lambda entry: entry["state"], whole=True),
    Column("class", lambda entry: entry["scheduling_class"], whole=True, optional=True),
    Column("what", lambda entry: entry["headline"]),
    Column("start", lambda entry: local_time_text(entry["starts_at"]), whole=True),
    Column("end", lambda entry: local_time_text(entry["ends_at"])[11:], whole=True),
    Column("result or reason", lambda entry: entry["summary"] or entry["reason"] or ""),
    empty="Nothing in this time. Show more: parley schedule --from -1d --to +1d, "
    "or measure something: parley rtt HOST",
    model="node.model.wire.runs:ScheduleEntry",
)

_MARGIN = 20
_NARROWEST = 20
_ENTRIES_MAX = 20_000
"""Most runs that are read of one span."""


@dataclass(frozen=True)
class ScheduleSpan:
    """A span of a node's timeline, and the node's time when it was read."""

    now: int
    starts_at: int
    ends_at: int
    entries: tuple[Members, ...]
    complete: bool
    """False if there are more than are read of one span."""
    reserved: tuple[Members, ...] = ()


def _change_reason(change: Record) -> str:
    winner = f" (run {short(change['displaced_by'])})" if change["displaced_by"] else ""
    return f"{change['reason'] or ''}{winner}"


CHANGE = RecordLayout(
    "change,run,task,headline,test,scheduling_class,priority,starts_at,ends_at,was_starts_at,"
    "changed_at,participants,reason,displaced_by",
    Column("change", lambda change: change["change"], whole=True),
    Column("run", lambda change: short(change["run"]), whole=True),
    Column("what", lambda change: change["headline"]),
    Column("start", lambda change: local_time_text(change["starts_at"]), whole=True),
    Column("was", lambda change: local_time_text(change["was_starts_at"])[11:], whole=True),
    Column("at", lambda change: local_time_text(change["changed_at"]), whole=True),
    Column("why", _change_reason),
    empty="Nothing has changed. Look further back: parley schedule diff 1d",
    key="run",
    model="node.model.wire.runs:ScheduleChange",
)


_span_options = options("""
    --from TIME as starts  Beginning [an hour ago].
    --to TIME as ends      End [in six hours].
""")


@click.group("schedule", cls=CommandGroup, invoke_without_command=True)
@_span_options
@click.option("--as-of", type=PAST_MOMENT, help="As it stood then: 2h (ago), 10:05 [now].")
@global_options
@click.pass_context
def schedule(
    context: click.Context, starts: Moment | None, ends: Moment | None, as_of: Moment | None
) -> None:
    """Show past, current and future runs on the node, by their start.

    \b
      parley schedule --from -1d --to +1d
      parley schedule --as-of 2h              # what was booked two hours ago
      parley schedule diff 2h                 # what has changed since

    What was booked at an earlier time is told from the runs that the node still has. It deletes
    those that are over after a while (PARLEY_KEEP_FINISHED, PARLEY_KEEP_FAILED), and keeps no
    record of time that was only held, nor of reservations that were removed.
    """  # noqa: D301 - click's mark for lines to keep
    if context.invoked_subcommand is not None:
        if starts or ends or as_of:
            raise click.UsageError(f"give options behind {context.invoked_subcommand}")
    else:
        context.exit(run_reading(context, lambda session: _show(session, starts, ends, as_of)))


async def _show(
    session: ReadingSession, starts: Moment | None, ends: Moment | None, as_of: Moment | None
) -> None:
    now = session.clock.now()
    instants = (each.at(now) if each else None for each in (starts, ends, as_of))
    span = await read_span(session.reader, *instants)
    with expected_members():
        _print(session.output, span)
    if not span.complete:
        session.progress.note("There are more; choose a shorter time with --from and --to.")


def _print(output: OutputWriter, span: ScheduleSpan) -> None:
    shown = span.entries or span.reserved
    if output.terminal and output.format == "table" and shown:
        output.print_text("\n".join(picture(span, shutil.get_terminal_size().columns)) + "\n")
    records: list[Record] = list(span.entries)
    if output.format != "ids":
        records += [_reserved_entry(each) for each in span.reserved]
        records.sort(key=lambda entry: times.parse_instant(entry["starts_at"]))
    output.print_list(records, ENTRY)


async def read_span(
    reader: NodeSession,
    starts: int | None = None,
    ends: int | None = None,
    as_of: int | None = None,
) -> ScheduleSpan:
    """Return a span of the node's timeline, in the order of starts; page by page.

    With ``as_of``, as it stood then.
    """
    then = {"as_of": _instant(as_of)}
    query = {"from": _instant(starts), "to": _instant(ends), **then}
    read = await reader.document("/schedule", query)
    with expected_members():
        now, begins, ceases = (times.parse_instant(read[name]) for name in ("now", "from", "to"))
        reserved, entries = tuple(read["reserved"] or ()), list(read["items"])
    # Without these two, later pages would be those of a span that begins later.
    query = {"from": _instant(begins), "to": _instant(ceases), **then}
    while (cursor := read["next"]) is not None and len(entries) < _ENTRIES_MAX:
        read = await reader.document("/schedule", {**query, "cursor": cursor})
        entries += read["items"] or ()
    return ScheduleSpan(now, begins, ceases, tuple(entries), cursor is None, reserved)


def _instant(instant: int | None) -> str | None:
    return None if instant is None else times.format_instant(instant)


@schedule.command("diff")
@click.argument("since", required=False, type=PAST_MOMENT, metavar="[T1]")
@click.argument("until", required=False, type=PAST_MOMENT, metavar="[T2]")
@_span_options
@reads_node
async def diff(
    session: ReadingSession,
    since: Moment | None,
    until: Moment | None,
    starts: Moment | None,
    ends: Moment | None,
) -> None:
    """Show which runs were added, moved, displaced, cancelled or missed from T1 to T2.

    \b
      parley schedule diff                    # in the last hour
      parley schedule diff 1d 2h              # from a day ago to two hours ago
      parley schedule diff 2026-12-01T10:00:00Z --from now --to +1d

    T1 and T2 are 2h (ago), 10:05 or yesterday; T2 is now unless given. --from and --to choose the
    time of the runs. A run was moved if its slot is booked again at another time. Runs that were
    booked and lost between the two times are not shown.
    """  # noqa: D301 - click's mark for lines to keep
    now = session.clock.now()
    given = {"since": since, "until": until, "from": starts, "to": ends}
    query = {name: _instant(each.at(now)) for name, each in given.items() if each}
    told = await session.reader.document("/schedule/changes", query)
    with expected_members():
        session.output.print_list(told["items"] or (), CHANGE)
    if not told["complete"]:
        session.progress.note("There are more; choose a shorter time with --from and --to.")
    if times.parse_instant(told["since"]) < times.parse_instant(told["kept_since"]):
        session.progress.note(
            f"! Runs that ended before {local_time_text(told['kept_since'])} may have been deleted."
        )


def _reserved_entry(span: Record) -> dict[str, Any]:
    """Return a reserved span in the form of an entry of the schedule, without a run."""
    from node.model.reasons import reserved  # slow to load

    ends_at = times.parse_instant(span["ends_at"])
    why = reserved(span["kind"], span["name"], span["owner"], span["reservation"], ends_at)
    entry = dict.fromkeys(("run", "task", "priority", "summary"))
    return entry | {
        "reservation": span["reservation"],
        "headline": f"{span['kind']}  {span['name']}",
        "test": span["kind"],
        "state": "reserved",
        "scheduling_class": "all",
        "starts_at": span["starts_at"],
        "ends_at": span["ends_at"],
        "participants": [],
        "reason": why,
    }


def picture(span: ScheduleSpan, columns: int) -> list[str]:
    """Return the lines of a drawing of the timeline, one lane for each class, as wide as asked."""
    bars = [_bar(entry, entry["scheduling_class"], entry["state"]) for entry in span.entries]
    bars += [_bar(each, "reserved", "reserved") for each in span.reserved]
    frame = Frame(span.starts_at, span.ends_at, max(_NARROWEST, columns - _MARGIN))
    return [*timeline_lines(bars, frame, span.now), LEGEND]


def _bar(entry: Record, lane: str, state: str) -> Bar:
    begins, ends = (times.parse_instant(entry[name]) for name in ("starts_at", "ends_at"))
    return Bar(lane, state, begins, ends)
