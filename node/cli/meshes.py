"""``parley mesh``: make what a mesh file says, see what it delivers, take it back."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from node.cli.failures import print_error_lines
from node.cli.listing import collect, collect_all, limit_option, print_truncation
from node.cli.meshapply import MeshWorker
from node.cli.meshfile import CONCURRENCY, MeshAnalysis, analyse_mesh, forecast_mesh
from node.cli.meshplan import PLAN, difference, plan_view, record_of, sentence
from node.cli.meshstatus import PAIR, not_applied_view, status_view, total_delivery
from node.cli.output import Column, Record, RecordLayout, printable, records_of
from node.cli.retrying import retry_while_silent
from node.cli.session import Session, asks_node
from node.cli.times import DURATION, local
from node.mesh.terms import idempotency_key
from node.model.errors import Conflict, InvalidDocument, NotFound
from node.model.taskstate import OPEN

if TYPE_CHECKING:
    from node.client.responses import Page
    from node.mesh.comparison import Cancellation, Creation, Edit
    from node.model.wire.meshes import Mesh, MeshTask

_EDITED = ("test", "schedule", "tools", "priority", "campaign", "reference")


def _tasks(counts: Record) -> str:
    said = ", ".join(f"{number} {state}" for state, number in counts.items())
    return f"removed ({said})" if set(counts) == {"cancelled"} else said


MESH = RecordLayout(
    columns=(
        Column("mesh", lambda mesh: mesh["name"], whole=True),
        Column("tasks", lambda mesh: _tasks(mesh["tasks"])),
        Column("campaigns", lambda mesh: " ".join(mesh["campaigns"])),
        Column("made", lambda mesh: local(mesh["created_at"]), whole=True),
        Column("changed", lambda mesh: local(mesh["changed_at"]), whole=True),
    ),
    fields=("name", "tasks", "campaigns", "created_at", "changed_at"),
    empty="No meshes. Make one: parley mesh apply FILE",
    key="name",
)

DONE = RecordLayout(
    columns=(),
    fields=("mesh", "created", "edited", "ended", "unchanged", "left"),
    empty="",
    key="mesh",
)

jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1, 64),
    default=CONCURRENCY,
    show_default=True,
    help="So many requests at a time.",
)


@click.group("mesh")
def mesh_group() -> None:
    """Apply, list and remove meshes, and see what they deliver."""


@mesh_group.command("apply")
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="Only say what would be done; see also: plan mesh.")
@jobs_option
@asks_node
async def apply(session: Session, file: str, dry_run: bool, jobs: int) -> int:
    """Make what exists what a mesh file says: create, edit and cancel tasks.

    \b
      parley mesh apply lab.toml
      parley mesh apply lab.toml --dry-run

    Doing it again does what is left to do, also after it was interrupted. Whatever else a node
    measures stays as it is: a task belongs to a mesh by its reference, {"mesh": NAME, "key": …}.
    """  # noqa: D301 - click's mark for lines to keep
    counsel = await forecast_mesh(session, await analyse_mesh(session, file), ())
    found = counsel.study
    if dry_run or found.stopped:
        session.output.one(record_of(counsel), PLAN, plan_view)
        return InvalidDocument.exit_code if found.stopped else 0
    session.progress.note("\n".join(found.sentences()))
    work = MeshWorker(session.progress, session.clock, jobs)
    await _do(session, found, work)
    compared = found.comparison
    done = _record(found.name, work, compared.unchanged)
    session.output.one(done, DONE, done_view)
    return work.exit_code


async def _do(session: Session, found: MeshAnalysis, work: MeshWorker) -> None:
    """What is in the way ends first; what is new comes last."""
    client, compared = session.client, found.comparison

    async def end(ending: Cancellation) -> None:
        await client.cancel_task(ending.task.id)

    async def edit(edit: Edit) -> None:
        try:
            await client.edit_task(edit.task.id, edit.patch)
        except Conflict:
            if not await _is_as_edited(session, edit):
                raise

    async def create(creation: Creation) -> None:
        key, pair, predecessor = creation
        document = found.terms[pair.measure].document(key, pair.source, pair.dest)
        await client.create_task(document, idempotency_key(document, predecessor))

    await work.each("ended", compared.end, lambda ending: ending.task.key, end)
    await work.each("edited", compared.edit, lambda edit: edit.task.key, edit)
    await work.each("created", compared.create, lambda creation: creation.key, create)


async def _is_as_edited(session: Session, edit: Edit) -> bool:
    """Whether an edit is done already: its answer may have been lost, or somebody was faster."""
    client, task = session.client, edit.task.id
    found = await client.task(task)
    patch = {**edit.patch, "revision": found.revision}
    edited = await client.edit_task(task, patch, dry_run=True)
    return all(getattr(edited, name) == getattr(found, name) for name in _EDITED)


def _record(name: str, work: MeshWorker, unchanged: int) -> dict[str, Any]:
    done = {verb: work.done[verb] for verb in ("created", "edited", "ended")}
    failures = work.failures()
    return {"mesh": name, **done, "unchanged": unchanged, "left": work.left, "failed": failures}


def done_view(done: Record) -> str:
    """What was done, and what failed by its cause."""
    parts = [f"{done[verb]} {verb}" for verb in ("created", "edited", "ended") if done[verb]]
    head = ", ".join([*parts, f"{done['unchanged']} unchanged"])
    lines = [f"mesh {done['mesh']}: {head}"]
    for failure in done["failed"]:
        count = f"{failure['count']} not {failure['verb']}, {failure['example']} among them"
        lines.append(printable(f"✗ {count}: {failure['detail']}"))
    if done["left"]:
        lines.append(f"✗ {done['left']} were not tried any more")
    if done["failed"]:
        lines.append("  To go on from here, do it again: only what is left is done")
    return "\n".join(lines)


@mesh_group.command("list")
@click.option("--all", "removed", is_flag=True, help="Also those that were removed.")
@limit_option
@asks_node
async def list_meshes(session: Session, removed: bool, limit: int) -> None:
    """List the meshes that this node leads; not those whose tasks were all cancelled."""

    async def page(size: int, cursor: str | None) -> Page[Mesh]:
        return await session.client.meshes(removed=removed, limit=size, cursor=cursor)

    found, more = await collect(page, limit)
    session.output.many(records_of(found), MESH)
    print_truncation(session, more=more)


@mesh_group.command("status")
@click.argument("mesh", metavar="NAME|FILE")
@click.option(
    "--since",
    type=DURATION,
    default="1d",
    show_default=True,
    help="How far back to look.",
)
@asks_node
async def status(session: Session, mesh: str, since: int) -> int:
    """Show what a mesh has delivered, by pair and cause; of a file also what differs.

    \b
      parley mesh status lab --since 7d
      parley mesh status lab.toml

    What was taken back before its time (edited, paused, cancelled) was not due. The exit code
    is 1 if a file differs from what there is, or nothing of it was applied yet.
    """  # noqa: D301 - click's mark for lines to keep
    found = await analyse_mesh(session, mesh) if _is_file(mesh) else None
    if found is not None and found.stopped:
        print_error_lines("\n".join(found.sentences()))
        return InvalidDocument.exit_code
    name = mesh if found is None else found.name
    client, now = session.client, session.clock.now()
    if found is not None and not found.existing:
        return _nothing_yet(session, found)
    ask = partial(client.mesh, name, now, now)
    first = found is None
    head = await (ask() if first else retry_while_silent(session.progress, session.clock, ask))
    from_, until = now - since, head.until
    counting = f"counting what mesh {name} has delivered"
    page = partial(client.mesh_pairs, name, from_, until)
    pairs = await collect_all(session, page, counting, " pairs")
    drift = None
    if found is not None:
        drift = {"sentence": sentence(found), **difference(found)}
    whole = head.model_copy(update={"since": from_, "delivery": total_delivery(pairs)})
    record = {**whole.model_dump(mode="json"), "pairs": records_of(pairs), "drift": drift}
    if session.output.format in {"csv", "ids", "jsonl"}:
        session.output.many(record["pairs"], PAIR)
    else:
        session.output.one(record, MESH, status_view)
    return 0 if found is None or found.comparison.nothing else 1


def _nothing_yet(session: Session, found: MeshAnalysis) -> int:
    """What a file would make, where nothing of it was applied; the exit code, as for any drift."""
    record = {"name": found.name, "drift": {"sentence": sentence(found), **difference(found)}}
    if session.output.format in {"csv", "ids", "jsonl"}:
        session.output.many([], PAIR)
    else:
        session.output.one(record, MESH, not_applied_view)
    return 1


def _is_file(word: str) -> bool:
    return word.endswith((".toml", ".json")) or "/" in word or Path(word).is_file()


@mesh_group.command("remove")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only say how many tasks it has.")
@jobs_option
@asks_node
async def remove(session: Session, name: str, dry_run: bool, jobs: int) -> int:
    """Cancel all tasks of a mesh; what they have measured stays."""
    found = await collect_all(
        session, partial(session.client.mesh_tasks, name), f"reading the tasks of mesh {name}"
    )
    if not found:
        msg = f"there is no mesh {name} led by this node; see: parley mesh list"
        raise NotFound(msg)
    standing = [task for task in found if task.state in OPEN]
    work = MeshWorker(session.progress, session.clock, jobs)
    if dry_run:
        session.progress.note(f"would cancel {len(standing)} tasks")
    else:

        async def end(task: MeshTask) -> None:
            await session.client.cancel_task(task.id)

        await work.each("ended", standing, lambda task: task.key, end)
    session.output.one(_record(name, work, len(standing) * dry_run), DONE, done_view)
    return work.exit_code
