"""``parley archive``: archives, their deliveries, the backlog, and retries."""

from __future__ import annotations

from typing import Any

import click

from node.cli.groups import command_group
from node.cli.invocation import without_jq
from node.cli.listing import limit_option, print_documents
from node.cli.options import apply_options, given_values, options, require_change
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    cell_text,
    pairs_text,
    plural,
    printable_text,
)
from node.cli.references import find_run_id, find_task_id, short
from node.cli.session import ReadingSession, Session, asks_node, reads_node
from node.cli.times import local_time_text
from node.cli.values import json_object
from node.model.times import format_duration


def _transform_text(archive: Record) -> str:
    transform = archive["transform"] or {}
    return next((f"{name}: {text}" for name, text in transform.items() if text), "")


def _users_text(destination: Record) -> str:
    tasks = destination["tasks"]
    return ", ".join([*destination["archives"], *([plural(tasks, "task")] if tasks else [])])


def _last_error(one: Record) -> str:
    """Return the last error and its time; nothing where no delivery waits, because it is over."""
    if not one["last_error"] or not (one["waiting"] or one["parked"]):
        return ""
    return printable_text(f"{local_time_text(one['last_error_at'])} {one['last_error']}")


ARCHIVE = RecordLayout(
    "name,archiver,label,runs,destination,revision",
    Column("archive", lambda one: one["name"], whole=True),
    Column("archiver", lambda one: one["archiver"], whole=True),
    Column("where", lambda one: printable_text(one["label"])),
    Column("runs", lambda one: one["runs"], whole=True),
    Column("transform", lambda one: printable_text(_transform_text(one))),
    empty="No archives of this node. Add one: "
    "parley archive add NAME http --spec url=https://collector.example/in",
)
ARCHIVER = RecordLayout(
    "name,title,ordered,missing",
    Column("archiver", lambda one: one["name"], whole=True),
    Column("does", lambda one: one["missing"] or one["title"]),
    Column("ordered", lambda one: "yes" if one["ordered"] else "no", whole=True),
    Column("fields", lambda one: ", ".join(one["spec"]["properties"])),
    empty="No archivers.",
)
DELIVERY = RecordLayout(
    "number,run,interval,archive,archiver,label,state,attempts,next_at,last_error",
    Column("number", lambda one: str(one["number"]), whole=True),
    Column("run", lambda one: short(one["run"]), whole=True),
    Column("interval", lambda one: "" if one["interval"] is None else str(one["interval"])),
    Column("archive", lambda one: one["archive"] or "of the task"),
    Column("to", lambda one: printable_text(f"{one['archiver']} {one['label']}")),
    Column("state", lambda one: one["state"], whole=True),
    Column("since", lambda one: local_time_text(one["created_at"])),
    Column("tried", lambda one: local_time_text(one["tried_at"])),
    Column("next", lambda one: local_time_text(one["next_at"])),
    Column("said", lambda one: printable_text(one["last_error"] or "")),
    empty="No deliveries.",
)
BACKLOG = RecordLayout(
    "destination,archiver,label,waiting,parked,oldest_at,last_error,last_error_at",
    Column("destination", lambda one: str(one["destination"]), whole=True),
    Column("where", lambda one: printable_text(f"{one['archiver']} {one['label']}")),
    Column("for", _users_text),
    Column("waiting", lambda one: str(one["waiting"]), whole=True),
    Column("parked", lambda one: str(one["parked"]), whole=True),
    Column("oldest", lambda one: local_time_text(one["oldest_at"])),
    Column("next", lambda one: local_time_text(one["next_at"])),
    Column("last error", _last_error),
    empty="Results go nowhere: there is no archive, of this node or of a task.",
)


def _document_options(command: Any) -> Any:
    return apply_options(
        without_jq(command),
        options("""
            --spec KEY=VALUE...         A field of the spec, JSON or text.
            --spec-json JSON            The spec as a JSON object.
            --runs [succeeded|failed|all]  Which runs to deliver [succeeded]; failed includes those
                                        that never took place.
            --jmespath EXPRESSION       Deliver only this part of the document.
            --jq PROGRAM                The same, as a program of jq.
            --format [parley|pscheduler]  The form of the documents [parley]; pscheduler for readers
                                        of pScheduler's.
            --ttl DURATION              Deliver nothing older than this.
        """),
        click.option("--note", metavar="TEXT", help="What the archive is, for people."),
        options("--uri-host HOST  With pscheduler: the host in links."),
    )


def archive_view(archive: Record) -> str:
    """Return name and value of each member of an archive, one on a line."""
    head = f"{archive['name']}: {archive['archiver']} {printable_text(archive['label'])}"
    particulars = (
        *((name, cell_text(value)) for name, value in archive["spec"].items()),
        ("runs", archive["runs"]),
        ("transform", printable_text(_transform_text(archive))),
        ("format", archive["format"] if archive["format"] != "parley" else ""),
        ("ttl", archive["ttl"] or ""),
        ("note", printable_text(archive["note"] or "")),
        ("host in links", archive["uri_host"] or ""),
        ("destination", archive["destination"]),
        ("revision", archive["revision"] if archive["revision"] > 1 else ""),
        ("made", local_time_text(archive["created_at"])),
    )
    return "\n".join([head, pairs_text(particulars, indent="  ")])


