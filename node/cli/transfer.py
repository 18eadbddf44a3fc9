"""``parley admin export`` and ``import``: move what a node leads to another one, without history.

The file has documents as a user posts them: campaigns and pools, and the tasks that are not over,
among them those of meshes. Importing it again does what is left.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from node.cli.listing import collect_all
from node.cli.meshapply import MeshWorker, unfinished_lines
from node.cli.output import Record, RecordLayout
from node.cli.posting import LIST, posting
from node.cli.session import Session, asks_node
from node.model.errors import (
    Conflict,
    FieldFault,
    HostError,
    InvalidDocument,
    reason_of,
)
from node.model.taskstate import OPEN, TaskState
from node.model.times import format_instant
from node.model.wire.campaigns import DEFAULT, CampaignDocument
from node.model.wire.pools import PoolDocument

if TYPE_CHECKING:
    from node.model.wire.tasks import Task

FORMAT = 1
"""Version of the form of the file."""

_AT_ONCE = 8

EXPORTED = RecordLayout(
    columns=(), fields=("file", "campaigns", "pools", "tasks"), empty="", key="file"
)
IMPORTED = RecordLayout(
    columns=(), fields=("file", "campaigns", "pools", "tasks", "left"), empty="", key="file"
)


@click.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@asks_node
async def export(session: Session, file: Path) -> None:
    """Write the campaigns, pools and open tasks of a node, without their history, into FILE.

    \b
      parley admin export a.json
      parley --server https://new.example.net:8642 admin import a.json

    Runs and results stay where they are; a backup has them. Secrets of archives are not in the
    file: write them there before you import it. The tasks that are led by other nodes come back
    by themselves as soon as those nodes know the new one.
    """  # noqa: D301 - click's mark for lines to keep
    if await asyncio.to_thread(file.exists):
        msg = f"{file} exists; name a new file, or remove that one"
        raise HostError(msg)
    client = session.client
    campaigns = await collect_all(session, partial(_page, client.campaigns), "reading campaigns")
    pools = await collect_all(session, partial(_page, client.pools), "reading pools")
    states = ",".join(sorted(OPEN))
    page = partial(client.tasks, state=states, limit=500)
    listed = await collect_all(session, partial(_page, page), "reading tasks")
    led = [task for task in listed if task.led_here and task.parent is None]
    tasks: dict[UUID, Task] = {}
    work = MeshWorker(session.progress, session.clock, _AT_ONCE)

    async def read(task: Task) -> None:
        tasks[task.id] = await client.task(task.id)

    await work.each("read", led, lambda task: str(task.id), read)
    if work.exit_code:
        msg = f"not all tasks could be read: {work.failures()[0]['detail']}; nothing was written"
        raise HostError(msg)
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
        "tasks": [exported_task(tasks[task.id]) for task in led],
    }
    head = {"parley_export": FORMAT, "exported_at": format_instant(session.clock.now())}
    text = json.dumps({**head, **content}, indent=1, ensure_ascii=False) + "\n"
    try:
        await asyncio.to_thread(file.write_text, text)
    except OSError as error:
        raise HostError(f"{file} cannot be written: {reason_of(error)}") from error
    counts = {what: len(items) for what, items in content.items()}
    session.output.one({"file": str(file), **counts}, EXPORTED, _counted_view)


async def _page(fetch: Any, cursor: str | None) -> Any:
    return await fetch(cursor=cursor)


def _counted_view(done: Record) -> str:
    return (
        f"{done['file']}: {done['tasks']} tasks, {done['campaigns']} campaigns, "
        f"{done['pools']} pools"
    )


def _parents_first(campaigns: Iterable[Any]) -> list[Any]:
    """Return campaigns so that each comes after its parent."""
    by_name = {each.name: each for each in campaigns}

    def depth(name: str | None) -> int:
        return 0 if name is None or name not in by_name else 1 + depth(by_name[name].parent)

    return sorted(by_name.values(), key=lambda each: (depth(each.parent), each.name))


def exported_task(task: Task) -> dict[str, Any]:
    """Return a task as the file has it: its document, and what an import does with it. Pure."""
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
    if shown["archives"]:
        document["archives"] = shown["archives"]
    return {"id": shown["id"], "paused": task.state == TaskState.PAUSED, "document": document}


def one_off(task: Task) -> dict[str, Any]:
    """Return the document of a task that measures once, now, what another one measures. Pure."""
    document: dict[str, Any] = exported_task(task)["document"]
    document.pop("after", None)
    slip = (document.get("schedule") or {}).get("slip")
    document["schedule"] = {"slip": slip} if slip else {}
    if not task.led_here:
        document["participants"] = [each.name for each in task.participants]
    return document


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@asks_node
async def import_(session: Session, file: Path) -> int:
    """Create the campaigns, pools and tasks that FILE has on the node that is asked.

    \b
      parley admin import a.json

    What is there already stays, so that an import that was interrupted is finished by importing
    again, within a day. The tasks are yours then: their requester is the label of your token. A
    task with max_runs has all of these runs before it.
    """  # noqa: D301 - click's mark for lines to keep
    content = _read(file)
    work = MeshWorker(session.progress, session.clock, _AT_ONCE)
    client = session.client
    for what, add in (("campaigns", client.add_campaign), ("pools", client.add_pool)):
        # One at a time: parents come first.
        await work.each(what, content[what], lambda it: str(it.get("name")), add, 1)
    await create_tasks(session, content["tasks"], work)
    done = {what: work.done[what] for what in ("campaigns", "pools", "tasks")}
    record = {"file": str(file), **done, "left": work.left, "failed": work.failures()}
    session.output.one(record, IMPORTED, _imported_view)
    return work.exit_code


def _read(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what a file has.

    :raises InvalidDocument: it was not written by an export of a version that is understood.
    """
    try:
        text = file.read_text()
    except (OSError, ValueError) as error:
        msg = f"{file} cannot be read as an export: {reason_of(error)}"
        raise HostError(msg) from error
    return read_export(text, str(file))


def read_export(text: str, file: str) -> dict[str, list[dict[str, Any]]]:
    """Return what the text of an export has, or of a list of task documents.

    :raises InvalidDocument: it is none, or of a version that is not understood.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        msg = f"{file} cannot be read as an export: {error}"
        raise HostError(msg) from error
    if isinstance(content, list):
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        tasks = [{"id": f"{digest}-{at}", "document": it} for at, it in enumerate(content)]
        content = {"parley_export": FORMAT, "tasks": tasks}
    form = content.get("parley_export") if isinstance(content, dict) else None
    if form != FORMAT:
        reason = f"is {form!r} in {file}, and this version reads {FORMAT}; see parley admin export"
        raise InvalidDocument([FieldFault("/parley_export", reason)])
    found = {what: content.get(what) or [] for what in ("campaigns", "pools", "tasks")}
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

    posts = posting(client, _AT_ONCE)

    async def create(task: dict[str, Any]) -> None:
        document = dict(task["document"])
        if "after" in document:
            followed = str(document["after"]["task"])
            if followed not in made:
                msg = f"{followed}, which it follows, could not be created"
                raise Conflict(msg)
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
