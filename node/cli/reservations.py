"""``parley reservation``: reserved time of the node, whom it admits, and the runs inside it."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from node.cli.documents import (
    IN_SCHEDULE,
    Document,
    clear_other_rhythm,
    document_from_file,
    schedule_document,
)
from node.cli.groups import command_group
from node.cli.listing import print_one
from node.cli.options import (
    AnyCommand,
    Words,
    apply_options,
    clear_option,
    given_values,
    options,
    require_change,
)
from node.cli.output import Column, Record, RecordLayout, pairs_text, plural, printable_text
from node.cli.references import find_reservation, find_reservation_id, short
from node.cli.session import ReadingSession, Session, asks_node, reads_node
from node.cli.times import local_time_text
from node.model import times
from node.model.errors import AnswerLost, PeerUnreachable
from node.model.times import duration_text

if TYPE_CHECKING:
    from node.model.wire.reservations import Reservation


KINDS = ("maintenance", "demo", "quiet")
CRITERIA = ("campaigns", "tasks", "leads", "tests", "classes")
CLEARABLE = ("repeat", "cron", "timezone", "until", "description", *CRITERIA, "priority")
"""The fields that ``--clear`` removes."""


def time_text(reservation: Record) -> str:
    """Return start, rhythm and length: ``cron 0 22 * * 6 (UTC) for PT2H``."""
    schedule = reservation["schedule"]
    words = [local_time_text(schedule["start"])]
    if schedule["repeat"]:
        words = [f"every {duration_text(schedule['repeat'])} from {words[0]}"]
    elif schedule["cron"]:
        words = [f"cron {schedule['cron']} ({schedule['timezone'] or 'UTC'})"]
    words.append(f"for {duration_text(reservation['duration'])}")
    if schedule["until"]:
        words.append(f"until {local_time_text(schedule['until'])}")
    return " ".join(words)


def admission_text(access: Record) -> str:
    """Return the criteria by which a reservation admits runs; meeting any one is enough."""
    words = [f"{name} {', '.join(access[name])}" for name in CRITERIA if access[name]]
    if access["priority"] is not None:
        words.append(f"priority {access['priority']} or more")
    return " or ".join(words) or "nobody"


def _next_text(reservation: Record) -> str:
    if reservation["state"] == "over":
        return "over"
    if reservation["state"] == "now":
        return f"now, until {local_time_text(reservation['next_ends_at'])}"
    return local_time_text(reservation["next_starts_at"])


RESERVATION = RecordLayout(
    "id,kind,name,pool,owner,state,next_starts_at,next_ends_at,duration,schedule.start,"
    "schedule.repeat,schedule.cron,schedule.until,revision",
    Column("reservation", lambda one: short(one["id"]), whole=True),
    Column("kind", lambda one: one["kind"], whole=True),
    Column("name", lambda one: one["name"]),
    Column("pool", lambda one: one["pool"] or ""),
    Column("by", lambda one: one["owner"]),
    Column("next", _next_text, whole=True),
    Column("when", time_text),
    Column("for", lambda one: admission_text(one["access"])),
    empty="Nothing is reserved. Reserve time: "
    "parley reservation add NAME --kind demo --start @1h --for 2h",
)


def _document_options(command: AnyCommand) -> AnyCommand:
    return apply_options(
        command,
        click.option("--kind", type=Words(KINDS), help="What the time is reserved for."),
        options("""
            --owner TEXT                Who reserves it [you].
            --description TEXT          What others should know about it.
            --for DURATION as duration  How long: 30m, 2h, or PT2H.
            --start COMING              Start: now [default], 10m, 10:05, @1h, 2026-12-01.
            --repeat DURATION           Interval from start to start.
            --cron FIELDS               Five cron fields, instead of --repeat.
            --timezone ZONE             Time zone of --cron [UTC].
            --until COMING              It does not begin again after this.
            --campaign TEXT... as campaigns  Admit own tasks of this campaign.
            --task ID[@NODE]... as tasks  Admit this task; add @NODE to a pool task that another
                                        node leads.
            --lead NODE... as leads     Admit all tasks of this lead.
            --test TEXT... as tests     Admit runs of this test.
            --class TEXT... as classes  Admit runs of this class.
            --priority INTEGER          Admit own runs of this priority or more.
            --displace                  Displace booked runs where possible.
            --file FILE|-               A document; options override it.
        """),
    )  # fmt: skip


def document_of(given: Mapping[str, Any], now: int) -> Document:
    """Return the document that the options describe, on top of the file's."""
    document = document_from_file(given["file"]) if given["file"] else {}
    document |= given_values(given, "kind", "owner", "description")
    if given["duration"] is not None:
        document["duration"] = times.format_duration(given["duration"])
    schedule = schedule_document(given, now)
    access = {name: list(given[name]) for name in CRITERIA if given[name]}
    if given["priority"] is not None:
        access["priority"] = given["priority"]
    for part, fields in (("schedule", schedule), ("access", access)):
        if fields:
            document[part] = {**document.get(part, {}), **fields}
    if given["displace"]:
        document["displace"] = True
    return document


