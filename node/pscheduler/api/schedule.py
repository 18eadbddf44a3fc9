"""The schedule of this node, and what it does just now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from aiohttp import web

from node.model import times
from node.pscheduler import documents
from node.pscheduler.documents import ToldRun
from node.pscheduler.parameters import uuid_of
from node.pscheduler.refusals import invalid
from node.pscheduler.requesters import Need
from node.pscheduler.routing import Call, Route
from node.pscheduler.telling import ToldTask, told_run, tool_document
from node.pscheduler.tests.contract import Document
from node.store import pscheduler
from node.store.database import Record
from node.store.pscheduler import ToldFilter

ENTRIES_MAX = 5000
"""Maximum number of runs that one answer has."""
WINDOW_MAX = 500
_BACK = times.DAY


async def schedule(call: Call) -> web.StreamResponse:
    """The runs of a span, by start; without a start, from a day ago on."""
    form = call.query.text("format") or "json"
    if form != "json":
        raise invalid(f"Unsupported format '{form[:60]}'; the schedule is told as json only.")
    task = call.query.text("task")
    since = call.query.instant("start")
    wanted = ToldFilter(
        task=None if task is None else uuid_of(task.rpartition("/")[2], "Task"),
        ends_after=call.facade.node.clock.now() - _BACK if since is None else since,
        starts_before=call.query.instant("end"),
        limit=ENTRIES_MAX,
        requester=call.requester.sole_address,
    )
    async with call.facade.node.database.connection() as connection:
        rows = await pscheduler.find_runs(connection, wanted)
    return call.json([entry for _, entry in await _entries(call, rows)])


async def monitor(call: Call) -> web.StreamResponse:
    """The last runs, those under way, and the next ones; ``window`` is how many of each."""
    window = call.query.integer("window", 5) or 0
    if window < 0:
        raise invalid("Argument 'window' must not be negative.")
    size, now = min(window, WINDOW_MAX), call.facade.node.clock.now()
    whole = ToldFilter(limit=size, requester=call.requester.sole_address)
    running = replace(whole, ends_after=now, starts_before=now + 1, limit=WINDOW_MAX)
    async with call.facade.node.database.connection() as connection:
        past = await pscheduler.find_last_runs(connection, replace(whole, ends_by=now))
        present = await pscheduler.find_runs(connection, running)
        future = await pscheduler.find_runs(connection, replace(whole, starts_after=now))
    rows = [*reversed(past), *present, *future]
    told = []
    for run, entry in await _entries(call, rows):
        place = 1 if run.starts_at > now else -1 if run.ends_at <= now else 0
        rest = {k: v for k, v in entry.items() if k not in {"tool", "test", "errors"}}
        told.append({"ppf": place, **rest})
    return call.json(told)


async def _entries(call: Call, rows: Sequence[Record]) -> list[tuple[ToldRun, Document]]:
    """Return runs with their entries of the schedule; those of one task share its document."""
    now, base = call.facade.node.clock.now(), call.base
    known = await call.facade.teller.tasks(row["task"] for row in rows)
    shown: dict[UUID, tuple[Document, Document | None]] = {
        task: (_task_document(told, base), tool_document(told, base))
        for task, told in known.items()
    }
    entries = []
    for row in rows:
        told = known.get(row["task"])
        if told is None:  # deleted since
            continue
        document, tool = shown[told.id]
        run = told_run(dict(row), told.task, now)
        entries.append((run, documents.schedule_entry(run, told.spoken, document, tool, base)))
    return entries


def _task_document(told: ToldTask, base: str) -> Document:
    return {**told.shown(), "tool": told.task.terms.tool, "href": f"{base}/tasks/{told.id}"}


ROUTES = (
    Route("GET", "/schedule", schedule, Need.READ),
    Route("GET", "/monitor", monitor, Need.READ),
)
