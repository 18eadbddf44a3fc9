"""``export`` and ``import`` of ``parley task`` and ``admin``: what a node leads, without history.

The file has documents as a user posts them: campaigns, pools, archives, reservations, known nodes,
and the tasks that are not over, among them those of meshes. Importing it again does what is left.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from node.cli.bulk import TaskChoice, choice_of, chosen_tasks, listed_tasks
from node.cli.draining import DRAIN_NAME
from node.cli.listing import collect_all
from node.cli.many_requests import LIST, MeshWorker, task_poster, unfinished_lines
from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout
from node.cli.session import Session, asks_node
from node.cli.values import value_in
from node.model.errors import (
    Conflict,
    FieldFault,
    HostError,
    InvalidDocument,
    PeerError,
    reason_of,
)
from node.model.nodekinds import NodeKind, kind_of
from node.model.taskstate import TaskState
from node.model.times import format_instant
from node.model.wire.archives import ArchiveDocument
from node.model.wire.campaigns import DEFAULT, CampaignDocument
from node.model.wire.nodes import NodeAddition
from node.model.wire.pools import PoolDocument
from node.model.wire.reservations import ReservationDocument

if TYPE_CHECKING:
    from uuid import UUID

    from node.model.wire.tasks import Task


IMPORTED_TASKS = RecordLayout(
    "was,id,test",
    Column("was", lambda task: task["was"], whole=True),
    Column("task", lambda task: task["id"], whole=True),
    Column("test", lambda task: task["test"]),
    empty="No tasks.",
)


@click.command("export")
@click.argument("tasks", nargs=-1, metavar="TASK...")
@options("--where NAME=VALUE...  Tasks with this mesh, test, …")
@options("--all as every  All open tasks.")
@asks_node
async def export_tasks(
    session: Session, /, tasks: tuple[str, ...], where: tuple[str, ...], every: bool
) -> None:
    """Print tasks as JSON or YAML, as they would be created.

    \b
      parley task export @-1 > task.json
      parley task export --where mesh=backbone --where test=rtt -o yaml > tasks.yaml
      parley task import tasks.yaml

    Names of --where: mesh, campaign, reference, participant, test, requester. Tasks that other
    nodes lead are left out, and secrets: "(secret)" stands for them.
    """  # noqa: D301 - click's mark for lines to keep
    choice = choice_of(where)
    if every and not tasks and not choice.is_given:
        found = await listed_tasks(session, choice)
    else:
        found = await chosen_tasks(session, tasks, choice)
    document = {
        "parley_export": 1,
        "exported_at": format_instant(session.clock.now()),
        "tasks": await exported_tasks(session, found),
    }
    session.output.print_document(document)


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@options("--dry-run  Only show which tasks the file has.")
@asks_node
async def import_tasks(session: Session, /, file: str, dry_run: bool) -> int:
    """Create the tasks of a file: one of task export or admin export, or a list of documents.

    \b
      parley task import tasks.json
      parley task export @-1 | sed s/PT5M/PT1M/ | parley task import -

    The file has JSON or YAML. The same file imported again within a day creates nothing twice.
    """  # noqa: D301 - click's mark for lines to keep
    tasks = (await asyncio.to_thread(_read_content, file))["tasks"]
    work = MeshWorker(session.progress, session.clock, _AT_ONCE)
    made: Mapping[str, UUID] = {}
    if not dry_run:
        made = await create_tasks(session, tasks, work)
    records: list[dict[str, Any]] = [
        {
            "was": str(task["id"]),
            "id": str(made.get(str(task["id"]), "")),
            "test": (task["document"].get("test") or {}).get("type", ""),
        }
        for task in tasks
    ]
    session.output.print_list(records, IMPORTED_TASKS)
    for failure in work.failures():
        session.progress.note(f"not created: {failure['detail']} ({failure['count']} tasks)")
    return work.exit_code


FORMAT = 1
"""Version of the form of the file."""

_AT_ONCE = 8

KINDS = ("tasks", "campaigns", "pools", "archives", "reservations", "nodes")

EXPORTED = RecordLayout(f"file,{','.join(KINDS)}")
IMPORTED = RecordLayout(f"file,{','.join(KINDS)},left,dry_run")


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@asks_node
async def export(session: Session, file: Path) -> None:
    """Write what a node has been told, without its history, into FILE.

    \b
      parley admin export a.json
      parley --server https://new.example.net:8642 admin import a.json

    The file has campaigns, pools, open tasks, archives, reservations, the known nodes, and the
    limits. Runs and results stay where they are; a backup has them. Secrets of archives are not in
    the file: write them there before you import it. Webhooks are not in it either: add them there,
    with new secrets. The tasks that are led by other nodes come back
    by themselves as soon as those nodes know the new one.
    """  # noqa: D301 - click's mark for lines to keep
    if await asyncio.to_thread(file.exists):
        raise HostError(f"{file} exists; name a new file, or remove that one")
    client = session.client
    campaigns = await collect_all(session, client.campaigns, "reading campaigns")
    pools = await collect_all(session, client.pools, "reading pools")
    tasks = await exported_tasks(
        session, await listed_tasks(session, TaskChoice()), "; nothing was written"
    )
    content: dict[str, list[dict[str, Any]]] = {
        "campaigns": [
            each.model_dump(mode="json", include=set(CampaignDocument.model_fields))
            for each in _parents_first(campaigns)
            if each.name != DEFAULT
        ],
        "pools": [
            each.model_dump(mode="json", include=set(PoolDocument.model_fields) - {"lead"})
            for each in pools
        ],
        "tasks": tasks,
        **await _fetch_owner_state(session),
    }
    limits = (await client.limits()).model_dump(mode="json", include={"text", "digest"})
    head = {"parley_export": FORMAT, "exported_at": format_instant(session.clock.now())}
    text = json.dumps({**head, **content, "limits": limits}, indent=1, ensure_ascii=False) + "\n"
    try:
        await asyncio.to_thread(file.write_text, text)
    except OSError as error:
        raise HostError(f"{file} cannot be written: {reason_of(error)}") from error
    counts = {what: len(items) for what, items in content.items()}
    session.output.print_one({"file": str(file), **counts}, EXPORTED, _counted_view)


async def _fetch_owner_state(session: Session) -> dict[str, list[dict[str, Any]]]:
    """Return the archives, the reservations that are not over, and the other nodes."""
    client = session.client
    archives = await collect_all(session, client.archives, "reading archives")
    reservations = await collect_all(session, client.reservations, "reading reservations")
    fields = set(ReservationDocument.model_fields) - {"displace"}
    return {
        "archives": [
            each.model_dump(mode="json", include=set(ArchiveDocument.model_fields))
            for each in archives
        ],
        "reservations": [
            {"id": str(each.id), "document": each.model_dump(mode="json", include=fields)}
            for each in reservations
            if each.state != "over" and not each.name.startswith(DRAIN_NAME)
        ],
        "nodes": [
            {"name": node.name, "url": node.url, "identity": node.identity}
            for node in (await client.nodes()).items
            if not node.is_self
        ],
    }


def _counted_view(done: Record) -> str:
    return f"{done['file']}: " + ", ".join(f"{done[what]} {what}" for what in KINDS)


def _parents_first(campaigns: Iterable[Any]) -> list[Any]:
    """Return campaigns in an order in which each comes after its parent."""
    by_name = {each.name: each for each in campaigns}

    def depth(name: str | None) -> int:
        return 0 if name is None or name not in by_name else 1 + depth(by_name[name].parent)

    return sorted(by_name.values(), key=lambda each: (depth(each.parent), each.name))


async def exported_tasks(
    session: Session, listed: Iterable[Task], outcome: str = ""
) -> list[dict[str, Any]]:
    """Return tasks as the file has them, but those that other nodes lead, and those of seats.

    :raises HostError: one of them cannot be read; ``outcome`` says what follows.
    """
    led = [task for task in listed if task.led_here and task.parent is None]
    work = MeshWorker(session.progress, session.clock, _AT_ONCE)
    whole: dict[UUID, Task] = {}

    async def read(task: Task) -> None:
        whole[task.id] = await session.client.task(task.id)

    await work.each("read", led, lambda task: str(task.id), read)
    if work.exit_code:
        why = work.failures()[0]["detail"]
        raise HostError(f"not all tasks could be read: {why}{outcome}")
    return [exported_task(whole[task.id]) for task in led]


def exported_task(task: Task) -> dict[str, Any]:
    """Return id and document of a task, and whether it is paused, as the file has them. Pure."""
    shown = task.model_dump(mode="json")
    document = {
        name: shown[name]
        for name in ("test", "tools", "priority", "campaign", "reference")
        if shown[name] is not None
    }
    if shown["after"] is not None:
        document["after"] = shown["after"]
    else:
        schedule = {name: it for name, it in shown["schedule"].items() if it is not None}
        document["schedule"] = schedule
    if shown["pool"] is not None:
        document["participants"] = shown["pool"]
    contexts = {each.name: each.context for each in task.participants if each.context}
    if contexts:
        document["contexts"] = contexts
    if task.takes:
        document["takes"] = list(task.takes)
    if shown["archives"]:
        document["archives"] = shown["archives"]
    return {"id": shown["id"], "paused": task.state == TaskState.PAUSED, "document": document}


def one_off_document(task: Task) -> dict[str, Any]:
    """Return the task document that measures once, now, what a task measures. Pure."""
    document: dict[str, Any] = exported_task(task)["document"]
    document.pop("after", None)
    slip = (document.get("schedule") or {}).get("slip")
    document["schedule"] = {"slip": slip} if slip else {}
    if not task.led_here:
        document["participants"] = [each.name for each in task.participants]
    return document


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options("--dry-run  Only count what would be created.")
@asks_node
async def import_(session: Session, file: Path, *, dry_run: bool) -> int:
    """Create what FILE has on the node that is asked.

    \b
      parley admin import a.json --dry-run
      parley admin import a.json

    What is there already stays, so that an import that was interrupted is finished by importing
    again, within a day. The tasks are yours then: their requester is the label of your token. A
    task with max_runs has all of these runs before it. Limits are a file of the host: the command
    says where they differ. Other nodes have to add this one, too.
    """  # noqa: D301 - click's mark for lines to keep
    content = _read_content(str(file), " as an export")
    work = MeshWorker(session.progress, session.clock, _AT_ONCE)
    if dry_run:
        counts = await _missing_counts(session, content)
    else:
        await _create_all(session, content, work)
        counts = {what: work.done[what] for what in KINDS}
    await _report_limit_differences(session, file, content["limits"])
    record = {
        "file": str(file),
        **counts,
        "left": work.left,
        "failed": work.failures(),
        "dry_run": dry_run,
    }
    session.output.print_one(record, IMPORTED, _imported_view)
    return work.exit_code


async def _create_all(
    session: Session, content: Mapping[str, list[dict[str, Any]]], work: MeshWorker
) -> None:
    """Create everything; what needs another thing comes after it."""
    client = session.client

    async def add_node(node: dict[str, Any]) -> None:
        identity = str(node.get("identity"))
        is_keyed = kind_of(identity) is NodeKind.PARLEY
        known = NodeAddition(url=node.get("url"), identity=identity if is_keyed else None)
        try:
            await client.add_node(known)
        except PeerError as error:  # it is away, or does not know this one: no reason to wait
            raise Conflict(error.detail) from error

    for what, add in (
        ("nodes", add_node),
        ("campaigns", client.add_campaign),
        ("pools", client.add_pool),
        ("archives", client.add_archive),
    ):
        # One at a time: parents come first.
        await work.each(what, content[what], lambda it: str(it.get("name")), add, 1)
    made = await create_tasks(session, content["tasks"], work)

    async def reserve(reservation: dict[str, Any]) -> None:
        document = dict(reservation["document"])
        access = dict(document.get("access") or {})
        admitted = [str(made.get(task, task)) for task in access.get("tasks") or ()]
        document["access"] = {**access, "tasks": admitted}
        await client.add_reservation(document, key=f"import-{reservation['id']}")

    await work.each("reservations", content["reservations"], lambda it: str(it["id"]), reserve, 1)


async def _missing_counts(
    session: Session, content: Mapping[str, list[dict[str, Any]]]
) -> dict[str, int]:
    """Return how many of each kind would be created; tasks and reservations have no names."""
    client = session.client
    there: dict[str, Iterable[Any]] = {
        "campaigns": await collect_all(session, client.campaigns, "reading"),
        "pools": await collect_all(session, client.pools, "reading"),
        "archives": await collect_all(session, client.archives, "reading"),
        "nodes": (await client.nodes()).items,
    }
    counts = {what: len(content[what]) for what in KINDS}
    for what, known in there.items():
        names = {each.identity if what == "nodes" else each.name for each in known}
        key = "identity" if what == "nodes" else "name"
        counts[what] = sum(it.get(key) not in names for it in content[what])
    return counts


async def _report_limit_differences(
    session: Session, file: Path, limits: Sequence[Mapping[str, Any]]
) -> None:
    """Note where the host limits of this host differ from those in the file."""
    for each in limits:
        if each.get("digest") != (await session.client.limits()).digest:
            session.progress.note(
                f"the limits here are not those in {file}; write them to the file of limits "
                "(PARLEY_LIMITS), if they are to apply: its member limits.text"
            )


def _read_content(file: str, form: str = "") -> dict[str, list[dict[str, Any]]]:
    """Return the lists of documents in a file, or in standard input for ``-``, by kind.

    :raises HostError: it cannot be read.
    :raises InvalidDocument: it was not written by an export of a version that is understood.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, ValueError) as error:
        raise HostError(f"{file} cannot be read{form}: {reason_of(error)}") from error
    return parse_export(text, file)


