"""``parley archive``: where results go, what waits there, and trying again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from node.cli.jsontext import json_object
from node.cli.listing import collect, limit_option, print_truncation
from node.cli.output import Column, Record, RecordLayout, flat, pairs, printable, records_of
from node.cli.references import find_run, find_task, short
from node.cli.session import Session, asks_node
from node.cli.times import local

if TYPE_CHECKING:
    from node.client.responses import Page
    from node.model.wire.archives import Archive, Archiving


def _transform(archive: Record) -> str:
    given = archive["transform"] or {}
    return next((f"{name}: {text}" for name, text in given.items() if text), "")


def _whose(one: Record) -> str:
    tasks = one["tasks"]
    counted = [f"{tasks} task{'' if tasks == 1 else 's'}"] if tasks else []
    return ", ".join([*one["archives"], *counted])


def _last_error(one: Record) -> str:
    """What a destination said last, and when; of one for which nothing waits it is over."""
    if not one["last_error"] or not (one["waiting"] or one["parked"]):
        return ""
    return printable(f"{local(one['last_error_at'])} {one['last_error']}")


ARCHIVE = RecordLayout(
    columns=(
        Column("archive", lambda one: one["name"], whole=True),
        Column("archiver", lambda one: one["archiver"], whole=True),
        Column("where", lambda one: printable(one["label"])),
        Column("runs", lambda one: one["runs"], whole=True),
        Column("transform", lambda one: printable(_transform(one))),
    ),
    fields=("name", "archiver", "label", "runs", "destination", "revision"),
    empty="No archives of this node. Add one: "
    "parley archive add NAME http --spec url=https://collector.example/in",
    key="name",
)
ARCHIVER = RecordLayout(
    columns=(
        Column("archiver", lambda one: one["name"], whole=True),
        Column("does", lambda one: one["missing"] or one["title"]),
        Column("ordered", lambda one: "yes" if one["ordered"] else "no", whole=True),
        Column("fields", lambda one: ", ".join(one["spec"]["properties"])),
    ),
    fields=("name", "title", "ordered", "missing"),
    empty="No archivers.",
    key="name",
)
DELIVERY = RecordLayout(
    columns=(
        Column("number", lambda one: str(one["number"]), whole=True),
        Column("run", lambda one: short(one["run"]), whole=True),
        Column("interval", lambda one: "" if one["interval"] is None else str(one["interval"])),
        Column("archive", lambda one: one["archive"] or "of the task"),
        Column("to", lambda one: printable(f"{one['archiver']} {one['label']}")),
        Column("state", lambda one: one["state"], whole=True),
        Column("since", lambda one: local(one["created_at"])),
        Column("tried", lambda one: local(one["tried_at"])),
        Column("next", lambda one: local(one["next_at"])),
        Column("said", lambda one: printable(one["last_error"] or "")),
    ),
    fields=(
        "number",
        "run",
        "interval",
        "archive",
        "archiver",
        "label",
        "state",
        "attempts",
        "next_at",
        "last_error",
    ),
    empty="No deliveries.",
    key="number",
)
BACKLOG = RecordLayout(
    columns=(
        Column("destination", lambda one: str(one["destination"]), whole=True),
        Column("where", lambda one: printable(f"{one['archiver']} {one['label']}")),
        Column("for", _whose),
        Column("waiting", lambda one: str(one["waiting"]), whole=True),
        Column("parked", lambda one: str(one["parked"]), whole=True),
        Column("oldest", lambda one: local(one["oldest_at"])),
        Column("next", lambda one: local(one["next_at"])),
        Column("last error", _last_error),
    ),
    fields=(
        "destination",
        "archiver",
        "label",
        "waiting",
        "parked",
        "oldest_at",
        "last_error",
        "last_error_at",
    ),
    empty="Results go nowhere: there is no archive, of this node or of a task.",
    key="destination",
)


_SPEC = click.option(
    "--spec", multiple=True, metavar="KEY=VALUE", help="A field of the spec, JSON or text."
)
_SPEC_JSON = click.option("--spec-json", metavar="JSON", help="The spec as a JSON object.")
_RUNS = click.option(
    "--runs",
    type=click.Choice(("succeeded", "failed", "all")),
    help="Which runs [succeeded]; failed are also those that never took place.",
)
_JMESPATH = click.option("--jmespath", metavar="EXPRESSION", help="What of the document goes.")
_JQ = click.option("--jq", metavar="PROGRAM", help="The same by a program of jq.")


@click.group("archive")
def archive_group() -> None:
    """Say where results go, see what waits, and have it tried again."""


@archive_group.command("add")
@click.argument("name")
@click.argument("archiver")
@_SPEC
@_SPEC_JSON
@_RUNS
@_JMESPATH
@_JQ
@asks_node
async def add(session: Session, /, name: str, archiver: str, **given: Any) -> None:
    """Add an archive of the node's own: results of all tasks it leads go there.

    \b
      parley archive add hook http --spec url=https://collector.example/in --runs all
      parley archive add log syslog --jmespath '{run: run, state: state, summary: summary}'
    """  # noqa: D301 - click's mark for lines to keep
    document = {"name": name, "archiver": archiver, "spec": _spec(given), **_wanted(given)}
    made = await session.client.add_archive(document)
    session.output.one(made.model_dump(mode="json"), ARCHIVE, archive_view)


@archive_group.command("list")
@limit_option
@asks_node
async def list_archives(session: Session, limit: int) -> None:
    """List the node's own archives; those of a task are in parley task show."""

    async def page(size: int, cursor: str | None) -> Page[Archive]:
        return await session.client.archives(limit=size, cursor=cursor)

    found, more = await collect(page, limit)
    session.output.many(records_of(found), ARCHIVE)
    print_truncation(session, more=more)


