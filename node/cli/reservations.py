"""``parley reservation``: time of the node that is set apart, for whom, and what lies in it."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import click

from node.cli.documents import Document, from_file
from node.cli.listing import collect, limit_option, print_truncation
from node.cli.output import Column, Record, RecordLayout, pairs, printable, records_of
from node.cli.references import find_reservation, short
from node.cli.session import Session, asks_node
from node.cli.times import DURATION, MOMENT, local
from node.model import times
from node.model.errors import AnswerLost, PeerUnreachable

if TYPE_CHECKING:
    from node.client.users import Page
    from node.model.wire.reservations import Reservation

AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])

KINDS = ("maintenance", "demo", "quiet")
CRITERIA = ("campaigns", "tasks", "leads", "tests", "classes")
CLEARABLE = ("repeat", "cron", "timezone", "until", "description", *CRITERIA, "priority")
"""What ``--clear`` takes away."""

_IN_SCHEDULE = ("start", "repeat", "cron", "timezone", "until")
_EXCLUSIVE = {"cron": ("repeat",), "repeat": ("cron", "timezone")}


def when(reservation: Record) -> str:
    """When it takes place, in a few words: ``cron 0 22 * * 6 (UTC) for PT2H``."""
    schedule = reservation["schedule"]
    words = [local(schedule["start"])]
    if schedule["repeat"]:
        words = [f"every {schedule['repeat']} from {words[0]}"]
    elif schedule["cron"]:
        words = [f"cron {schedule['cron']} ({schedule['timezone'] or 'UTC'})"]
    words.append(f"for {reservation['duration']}")
    if schedule["until"]:
        words.append(f"until {local(schedule['until'])}")
    return " ".join(words)


def admitted(access: Record) -> str:
    """Whom it admits, in a few words; any one of them is enough."""
    words = [f"{name} {', '.join(access[name])}" for name in CRITERIA if access[name]]
    if access["priority"] is not None:
        words.append(f"priority {access['priority']} or more")
    return " or ".join(words) or "nobody"


def _next(reservation: Record) -> str:
    if reservation["state"] == "over":
        return "over"
    if reservation["state"] == "now":
        return f"now, until {local(reservation['next_ends_at'])}"
    return local(reservation["next_starts_at"])


RESERVATION = RecordLayout(
    columns=(
        Column("reservation", lambda one: short(one["id"]), whole=True),
        Column("kind", lambda one: one["kind"], whole=True),
        Column("name", lambda one: one["name"]),
        Column("pool", lambda one: one["pool"] or ""),
        Column("by", lambda one: one["owner"]),
        Column("next", _next, whole=True),
        Column("when", when),
        Column("for", lambda one: admitted(one["access"])),
    ),
    fields=(
        "id", "kind", "name", "pool", "owner", "state", "next_starts_at", "next_ends_at",
        "duration", "schedule.start", "schedule.repeat", "schedule.cron", "schedule.until",
        "revision",
    ),
    empty=(
        "Nothing is reserved. Set time apart: "
        "parley reservation add NAME --kind demo --start @1h --for 2h"
    ),
)  # fmt: skip


def _options(command: AnyCommand) -> AnyCommand:
    """All that can be said of a reservation, but for its name."""
    for option in reversed((
        click.option("--kind", type=click.Choice(KINDS), help="What the time is set apart for."),
        click.option("--owner", help="By whom; you unless said."),
        click.option("--description", help="What others should know of it."),
        click.option("--for", "duration", type=DURATION, help="How long: 30m, 2h, PT2H."),
        click.option("--start", type=MOMENT, help="When: now (unless said), +10m, @1h, RFC 3339."),
        click.option("--repeat", type=DURATION, help="Interval from beginning to beginning."),
        click.option("--cron", metavar="FIELDS", help="Five cron fields, instead of --repeat."),
        click.option("--timezone", metavar="ZONE", help="Zone of --cron; UTC unless said."),
        click.option("--until", type=MOMENT, help="It does not begin again then or later."),
        click.option("--campaign", "campaigns", multiple=True, help="Admit own tasks of it."),
        click.option(
            "--task", "tasks", multiple=True, metavar="ID[@NODE]",
            help="Admit this task; a pool task that another node leads is named with that.",
        ),
        click.option("--lead", "leads", multiple=True, metavar="NODE", help="Admit all its tasks."),
        click.option("--test", "tests", multiple=True, help="Admit runs of this test."),
        click.option("--class", "classes", multiple=True, help="Admit runs of this class."),
        click.option("--priority", type=int, help="Admit own runs of it or a higher one."),
        click.option("--displace", is_flag=True, help="Runs booked already give way if they can."),
        click.option("--file", metavar="FILE|-", help="A document; options win over it."),
    )):  # fmt: skip
        command = option(command)
    return command


def document_of(given: Mapping[str, Any], now: int) -> Document:
    """What the options say, on top of what a file says."""
    document = from_file(given["file"]) if given["file"] else {}
    for name in ("kind", "owner", "description"):
        if given[name] is not None:
            document[name] = given[name]
    if given["duration"] is not None:
        document["duration"] = times.format_duration(given["duration"])
    schedule = _schedule(given, now)
    access = {name: list(given[name]) for name in CRITERIA if given[name]}
    if given["priority"] is not None:
        access["priority"] = given["priority"]
    for part, fields in (("schedule", schedule), ("access", access)):
        if fields:
            document[part] = {**document.get(part, {}), **fields}
    if given["displace"]:
        document["displace"] = True
    return document


def _schedule(given: Mapping[str, Any], now: int) -> Document:
    schedule: Document = {}
    for name in ("start", "until"):
        if given[name] is not None:
            schedule[name] = times.format_instant(given[name].at(now))
    if given["repeat"] is not None:
        schedule["repeat"] = times.format_duration(given["repeat"])
    for name in ("cron", "timezone"):
        if given[name] is not None:
            schedule[name] = given[name]
    return schedule


def patch_of(given: Mapping[str, Any], clear: tuple[str, ...], now: int) -> Document:
    """The merge patch of ``reservation edit``; an interval takes the place of cron fields."""
    patch = document_of(given, now)
    for name in clear:
        place = patch
        if name in _IN_SCHEDULE:
            place = patch.setdefault("schedule", {})
        elif name != "description":
            place = patch.setdefault("access", {})
        place[name] = None
    for name, others in _EXCLUSIVE.items():
        if given[name] is not None:
            patch["schedule"].update({other: None for other in others if given[other] is None})
    return patch


@click.group("reservation")
def reservation_group() -> None:
    """Set time of the node apart: for maintenance, a demo, or quiet."""


@reservation_group.command("add")
@click.argument("name", required=False)
@click.option("--pool", help="A pool that this node plans, instead of the node itself.")
@_options
@asks_node
async def add(session: Session, /, name: str | None, pool: str | None, **given: Any) -> None:
    """Set time of the node apart; only runs that are admitted are booked in it.

    One criterion admits. Campaign and priority are what a lead says of its tasks: they admit only
    what this node leads itself; another lead is admitted, with all its tasks, by --lead.

    Of a pool: its seats get only such runs; what others book on its nodes is theirs to say.

    \b
      parley reservation add 'new disks' --kind maintenance --start @1h --for 2h --displace
      parley reservation add SC26 --kind demo --start +3d --for 8h --campaign sc26 --lead b
      parley reservation add night --kind quiet --cron '0 22 * * *' --for 8h --class background
      parley reservation add SC26 --kind demo --for 8h --pool europe --campaign sc26
    """  # noqa: D301 - click's mark for lines to keep
    document = document_of(given, session.clock.now())
    for field, said in (("name", name), ("pool", pool)):
        if said is not None:
            document[field] = said
    missing = [word for field, word in _NEEDED.items() if field not in document]
    if missing:
        msg = f"say also {', '.join(missing)}; see: parley reservation add --help"
        raise click.UsageError(msg)
    document.setdefault("owner", _user())
    made = await _made(session, document)
    _say_inside(session, made)
    session.output.one(made.model_dump(mode="json"), RESERVATION, reservation_view)


async def _made(session: Session, document: Document) -> Reservation:
    """The reservation, asked for twice under one key if the first answer does not come."""
    key = str(uuid4())
    try:
        return await session.client.add_reservation(document, key)
    except AnswerLost:
        session.progress.status("no answer yet; asking what became of it", "again")
    try:
        return await session.client.add_reservation(document, key)
    except PeerUnreachable as error:
        cause = error.detail.partition("; ")[0]
        msg = f"{cause}; it may have been made all the same: see parley reservation list"
        raise AnswerLost(msg) from error


_LINES_MAX = 10
"""Most lines about runs that were booked in its time before."""

_NEEDED = {"name": "NAME", "kind": "--kind", "duration": "--for"}


def _user() -> str | None:
    """Who is typing, if the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


