"""``parley mesh apply``, ``status`` and ``remove``: meshes as files say, and what they deliver."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from node.cli.failures import print_error_lines
from node.cli.listing import collect_all
from node.cli.many_requests import LIST, MeshWorker, task_poster, unfinished_lines
from node.cli.meshes import MESH
from node.cli.meshfile import CONCURRENCY, MeshAnalysis, analyse_mesh, forecast_mesh
from node.cli.meshplan import (
    PLAN,
    change_summary,
    difference,
    keys_to_preview,
    plan_view,
    record_of,
)
from node.cli.options import options
from node.cli.outcomes import judgement_of, outcome_text
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    percent,
    readable_text,
    records_of,
    titled_lines,
)
from node.cli.retrying import retry_while_silent
from node.cli.session import Session, asks_node
from node.cli.times import local_time_text
from node.mesh.terms import idempotency_key
from node.model import times
from node.model.errors import (
    Conflict,
    InvalidDocument,
    NotFound,
)
from node.model.outcome import TROUBLE, Judgement
from node.model.taskstate import OPEN

if TYPE_CHECKING:
    from node.mesh.comparison import Cancellation, Creation, Edit
    from node.model.wire.meshes import MeshTask

PAIRS_MAX = 2_000
"""Maximum number of tasks of a mesh whose pairs are all read without being asked for."""
WORST = 15
"""The number of worst pairs that are read then."""

_LISTED = WORST
_WIDEST = 24
_LEAST = 2
_DENSE = 0.5
_CELL = 4


def share(delivery: Record) -> str:
    """Format the delivered share of the due runs as ``97.2 %``; a dash if none was due."""
    if not delivery["due"]:
        return "-"
    return percent(delivery["delivered"] / delivery["due"])


def _missing_reason(pair: Record) -> str:
    if not pair["causes"]:
        return ""
    first = pair["causes"][0]
    return f"{first['count']} {first['state']}: {first['example']}"


PAIR = RecordLayout(
    "key,test,source,dest,state,due,delivered,open,causes,bad,outcome.judgement",
    Column("measure", lambda pair: pair["key"].split("/")[0], whole=True),
    Column("source", lambda pair: pair["source"], whole=True),
    Column("dest", lambda pair: pair["dest"], whole=True),
    Column("state", lambda pair: pair["state"], whole=True),
    Column("outcome", outcome_text, whole=True, optional=True),
    Column("due", lambda pair: str(pair["due"]), whole=True),
    Column("delivered", share, whole=True),
    Column("bad", lambda pair: str(pair["bad"] or ""), whole=True, optional=True),
    Column("most frequent cause of missing runs", _missing_reason),
    empty="Nothing was due.",
)


def status_view(mesh: Record) -> str:
    """Describe the delivery of a mesh, and its differences from the file."""
    delivery = mesh["delivery"]
    tasks = ", ".join(f"{count} {state}" for state, count in mesh["tasks"].items())
    delivered = (
        f"{share(delivery)} of {delivery['due']} due delivered{_bad_text(delivery)}"
        if delivery["due"]
        else "nothing was due"
    )
    head = [
        f"mesh {mesh['name']}: {delivered}, {delivery['open']} in progress",
        f"  tasks: {tasks}",
        f"  from {local_time_text(mesh['since'])} to {local_time_text(mesh['until'])}",
    ]
    left_out = mesh["pairs_left_out"]
    sections = [head, _drift(mesh["drift"]), _causes(delivery), _worst_pair_lines(mesh["pairs"])]
    if left_out:
        sections.append(["Only the worst pairs are shown; -o csv or --all-pairs lists all of them"])
    else:
        sections += _matrices(mesh["pairs"])
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _bad_text(delivery: Record) -> str:
    return f", {delivery['bad']} of them bad or without an answer" if delivery["bad"] else ""


def not_applied_view(mesh: Record) -> str:
    """Describe a mesh that was never applied, and what applying its file would create."""
    head = f"mesh {mesh['name']}: nothing was applied yet; apply it: parley mesh apply FILE"
    return "\n\n".join([head, "\n".join(_drift(mesh["drift"]))])


def _drift(drift: Record | None) -> list[str]:
    if drift is None:
        return []
    rows = [["to create", key, ""] for key in drift["create"]]
    rows += [["to edit", edit["key"], "; ".join(edit["differences"])] for edit in drift["edit"]]
    rows += [["to end", ending["key"], ending["reason"]] for ending in drift["end"]]
    title = f"Compared with the file: {drift['sentence']}"
    return titled_lines(title, [list(map(readable_text, row)) for row in rows], _LISTED) or [title]


def _causes(delivery: Record) -> list[str]:
    rows = [
        [
            str(cause["count"]),
            f"{100 * cause['count'] / delivery['due']:.1f} %",
            cause["state"],
            readable_text(cause["cause"]),
        ]
        for cause in delivery["causes"][:_LISTED]
    ]
    return titled_lines("Missing, by cause", rows)


def _worst_pair_lines(pairs: list[dict[str, Any]]) -> list[str]:
    bad = [pair for pair in pairs if _good(pair) < pair["due"] or judgement_of(pair) in TROUBLE]
    if not bad:
        return []
    bad.sort(key=lambda pair: (_good(pair) / max(1, pair["due"]), pair["key"]))
    columns = [each for each in PAIR.columns if not each.optional or any(map(each.text, bad))]
    rows = [[column.text(pair) for column in columns] for pair in bad[:_LISTED]]
    headings = [column.heading for column in columns]
    lines = [headings, *rows]
    return titled_lines("Worst pairs", lines, count=len(bad) + 1, rest="-o csv lists all pairs")


def _good(pair: Record) -> int:
    """Return how many of its due slots have a result that is not bad."""
    return int(pair["delivered"] - pair["bad"])


def _matrices(pairs: list[dict[str, Any]]) -> list[list[str]]:
    """Return the lines of a matrix for each full mesh: rows to columns, in % of the due runs."""
    by_label: dict[str, dict[tuple[str, str], Record]] = defaultdict(dict)
    for pair in pairs:
        by_label[pair["key"].split("/")[0]][pair["source"], pair["dest"]] = pair
    return [lines for label, cells in by_label.items() if (lines := _matrix(label, cells))]


def _matrix(label: str, cells: dict[tuple[str, str], Record]) -> list[str]:
    sources = list(dict.fromkeys(source for source, _ in cells))
    dests = sorted({dest for _, dest in cells})
    if min(len(sources), len(dests)) < _LEAST or len(cells) < _DENSE * len(sources) * len(dests):
        return []
    if len(dests) > _WIDEST:
        size = f"{len(sources)} by {len(dests)}"
        return [f"{label}: {size} pairs are too many for a matrix; -o csv lists them"]
    rows = [[source, *(_cell(cells.get((source, dest))) for dest in dests)] for source in sources]
    title = f"{label}: delivered in %, from row to column (now ✗ wrong, ~ fair, ? stale)"
    return titled_lines(title, [["", *dests], *rows])


def _cell(pair: Record | None) -> str:
    if pair is None:
        return ""
    marks = dict.fromkeys(TROUBLE, "✗") | {Judgement.FAIR: "~", Judgement.STALE: "?"}
    mark = marks.get(judgement_of(pair) or Judgement.UNKNOWN, "")
    if not pair["due"]:
        return f"-{mark}".rjust(_CELL)
    return f"{int(100 * pair['delivered'] / pair['due'])}{mark}".rjust(_CELL)


_EDITS_AT_ONCE = 2
"""Number of edits in parallel: the node applies them one by one, and each may free many runs."""

_EDITED = ("test", "schedule", "after", "tools", "priority", "campaign", "reference")


DONE = RecordLayout("mesh,created,edited,ended,unchanged,left")

jobs_option = options(
    "--jobs 1..64  Number of requests in parallel.",
    default=CONCURRENCY,
    show_default=True,
)


@click.command("apply")
@click.argument("file")
@options("""
    --dry-run  Only show what would be done; see also: parley mesh plan.
    --spread   Choose all starts anew, also of tasks that exist; their runs move.