@archive_group.command("show")
@click.argument("name")
@asks_node
async def show(session: Session, name: str) -> None:
    """Show an archive; what is secret is not shown."""
    found = await session.client.archive(name)
    session.output.one(found.model_dump(mode="json"), ARCHIVE, archive_view)


@archive_group.command("edit")
@click.argument("name")
@_SPEC
@_SPEC_JSON
@_RUNS
@_JMESPATH
@_JQ
@click.option("--whole", is_flag=True, help="Deliver the whole document: no transform any more.")
@asks_node
async def edit(session: Session, /, name: str, whole: bool, **given: Any) -> None:
    """Change an archive; what waits goes where it is then, what is not named stays."""
    patch = _wanted(given)
    if spec := _spec(given):
        patch["spec"] = spec
    if whole:
        patch["transform"] = None
    if not patch:
        msg = "say what to change, such as --spec url=…; see: parley archive edit --help"
        raise click.UsageError(msg)
    edited = await session.client.edit_archive(name, patch)
    session.output.one(edited.model_dump(mode="json"), ARCHIVE, archive_view)


@archive_group.command("remove")
@click.argument("name")
@asks_node
async def remove(session: Session, name: str) -> None:
    """Remove an archive, and what waits for it."""
    await session.client.remove_archive(name)
    session.progress.note(f"{name} is removed; what waited for it is dropped.")


@archive_group.command("kinds")
@asks_node
async def kinds(session: Session) -> None:
    """List the archivers, and the fields of their specs."""
    session.output.many(records_of((await session.client.archivers()).items), ARCHIVER)


@archive_group.command("test")
@click.argument("name")
@asks_node
async def test(session: Session, name: str) -> None:
    """Try whether results can be delivered there; none is."""
    tested = await session.client.test_archive(name)
    session.progress.note(printable(tested.detail))


@archive_group.command("backlog")
@asks_node
async def backlog(session: Session) -> None:
    """Show what waits and what is parked, by destination."""
    session.output.many(records_of((await session.client.backlog()).items), BACKLOG)


@archive_group.command("deliveries")
@click.option("--run", metavar="RUN", help="Only of this run.")
@click.option("--task", metavar="TASK", help="Only of this task.")
@click.option("--archive", metavar="NAME", help="Only to this archive.")
@click.option("--destination", type=click.IntRange(1), help="Only to this destination.")
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(("waiting", "delivered", "parked")),
    help="Only these; repeat for others.",
)
@limit_option
@asks_node
async def deliveries(session: Session, /, limit: int, **given: Any) -> None:
    """List deliveries, newest first: where results went, what waits, and why."""
    query = await _filters(session, given)
    if given["task"] is not None:
        query["task"] = (await find_task(session, given["task"])).id
    query["state"] = ",".join(given["state"]) or None

    async def page(size: int, cursor: str | None) -> Page[Archiving]:
        return await session.client.archivings(query, limit=size, cursor=cursor)

    found, more = await collect(page, limit)
    session.output.many(records_of(found), DELIVERY)
    print_truncation(session, more=more)


@archive_group.command("retry")
@click.argument("archive", metavar="[NAME]", required=False)
@click.option("--destination", type=click.IntRange(1), help="What waits for this destination.")
@click.option("--run", metavar="RUN", help="What waits of this run.")
@click.option("--number", type=click.IntRange(1), help="This delivery.")
@click.option("--all", "all_", is_flag=True, help="Everything.")
@asks_node
async def retry(session: Session, /, all_: bool, **given: Any) -> None:
    """Have deliveries tried at once that are parked or wait for their time.

    \b
      parley archive retry hook
      parley archive retry --destination 3
      parley archive retry --run @-1
    """  # noqa: D301 - click's mark for lines to keep
    document = {k: v for k, v in (await _filters(session, given)).items() if v is not None}
    if given["number"] is not None:
        document["number"] = given["number"]
    if bool(document) == all_:
        msg = "say which: an archive, --destination, --run or --number; or --all"
        raise click.UsageError(msg)
    if "run" in document:
        document["run"] = str(document["run"])
    asked = document or {"all": True}
    retried = (await session.client.retry_archivings(asked)).retried
    session.progress.note(f"{retried} deliver{'y is' if retried == 1 else 'ies are'} tried now.")


async def _filters(session: Session, given: dict[str, Any]) -> dict[str, Any]:
    run = None if given["run"] is None else (await find_run(session, given["run"])).id
    return {"run": run, "archive": given["archive"], "destination": given["destination"]}


def _spec(given: dict[str, Any]) -> dict[str, Any]:
    from node.cli.documents import field_of

    spec = json_object(given["spec_json"], "--spec-json")
    return {**spec, **dict(map(field_of, given["spec"]))}


def _wanted(given: dict[str, Any]) -> dict[str, Any]:
    wanted = {} if given["runs"] is None else {"runs": given["runs"]}
    transform = {name: given[name] for name in ("jmespath", "jq") if given[name] is not None}
    return {**wanted, "transform": transform} if transform else wanted


def archive_view(archive: Record) -> str:
    """An archive for a person."""
    head = f"{archive['name']}: {archive['archiver']} {printable(archive['label'])}"
    particulars = (
        *((name, flat(value)) for name, value in archive["spec"].items()),
        ("runs", archive["runs"]),
        ("transform", printable(_transform(archive))),
        ("destination", archive["destination"]),
        ("revision", archive["revision"] if archive["revision"] > 1 else ""),
        ("made", local(archive["created_at"])),
    )
    return "\n".join([head, pairs(particulars, indent="  ")])
