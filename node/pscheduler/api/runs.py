"""Runs of a task, and their results in the forms that clients print."""

from __future__ import annotations

from uuid import UUID

from aiohttp import web

from node.api.long_polling import await_ready
from node.pscheduler import answers, documents
from node.pscheduler.api.tasks import find_task, knows_key, require_change
from node.pscheduler.documents import ToldRun
from node.pscheduler.parameters import parse_json, uuid_of
from node.pscheduler.posted import without_private_members
from node.pscheduler.refusals import Refusal, invalid
from node.pscheduler.requesters import Need
from node.pscheduler.routing import Call, Route
from node.pscheduler.telling import ToldTask
from node.pscheduler.tests.contract import Document
from node.pscheduler.tests.language import RUN_FAILED, RUN_FAILED_HTML
from node.store.pscheduler import ToldFilter

WAIT_S, WAIT_MAX_S = 30.0, 60.0
_AT_ONCE_S = 0.25
"""The time in which a result is awaited that nobody asks to wait for."""
_RUNS_MAX = 2000
_FORMATS = ("application/json", "text/plain", "text/html")


def _wait_s(call: Call, default: float) -> float:
    return min(call.query.seconds("wait", default), WAIT_MAX_S)


async def list_runs(call: Call) -> web.StreamResponse:
    """The URLs of a task's runs, by time."""
    task = await find_task(call)
    start, now = call.query.instant("start"), call.facade.node.clock.now()
    limit = call.query.integer("limit")
    if limit is not None and limit < 1:
        raise invalid("Argument 'limit' must be at least 1.")
    found = await call.facade.teller.runs(
        task,
        ToldFilter(
            task.id,
            ends_after=now if call.query.flag("upcoming") else None,
            starts_after=None if start is None else start - 1,
            ends_by=call.query.instant("end"),
            limit=min(limit or _RUNS_MAX, _RUNS_MAX),
        ),
    )
    runs = f"{call.base}/tasks/{task.id}/runs"
    return call.json([f"{runs}/{run.id}" for run in found])


async def show(call: Call) -> web.StreamResponse:
    """A run, at once or when it has its result; or the first or next one."""
    task = await find_task(call)
    run = await _find_run(call, task)
    whole = knows_key(call, task)
    document = documents.run_document(run, task.spoken, task.participants(call.host), call.base)
    archivings = await call.facade.teller.archivings(task, run, call.base)
    if archivings:
        document["archivings"] = archivings
    return call.json(document if whole else without_private_members(document))


async def _find_run(call: Call, task: ToldTask) -> ToldRun:
    """Return the run that a path names, after as much waiting as its query asks for."""
    local, merged = call.query.flag("wait-local"), call.query.flag("wait-merged")
    if local and merged:
        raise invalid("Cannot wait on local and merged results")
    seconds = _wait_s(call, WAIT_S)
    word = call.words["run"]
    waits = seconds if local or merged else 0
    if word not in {"first", "next"}:
        return await await_run(call, task, uuid_of(word, "Run"), waits)
    found = await _await_first_run(call, task, word, min(2 * seconds, WAIT_MAX_S))
    return found if found.state == "nonstart" else await await_run(call, task, found.id, waits)


async def await_run(call: Call, task: ToldTask, run: UUID, seconds: float) -> ToldRun:
    """Return a run when it is over, or as it is when the time is over."""

    async def fetch_run() -> tuple[ToldRun, bool]:
        current = await call.facade.teller.run(task, run)
        return current, current.state in documents.ENDED

    return await await_ready(call.facade.node, fetch_run, seconds)


async def _await_first_run(call: Call, task: ToldTask, word: str, seconds: float) -> ToldRun:
    """Return the first run of a task, or the first one that is not over.

    A run that has no time by the end of the waiting is told as one that does not start.
    """
    teller, node = call.facade.teller, call.facade.node

    async def fetch_run() -> tuple[ToldRun | None, bool]:
        since = node.clock.now() if word == "next" else None
        wanted = ToldFilter(task.id, ends_after=since, waiting=True, limit=1)
        found = await teller.runs(task, wanted)
        if found:
            return found[0], not found[0].trying
        ended = (await teller.task(task.id)).task.ended_at
        return None, ended is not None

    run = await await_ready(node, fetch_run, seconds)
    if run is None:
        raise Refusal(404, "No such run")
    return run


async def result(call: Call) -> web.StreamResponse:
    """The merged result of a run, as JSON or in a form for people."""
    task = await find_task(call)
    form = call.query.text("format") or _FORMATS[0]
    if form not in _FORMATS:
        raise invalid(f"Unsupported format '{form[:60]}'; there are: {', '.join(_FORMATS)}")
    if call.words["run"] == "first":
        identifier = (await _await_first_run(call, task, "first", 0)).id
    else:
        identifier = uuid_of(call.words["run"], "Run")
    run = await await_run(call, task, identifier, _wait_s(call, _AT_ONCE_S))
    merged = documents.result_of(run, task.spoken)
    if merged is None:
        raise Refusal(404, "No result available")
    if form == _FORMATS[0]:
        return call.json(without_private_members(merged))
    return answers.text_response(_formatted_result(task, merged, form), form)


def _formatted_result(task: ToldTask, merged: Document, form: str) -> str:
    if not merged.get("succeeded"):
        return RUN_FAILED if form == answers.PLAIN else RUN_FAILED_HTML
    language = task.spoken.language
    if language is None:
        raise invalid(f"The test {task.spoken.test} has no form for people here.")
    if form == answers.PLAIN:
        return language.text(task.spoken.spec, merged)
    page = language.html(task.spoken.spec, merged)
    if page is None:
        raise invalid(f"The test {task.spoken.test} has no form in HTML.")
    return page


async def create(call: Call) -> web.StreamResponse:
    """Refused; this node places the runs of its tasks itself."""
    task = await find_task(call)
    require_change(call, task)
    parse_json(call.body, "Run")
    raise Refusal(403, "This server schedules the runs of its tasks itself.")


ROUTES = (
    Route("GET", "/tasks/{task}/runs", list_runs, Need.READ),
    Route("POST", "/tasks/{task}/runs", create, Need.WRITE),
    Route("GET", "/tasks/{task}/runs/{run}", show, Need.READ),
    Route("GET", "/tasks/{task}/runs/{run}/result", result, Need.READ),
)
