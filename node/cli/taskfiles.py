"""``parley task export`` and ``import``: tasks as a file, to keep, edit, and create again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from node.cli.bulk import choice_of, chosen_tasks, listed_tasks
from node.cli.meshapply import MeshWorker
from node.cli.options import options
from node.cli.output import Column, RecordLayout
from node.cli.session import Session, asks_node
from node.cli.transfer import create_tasks, exported_tasks, parse_export
from node.model.errors import HostError, reason_of
from node.model.times import format_instant

if TYPE_CHECKING:
    from uuid import UUID


_AT_ONCE = 8

IMPORTED = RecordLayout(
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
async def export(
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
async def import_(session: Session, /, file: str, dry_run: bool) -> int:
    """Create the tasks of a file: one of task export or admin export, or a list of documents.

    \b
      parley task import tasks.json
      parley task export @-1 | sed s/PT5M/PT1M/ | parley task import -

    The file has JSON or YAML. The same file imported again within a day creates nothing twice.
    """  # noqa: D301 - click's mark for lines to keep
    tasks = parse_export(await asyncio.to_thread(_text, file), file)["tasks"]
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
    session.output.print_list(records, IMPORTED)
    for failure in work.failures():
        session.progress.note(f"not created: {failure['detail']} ({failure['count']} tasks)")
    return work.exit_code


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, ValueError) as error:
        raise HostError(f"{file} cannot be read: {reason_of(error)}") from error