def parse_export(text: str, file: str) -> dict[str, list[dict[str, Any]]]:
    """Return the lists of documents in the text of an export, or in a list of task documents.

    :raises InvalidDocument: it is none, or of a version that is not understood.
    """
    try:
        content = value_in(text)
    except ValueError as error:
        raise HostError(f"{file} cannot be read as an export: {error}") from error
    if isinstance(content, list):
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        tasks = [{"id": f"{digest}-{at}", "document": it} for at, it in enumerate(content)]
        content = {"parley_export": FORMAT, "tasks": tasks}
    form = content.get("parley_export") if isinstance(content, dict) else None
    if form != FORMAT:
        reason = f"is {form!r} in {file}, and this version reads {FORMAT}; see parley admin export"
        raise InvalidDocument([FieldFault("/parley_export", reason)])
    found = {what: content.get(what) or [] for what in KINDS}
    found["limits"] = [content["limits"]] if content.get("limits") else []
    for number, task in enumerate(found["tasks"]):
        sound = isinstance(task, dict) and {"id", "document"} <= task.keys()
        if not sound or not isinstance(task["document"], dict):
            reason = f"has no id or no document in {file}"
            raise InvalidDocument([FieldFault(f"/tasks/{number}", reason)])
    return found


async def create_tasks(
    session: Session, tasks: Sequence[dict[str, Any]], work: MeshWorker
) -> dict[str, UUID]:
    """Create tasks, those that follow others after these; pause those that were paused.

    Returns the new ids by those in the file.
    """
    client, made = session.client, dict[str, UUID]()

    posts = task_poster(client, _AT_ONCE)

    async def create(task: dict[str, Any]) -> None:
        document = dict(task["document"])
        if "after" in document:
            followed = str(document["after"]["task"])
            if followed not in made:
                raise Conflict(f"{followed}, which it follows, could not be created")
            document["after"] = {**document["after"], "task": str(made[followed])}
        made[task["id"]] = await posts.ask((document, f"import-{task['id']}"))
        if task.get("paused"):
            await client.pause_task(made[task["id"]])

    for generation in _generations(tasks):
        await work.each("tasks", generation, lambda task: str(task["id"]), create, _AT_ONCE * LIST)
    return made


def _generations(tasks: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield lists of tasks: each comes later than the one that it follows, if that is there."""
    left = {str(task["id"]): task for task in tasks}
    while left:
        ready = [
            task
            for task in left.values()
            if str((task["document"].get("after") or {}).get("task")) not in left
        ]
        ready = ready or list(left.values())  # a circle, which the node refuses
        for task in ready:
            del left[str(task["id"])]
        yield ready


def _imported_view(done: Record) -> str:
    """Describe what was created, and the failures by cause."""
    unfinished = unfinished_lines(done, lambda failure: f"{failure['verb']} not created", "import")
    return "\n".join([_counted_view(done), *unfinished])