""")
@jobs_option
@asks_node
async def apply(session: Session, file: str, *, dry_run: bool, spread: bool, jobs: int) -> int:
    """Apply a mesh file: create, edit and cancel tasks until they match it.

    \b
      parley mesh apply lab.toml
      parley mesh apply lab.toml --dry-run

    Apply it again to do what is left, for example after an interruption. Other tasks of the
    nodes are not changed: a task belongs to a mesh by its reference, {"mesh": NAME, "key": …}.
    Tasks of a schedule with an interval and no start are spread over the interval, those that take
    their nodes for themselves so that no two meet. Tasks that exist keep their starts.
    """  # noqa: D301 - click's mark for lines to keep
    analysis = await analyse_mesh(session, file, spread=spread)
    forecast = await forecast_mesh(session, analysis, keys_to_preview(analysis))
    analysis = forecast.analysis
    if dry_run or analysis.stopped:
        session.output.print_one(record_of(forecast), PLAN, plan_view)
        return InvalidDocument.exit_code if analysis.stopped else 0
    session.progress.note("\n".join(analysis.sentences()))
    record, exit_code = await carry_out(session, analysis, jobs)
    if analysis.comparison.together:
        session.progress.note(f"! {change_summary(analysis)}")
    session.output.print_one(record, DONE, done_view)
    return exit_code


async def carry_out(
    session: Session, analysis: MeshAnalysis, jobs: int
) -> tuple[dict[str, Any], int]:
    """Make the tasks match an analysed file; return what was done, and the exit code."""
    work = MeshWorker(session.progress, session.clock, jobs)
    await _apply(session, analysis, work)
    return _record(analysis.name, work, analysis.comparison.unchanged), work.exit_code


async def _apply(session: Session, analysis: MeshAnalysis, work: MeshWorker) -> None:
    """End, edit, then create tasks: those that end must not occupy the time of new ones."""
    client, compared = session.client, analysis.comparison

    async def end(ending: Cancellation) -> None:
        await client.cancel_task(ending.task.id)

    async def edit(edit: Edit) -> None:
        try:
            await client.edit_task(edit.task.id, edit.patch)
        except Conflict:
            if not await _is_as_edited(session, edit):
                raise

    await work.each("ended", compared.end, lambda ending: ending.task.key, end)
    at_once = min(work.at_once, _EDITS_AT_ONCE)
    await work.each("edited", compared.edit, lambda edit: edit.task.key, edit, at_once)
    await _create(session, analysis, work)


async def _create(session: Session, analysis: MeshAnalysis, work: MeshWorker) -> None:
    """Create tasks, those that follow others after these."""
    present = dict(analysis.comparison.present)

    posts = task_poster(session.client, work.at_once)

    async def create(creation: Creation) -> None:
        key, pair, predecessor = creation
        terms = analysis.terms[pair.measure]
        followed = terms.followed_key(pair.source, pair.dest)
        if followed is not None and followed not in present:
            raise Conflict(f"{followed}, which it follows, could not be created")
        document = terms.document(key, pair.source, pair.dest, present.get(followed or ""))
        new = document, idempotency_key(document, predecessor)
        present[key] = await posts.ask(new)

    by_depth: dict[int, list[Creation]] = {}
    for creation in analysis.comparison.create:
        by_depth.setdefault(analysis.terms[creation.pair.measure].depth, []).append(creation)
    for _, creations in sorted(by_depth.items()):
        await work.each("created", creations, lambda it: it.key, create, LIST * work.at_once)


async def _is_as_edited(session: Session, edit: Edit) -> bool:
    """Return whether a task already is as the edit makes it: an answer was lost, for example."""
    client, task = session.client, edit.task.id
    current = await client.task(task)
    patch = {**edit.patch, "revision": current.revision}
    edited = await client.edit_task(task, patch, dry_run=True)
    return all(getattr(edited, name) == getattr(current, name) for name in _EDITED)


def _record(name: str, work: MeshWorker, unchanged: int) -> dict[str, Any]:
    done = {verb: work.done[verb] for verb in ("created", "edited", "ended")}
    failures = work.failures()
    return {"mesh": name, **done, "unchanged": unchanged, "left": work.left, "failed": failures}


def done_view(done: Record) -> str:
    """Return lines on what was created, edited, cancelled, and the failures by cause."""
    parts = [f"{done[verb]} {verb}" for verb in ("created", "edited", "ended") if done[verb]]
    head = ", ".join([*parts, f"{done['unchanged']} unchanged"])
    unfinished = unfinished_lines(done, lambda failure: f"not {failure['verb']}", "run")
    return "\n".join([f"mesh {done['mesh']}: {head}", *unfinished])


@click.command("status")
@click.argument("mesh", metavar="NAME|FILE")
@options(
    "--since DURATION  How far back to look; from a day on, to the begin of an hour.",
    default="1d",
    show_default=True,
)
@options(f"""
    --all-pairs  Show all pairs, also where they are more than {PAIRS_MAX:,}, which takes longer.