def patch_of(given: Mapping[str, Any], clear: tuple[str, ...], now: int) -> Document:
    """Return the merge patch of ``reservation edit``; ``--repeat`` replaces ``--cron`` fields."""
    patch = document_of(given, now)
    for name in clear:
        place = patch
        if name in IN_SCHEDULE:
            place = patch.setdefault("schedule", {})
        elif name != "description":
            place = patch.setdefault("access", {})
        place[name] = None
    clear_other_rhythm(patch, given)
    return patch


reservation_group = command_group("reservation")


@reservation_group.command("add")
@click.argument("name", required=False)
@options("--pool TEXT  A pool that this node plans, instead of the node itself.")
@_document_options
@asks_node
async def add(session: Session, /, name: str | None, pool: str | None, **given: Any) -> None:
    """Reserve time of the node; only admitted runs are booked in it.

    Meeting one criterion is enough. Campaign and priority are statements of a lead about its own
    tasks, so they admit only what this node leads itself; --lead admits another lead with all its
    tasks.

    With --pool, the seats of the pool get only such runs; other leads' bookings on its nodes are
    not affected.

    \b
      parley reservation add 'new disks' --kind maintenance --start @1h --for 2h --displace
      parley reservation add SC26 --kind demo --start +3d --for 8h --campaign sc26 --lead b
      parley reservation add night --kind quiet --cron '0 22 * * *' --for 8h --class background
      parley reservation add SC26 --kind demo --for 8h --pool europe --campaign sc26
    """  # noqa: D301 - click's mark for lines to keep
    document = document_of(given, session.clock.now())
    document |= given_values({"name": name, "pool": pool})
    missing = [word for field, word in _NEEDED.items() if field not in document]
    if missing:
        raise click.UsageError(f"missing: {', '.join(missing)}; see: parley reservation add --help")
    document.setdefault("owner", _user_name())
    reservation = await _add(session, document)
    _note_runs_inside(session, reservation)
    session.output.print_one(reservation, RESERVATION, reservation_view)


async def _add(session: Session, document: Document) -> Reservation:
    """Add the reservation; if the answer is lost, ask again with the same idempotency key."""
    key = str(uuid4())
    try:
        return await session.client.add_reservation(document, key)
    except AnswerLost:
        session.progress.status("no answer yet; asking again", "again")
    try:
        return await session.client.add_reservation(document, key)
    except PeerUnreachable as error:
        cause = error.detail.partition("; ")[0]
        msg = f"{cause}; the reservation may exist nevertheless: see parley reservation list"
        raise AnswerLost(msg) from error


_LINES_MAX = 10
"""Maximum number of lines about runs that were booked in its time before."""

_NEEDED = {"name": "NAME", "kind": "--kind", "duration": "--for"}


