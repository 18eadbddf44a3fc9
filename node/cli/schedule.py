"""``parley schedule``: the node's timeline, as a picture on a terminal and as a list."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import click

from node.cli.lanes import LEGEND, Bar, Frame, lanes
from node.cli.output import Column, RecordLayout, records_of
from node.cli.references import short
from node.cli.session import Session, asks_node
from node.cli.times import MOMENT, Moment, local
from node.model import times
from node.model.reservations import in_words

if TYPE_CHECKING:
    from node.client.users import TimeSpan
    from node.model.wire.reservations import ReservedSpan

ENTRY = RecordLayout(
    model="node.model.wire.runs:ScheduleEntry",
    columns=(
        Column("run", lambda entry: short(entry["run"] or entry["reservation"]), whole=True),
        Column("state", lambda entry: entry["state"], whole=True),
        Column("class", lambda entry: entry["scheduling_class"], whole=True),
        Column("what", lambda entry: entry["headline"]),
        Column("start", lambda entry: local(entry["starts_at"]), whole=True),
        Column("end", lambda entry: local(entry["ends_at"])[11:], whole=True),
        Column("result or reason", lambda entry: entry["summary"] or entry["reason"] or ""),
    ),
    fields=(
        "run", "task", "headline", "test", "state", "scheduling_class", "priority",
        "starts_at", "ends_at", "participants", "summary", "reason",
    ),
    empty=(
        "Nothing in this time. Show more: parley schedule --from -1d --to +1d, "
        "or measure something: parley rtt HOST"
    ),
    key="run",
)  # fmt: skip

_MARGIN = 20
_NARROWEST = 20


@click.command("schedule")
@click.option("--from", "starts", type=MOMENT, help="Beginning [an hour ago].")
@click.option("--to", "ends", type=MOMENT, help="End [in six hours].")
@asks_node
async def schedule(session: Session, starts: Moment | None, ends: Moment | None) -> None:
    """Show past, current and future runs on the node, by their start."""
    now = session.clock.now()
    span = await session.client.schedule(
        starts.at(now) if starts else None, ends.at(now) if ends else None
    )
    shown = span.entries or span.reserved
    if session.output.terminal and session.output.format == "table" and shown:
        session.output.text("\n".join(picture(span, shutil.get_terminal_size().columns)) + "\n")
    records = records_of(span.entries)
    if session.output.format != "ids":
        records += [_reserved(each) for each in span.reserved]
        records.sort(key=lambda entry: times.parse_instant(entry["starts_at"]))
    session.output.many(records, ENTRY)
    if not span.complete:
        session.progress.note("There are more; choose a shorter time with --from and --to.")


def _reserved(span: ReservedSpan) -> dict[str, Any]:
    """Return reserved time as an entry among the runs: without a run, with a reservation."""
    why = in_words(span.kind, span.name, span.owner, span.reservation, span.ends_at)
    entry = dict.fromkeys(("run", "task", "priority", "summary"))
    return entry | {
        "reservation": str(span.reservation),
        "headline": f"{span.kind.value}  {span.name}",
        "test": span.kind.value,
        "state": "reserved",
        "scheduling_class": "all",
        "starts_at": times.format_instant(span.starts_at),
        "ends_at": times.format_instant(span.ends_at),
        "participants": [],
        "reason": why,
    }


def picture(span: TimeSpan, columns: int) -> list[str]:
    """Draw the lanes of a time span, as wide as the terminal."""
    bars = [
        Bar(entry.scheduling_class, entry.state, entry.starts_at, entry.ends_at)
        for entry in span.entries
    ]
    bars += [Bar("reserved", "reserved", r.starts_at, r.ends_at) for r in span.reserved]
    frame = Frame(span.starts_at, span.ends_at, max(_NARROWEST, columns - _MARGIN))
    return [*lanes(bars, frame, span.now), LEGEND]