@reservation_group.command("list")
@limit_option
@asks_node
async def list_reservations(session: Session, limit: int) -> None:
    """List reservations, newest first."""

    async def page(size: int, cursor: str | None) -> Page[Reservation]:
        return await session.client.reservations(limit=size, cursor=cursor)

    found, more = await collect(page, limit)
    session.output.many(records_of(found), RESERVATION)
    print_truncation(session, more=more)


@reservation_group.command("show")
@click.argument("reservation")
@asks_node
async def show(session: Session, reservation: str) -> None:
    """Show everything about a reservation, and the runs that were booked in its time before."""
    found = await find_reservation(session, reservation)
    session.output.one(found.model_dump(mode="json"), RESERVATION, reservation_view)


@reservation_group.command("edit")
@click.argument("reservation")
@click.option("--name", help="What it is called.")
@_options
@click.option(
    "--clear",
    multiple=True,
    type=click.Choice(CLEARABLE),
    help="Take a field away; repeat for others.",
)
@asks_node
async def edit(
    session: Session, /, reservation: str, name: str | None, clear: tuple[str, ...], **given: Any
) -> None:
    """Change a reservation; criteria that are given take the place of those of their kind.

    \b
      parley reservation edit @-1 --for 3h
      parley reservation edit 7c1e --clear campaigns --priority 50 --displace
    """  # noqa: D301 - click's mark for lines to keep
    found = await find_reservation(session, reservation)
    patch = patch_of(given, clear, session.clock.now())
    if name is not None:
        patch["name"] = name
    if not patch:
        msg = "say what to change, such as --for 3h; see: parley reservation edit --help"
        raise click.UsageError(msg)
    patch.setdefault("revision", found.revision)
    edited = await session.client.edit_reservation(found.id, patch)
    _say_inside(session, edited)
    session.output.one(edited.model_dump(mode="json"), RESERVATION, reservation_view)