def _user_name() -> str | None:
    """Return the name of the current user, if the system knows it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


reservation_group.add_list("/reservations", RESERVATION, "List reservations, newest first.")


@reservation_group.command("show")
@click.argument("reservation")
@reads_node
async def show(session: ReadingSession, reservation: str) -> None:
    """Show everything about a reservation, and the runs that were booked in its time before."""
    path = f"/reservations/{await find_reservation_id(session.reader, reservation)}"
    await print_one(session, RESERVATION, path, reservation_view)


@reservation_group.command("edit")
@click.argument("reservation")
@options("--name TEXT  Its new name.")
@_document_options
@clear_option(CLEARABLE, "Remove a field; repeat for more.")
@asks_node
async def edit(
    session: Session, /, reservation: str, name: str | None, clear: tuple[str, ...], **given: Any
) -> None:
    """Change a reservation; new criteria replace all of the same kind.

    \b
      parley reservation edit 9d20 --for 3h
      parley reservation edit 7c1e --clear campaigns --priority 50 --displace
    """  # noqa: D301 - click's mark for lines to keep
    before = await find_reservation(session, reservation)
    patch = patch_of(given, clear, session.clock.now())
    if name is not None:
        patch["name"] = name
    require_change(patch, "reservation", "--for 3h")
    patch.setdefault("revision", before.revision)
    after = await session.client.edit_reservation(before.id, patch)
    _note_runs_inside(session, after)
    session.output.print_one(after, RESERVATION, reservation_view)


@reservation_group.command("remove")
@click.argument("reservations", nargs=-1, required=True, metavar="RESERVATION...")
@asks_node
async def remove(session: Session, reservations: tuple[str, ...]) -> None:
    """Remove reservations; their time is free at once."""
    listed = [await find_reservation(session, written) for written in reservations]
    for reservation in listed:
        await session.client.remove_reservation(reservation.id)
        name = printable_text(reservation.name)
        session.progress.note(f"{name} ({short(reservation.id)}) was removed.")


def _note_runs_inside(session: Session, reservation: Reservation) -> None:
    """Note what happened to the runs that were booked in its time before."""
    displaced = reservation.displaced_count or 0
    remaining = (reservation.inside_count or 0) - displaced
    if displaced:
        note = f"{plural(displaced, 'run')} gave way, to be planned again by their leads."
        session.progress.note(note)
    if remaining:
        why = "they have begun or are about to" if displaced else "--displace makes them give way"
        note = f"{plural(remaining, 'run')} booked in this time before and kept: {why}."
        session.progress.note(note)


def reservation_view(reservation: Record) -> str:
    """Describe a reservation for a person."""
    head = f"{reservation['kind']} {printable_text(reservation['name'])}: {_next_text(reservation)}"
    particulars = (
        ("reservation", reservation["id"]),
        ("when", time_text(reservation)),
        ("pool", reservation["pool"]),
        ("for", admission_text(reservation["access"])),
        ("by", reservation["owner"]),
        ("description", reservation["description"]),
        ("revision", reservation["revision"] if reservation["revision"] > 1 else ""),
        ("made", local_time_text(reservation["created_at"])),
    )
    lines = [head, pairs_text(particulars, indent="  ")]
    return "\n".join([*lines, *_runs_inside_lines(reservation)])


def _runs_inside_lines(reservation: Record) -> list[str]:
    """Return lines on the runs booked in its time before; one for each task and fate."""
    groups: dict[tuple[str, bool], list[Record]] = {}
    for run in reservation["inside"] or ():
        groups.setdefault((run["task"], run["displaced"]), []).append(run)
    shown = list(groups.items())[:_LINES_MAX]
    lines = []
    for (task, displaced), runs in shown:
        first = runs[0]
        end = local_time_text(max(run["ends_at"] for run in runs))
        span = f"{local_time_text(first['starts_at'])} to {end}"
        lines.append(
            f"  {'displaced' if displaced else 'kept'}: {plural(len(runs), 'run')} of task "
            f"{short(task)} ({first['test']}, {first['scheduling_class']}, "
            f"priority {first['priority']}) {span}"
        )
    count = sum(len(runs) for _, runs in shown)
    if more := max(0, (reservation.get("inside_count") or count) - count):
        lines.append(f"  and {more} more")
    return lines