""")
@asks_node
async def status(session: Session, mesh: str, since: int, *, all_pairs: bool) -> int:
    """Show what a mesh has delivered, by pair and cause; for a file also what differs from it.

    \b
      parley mesh status lab --since 7d
      parley mesh status lab.toml

    Runs that were taken back before their time (edited, paused, cancelled) were not due. Of very
    many pairs the worst are shown; -o csv and --all-pairs have all. The exit
    code is 1 if a file differs from the existing tasks, or nothing of it was applied yet.
    """  # noqa: D301 - click's mark for lines to keep
    analysis = await analyse_mesh(session, mesh) if _is_file(mesh) else None
    if analysis is not None and analysis.stopped:
        print_error_lines("\n".join(analysis.sentences()))
        return InvalidDocument.exit_code
    name = mesh if analysis is None else analysis.name
    if analysis is not None and not analysis.existing:
        return _print_unapplied(session, analysis)
    drift = None
    if analysis is not None:
        drift = {"sentence": change_summary(analysis), **difference(analysis)}
    every = all_pairs or session.output.format in {"csv", "ids", "jsonl"}
    delivered = await _fetch_delivery(session, name, since, every=every)
    record = {**delivered, "drift": drift}
    if session.output.format in {"csv", "ids", "jsonl"}:
        session.output.print_list(record["pairs"], PAIR)
    else:
        session.output.print_one(record, MESH, status_view)
    return 0 if analysis is None or analysis.comparison.nothing else 1


async def _fetch_delivery(
    session: Session, name: str, since: int, *, every: bool
) -> dict[str, Any]:
    """Return a mesh and what it has delivered, with all pairs, or the worst ones of too many."""
    client, from_ = session.client, session.clock.now() - since
    if since >= times.DAY:
        from_ -= from_ % times.HOUR  # whole hours are summed up: no slot of them is read
    until = session.clock.now()
    ask = partial(retry_while_silent, session.progress, session.clock)
    whole, worst = await asyncio.gather(
        ask(partial(client.mesh, name, from_, until)),
        ask(partial(client.worst_mesh_pairs, name, from_, until, WORST)),
    )
    pairs, left_out = list(worst.items), not every and sum(whole.tasks.values()) > PAIRS_MAX
    if not left_out:
        counting = f"counting the runs delivered by mesh {name}"
        page = partial(client.mesh_pairs, name, from_, whole.until)
        pairs = await collect_all(session, page, counting, " pairs")
    record = whole.model_dump(mode="json")
    return {**record, "pairs": records_of(pairs), "pairs_left_out": left_out}


def _print_unapplied(session: Session, analysis: MeshAnalysis) -> int:
    """Print what a file that was never applied would create; return the exit code of a drift."""
    drift = {"sentence": change_summary(analysis), **difference(analysis)}
    record = {"name": analysis.name, "drift": drift}
    if session.output.format in {"csv", "ids", "jsonl"}:
        session.output.print_list([], PAIR)
    else:
        session.output.print_one(record, MESH, not_applied_view)
    return 1


def _is_file(word: str) -> bool:
    return word.endswith((".toml", ".json")) or "/" in word or Path(word).is_file()


@click.command("remove")
@click.argument("name")
@options("--dry-run  Only show how many tasks would be cancelled.")
@jobs_option
@asks_node
async def remove(session: Session, name: str, dry_run: bool, jobs: int) -> int:
    """Cancel all tasks of a mesh; their results stay."""
    tasks = await collect_all(
        session, partial(session.client.mesh_tasks, name), f"reading the tasks of mesh {name}"
    )
    if not tasks:
        raise NotFound(f"this node leads no mesh {name}; see: parley mesh list")
    open_tasks = [task for task in tasks if task.state in OPEN]
    work = MeshWorker(session.progress, session.clock, jobs)
    if dry_run:
        session.progress.note(f"would cancel {len(open_tasks)} tasks")
    else:

        async def end(task: MeshTask) -> None:
            await session.client.cancel_task(task.id)

        await work.each("ended", open_tasks, lambda task: task.key, end)
    session.output.print_one(_record(name, work, len(open_tasks) * dry_run), DONE, done_view)
    return work.exit_code