archive_group = command_group("archive")


@archive_group.command("add")
@click.argument("name")
@click.argument("archiver")
@_document_options
@asks_node
async def add(session: Session, /, name: str, archiver: str, **given: Any) -> None:
    """Add an archive of the node: it receives the results of all tasks that the node leads.

    \b
      parley archive add hook http --spec url=https://collector.example/in --runs all
      parley archive add log syslog --jmespath '{run: run, state: state, summary: summary}'
    """  # noqa: D301 - click's mark for lines to keep
    document = {"name": name, "archiver": archiver, "spec": _spec(given), **_settings(given)}
    archive = await session.client.add_archive(document)
    session.output.print_one(archive, ARCHIVE, archive_view)


archive_group.add_list(
    "/archives", ARCHIVE, "List the node's archives; those of a task are in parley task show."
)
archive_group.add_show("/archives", ARCHIVE, archive_view, "Show an archive, without its secrets.")


@archive_group.command("edit")
@click.argument("name")
@_document_options
@options("--whole  Deliver the whole document: remove the transform.")
@asks_node
async def edit(session: Session, /, name: str, whole: bool, **given: Any) -> None:
    """Change an archive; deliveries that wait go to the new destination."""
    patch = _settings(given)
    if spec := _spec(given):
        patch["spec"] = spec
    if whole:
        patch["transform"] = None
    require_change(patch, "archive", "--spec url=…")
    session.output.print_one(await session.client.edit_archive(name, patch), ARCHIVE, archive_view)


@archive_group.command("remove")
@click.argument("name")
@asks_node
async def remove(session: Session, name: str) -> None:
    """Remove an archive, and drop its waiting deliveries."""
    await session.client.remove_archive(name)
    session.progress.note(f"{name} was removed; its waiting deliveries were dropped.")


archive_group.add_table(
    "/archivers", ARCHIVER, "List the archivers and the fields of their specs.", "kinds"
)


@archive_group.command("test")
@click.argument("name")
@asks_node
async def test(session: Session, name: str) -> None:
    """Check whether results can be delivered, without delivering one."""
    session.progress.note(printable_text((await session.client.test_archive(name)).detail))


archive_group.add_table(
    "/archivings/backlog", BACKLOG, "Show waiting and parked deliveries by destination.", "backlog"
)


@archive_group.command("deliveries")
@options("""
    --run RUN                   Only results of this run.
    --task TASK                 Only results of this task.
    --archive NAME              Only to this archive.
    --destination 1..           Only to this destination.
    --state [waiting|delivered|parked]...  Only in this state; repeat for more.
""")
@limit_option
@reads_node
async def deliveries(session: ReadingSession, /, limit: int, **given: Any) -> None:
    """List deliveries, newest first: their destination, state, and last error."""
    query = await _filters(session, given)
    if given["task"] is not None:
        query["task"] = await find_task_id(session.reader, given["task"])
    query["state"] = ",".join(given["state"]) or None
    await print_documents(session, DELIVERY, "/archivings", query, limit)


@archive_group.command("retry")
@click.argument("archive", metavar="[NAME]", required=False)
@options("""
    --destination 1..  Deliveries to this destination.
    --run RUN          Deliveries of this run.
    --number 1..       This one delivery.
    --all as all_      All deliveries.
""")
@asks_node
async def retry(session: Session, /, all_: bool, **given: Any) -> None:
    """Retry deliveries at once that are parked or wait for their next attempt.

    \b
      parley archive retry hook
      parley archive retry --destination 3
      parley archive retry --run @-1
    """  # noqa: D301 - click's mark for lines to keep
    document = {**await _filters(session, given), "number": given["number"]}
    document = given_values(document)
    if bool(document) == all_:
        msg = "name the deliveries: an archive, --destination, --run or --number; or --all"
        raise click.UsageError(msg)
    retried = (await session.client.retry_archivings(document or {"all": True})).retried
    session.progress.note(f"{plural(retried, 'delivery', 'deliveries')} will be retried now.")


async def _filters(session: ReadingSession, given: dict[str, Any]) -> dict[str, Any]:
    run = given["run"]
    if run is not None:
        run = await find_run_id(session.reader, run, session.clock.now())
    return {"run": run, "archive": given["archive"], "destination": given["destination"]}


def _spec(given: dict[str, Any]) -> dict[str, Any]:
    from node.cli.documents import field_of

    spec = json_object(given["spec_json"], "--spec-json")
    return {**spec, **dict(map(field_of, given["spec"]))}


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    settings = given_values(given, "runs", "format", "note", "uri_host")
    if given["ttl"] is not None:
        settings["ttl"] = format_duration(given["ttl"])
    transform = given_values(given, "jmespath", "jq")
    return {**settings, "transform": transform} if transform else settings
