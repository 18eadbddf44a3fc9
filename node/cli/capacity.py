"""``parley capacity``: how full each hour of the node is, by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from node.cli.listing import expected_members
from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout, plural
from node.cli.session import ReadingSession, reads_node
from node.cli.times import local_time_text
from node.model import times
from node.model.classes import SchedulingClass
from node.model.moments import Moment
from node.model.times import duration_text

_AHEAD = times.DAY
_BAR = 20
_PIECES_MAX = 2_000
"""Maximum number of pieces that a node tells at once."""


def _share_column(name: str) -> Column:
    def cell(piece: Record) -> str:
        share = piece["busy"].get(name, 0)
        return f"{100 * share:.0f} %" if share else ""

    return Column(name, cell, whole=True, optional=True)


def _runs_text(piece: Record) -> str:
    return ", ".join(f"{count} {state}" for state, count in piece["runs"].items())


def _bar(piece: Record) -> str:
    """Return a bar as long as the share of time in which no further exclusive run can be booked."""
    taken: float = piece["taken"]
    return "█" * round(_BAR * min(1.0, taken))


PIECE = RecordLayout(
    f"starts_at,ends_at,{','.join(f'busy.{name}' for name in SchedulingClass)},reserved",
    Column("from", lambda piece: local_time_text(piece["starts_at"]), whole=True),
    *map(_share_column, SchedulingClass),
    Column("", _bar, optional=True),
    Column("runs", _runs_text),
    Column("reserved", lambda piece: ", ".join(piece["reserved"]), optional=True),
    empty="Nothing was measured in this time, and nothing is booked.",
)


@click.command("capacity")
@options("--from TIME as starts  Beginning [the full hour before now].")
@options("--to TIME as ends  End [24 hours later].")
@options("--by DURATION  Length of a piece [1h].", default=times.HOUR)
@reads_node
async def capacity(
    session: ReadingSession, starts: Moment | None, ends: Moment | None, by: int
) -> None:
    """Show how full the node is: for each hour the occupied share by class, and what is booked.

    \b
      parley capacity                         # from this hour on, a day ahead
      parley capacity --from -1d --to now     # yesterday
      parley capacity --to +1h --by 5m

    Exclusive runs overlap neither each other nor normal ones; normal runs overlap each other, and
    background runs everything. parley top tells who takes the time.
    """  # noqa: D301 - click's mark for lines to keep
    now = session.clock.now()
    by = max(by // times.SECOND, 1) * times.SECOND
    first = now if starts is None else starts.at(now)
    first -= first % by
    last = first + _AHEAD if ends is None else ends.at(now)
    last += -(last - first) % by
    if not first < last:
        raise click.UsageError("--to is not later than --from")
    if last - first > _PIECES_MAX * by:
        raise click.UsageError(f"more than {_PIECES_MAX} pieces; choose longer ones with --by")
    nodes = (await session.reader.listed("/nodes", {})).items
    with expected_members():
        here = next(node["name"] for node in nodes if node["is_self"])
    query = {
        "participant": here,
        "from": times.format_instant(first),
        "to": times.format_instant(last),
        "resolution": times.format_duration(by),
    }
    told = await session.reader.document("/schedule", query)
    with expected_members():
        pieces = pieces_of(told["buckets"] or (), told["reserved"] or (), (first, last, by))
        session.output.print_list(pieces, PIECE)
        if session.output.format == "table" and pieces:
            session.progress.note(_summary(pieces, by))


def pieces_of(
    buckets: Iterable[Record], reserved: Iterable[Record], span: tuple[int, int, int]
) -> list[dict[str, Any]]:
    """Return the pieces of a span, each with its classes and reserved time; none if all are free.

    ``span`` has its beginning, its end, and the length of a piece.
    """
    first, last, by = span
    pieces: dict[int, dict[str, Any]] = {
        instant: {
            "starts_at": times.format_instant(instant),
            "ends_at": times.format_instant(min(last, instant + by)),
            "busy": {},
            "taken": 0.0,
            "runs": {},
            "reserved": [],
        }
        for instant in range(first, last, by)
    }
    used = False
    for bucket in buckets:
        piece = pieces[times.parse_instant(bucket["starts_at"])]
        name = bucket["scheduling_class"]
        piece["busy"][name] = bucket["busy"]
        if name in {SchedulingClass.EXCLUSIVE, SchedulingClass.NORMAL}:
            piece["taken"] = round(piece["taken"] + bucket["busy"], 4)
        for state, count in bucket["runs"].items():
            piece["runs"][state] = piece["runs"].get(state, 0) + count
        used = True
    for each in reserved:
        begins, ends = (times.parse_instant(each[name]) for name in ("starts_at", "ends_at"))
        for instant, piece in pieces.items():
            if begins < instant + by and instant < ends:
                piece["reserved"].append(f"{each['kind']} {each['name']}")
                used = True
    return list(pieces.values()) if used else []


def _summary(pieces: Sequence[Record], by: int) -> str:
    """Say how full the whole span is, and which piece of it is the fullest."""
    mean = sum(piece["taken"] for piece in pieces) / len(pieces)
    fullest = max(pieces, key=lambda piece: piece["taken"])
    text = f"Exclusive and normal runs take {100 * mean:.1f} % of {plural(len(pieces), 'piece')}"
    if not fullest["taken"]:
        return f"{text} of {duration_text(by)}."
    when = local_time_text(fullest["starts_at"])
    most = f"{100 * fullest['taken']:.0f} %"
    return f"{text} of {duration_text(by)}, most of the one from {when}: {most}."