@reservation_group.command("remove")
@click.argument("reservations", nargs=-1, required=True, metavar="RESERVATION...")
@asks_node
async def remove(session: Session, reservations: tuple[str, ...]) -> None:
    """Remove reservations; their time is free at once."""
    found = [await find_reservation(session, written) for written in reservations]
    for one in found:
        await session.client.remove_reservation(one.id)
        session.progress.note(f"{printable(one.name)} ({short(one.id)}) is removed.")


def _say_inside(session: Session, made: Reservation) -> None:
    """What became of the runs that were there before."""
    gone = made.displaced_count or 0
    kept = (made.inside_count or 0) - gone
    if gone:
        session.progress.note(f"{_runs(gone)} gave way, to be planned again by their leads.")
    if kept:
        how = "they have begun or are about to" if gone else "--displace makes them give way"
        session.progress.note(f"{_runs(kept)} booked in this time before and kept: {how}.")


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def reservation_view(reservation: Record) -> str:
    """A reservation for a person."""
    head = f"{reservation['kind']} {printable(reservation['name'])}: {_next(reservation)}"
    particulars = (
        ("reservation", reservation["id"]),
        ("when", when(reservation)),
        ("pool", reservation["pool"]),
        ("for", admitted(reservation["access"])),
        ("by", reservation["owner"]),
        ("description", reservation["description"]),
        ("revision", reservation["revision"] if reservation["revision"] > 1 else ""),
        ("made", local(reservation["created_at"])),
    )
    lines = [head, pairs(particulars, indent="  ")]
    return "\n".join([*lines, *_inside(reservation)])


def _inside(reservation: Record) -> list[str]:
    """The runs booked in its time before: a line for those of a task that became the same."""
    alike: dict[tuple[str, bool], list[Record]] = {}
    for run in reservation["inside"] or ():
        alike.setdefault((run["task"], run["displaced"]), []).append(run)
    lines = []
    for (task, displaced), found in list(alike.items())[:_LINES_MAX]:
        one = found[0]
        span = f"{local(one['starts_at'])} to {local(max(run['ends_at'] for run in found))}"
        lines.append(
            f"  {'displaced' if displaced else 'kept'}: {_runs(len(found))} of task {short(task)} "
            f"({one['test']}, {one['scheduling_class']}, priority {one['priority']}) {span}"
        )
    told = sum(len(found) for found in list(alike.values())[:_LINES_MAX])
    if more := max(0, (reservation.get("inside_count") or told) - told):
        lines.append(f"  and {more} more")
    return lines
