"""Tasks: posted, listed, shown, ended."""

from __future__ import annotations

import secrets

from aiohttp import web

from node.api.routing import THING
from node.model.errors import ParleyError
from node.pscheduler import answers
from node.pscheduler.admission import refusal_of
from node.pscheduler.parameters import load, uuid_of
from node.pscheduler.refusals import Refusal
from node.pscheduler.requesters import Need
from node.pscheduler.routing import Call, Route
from node.pscheduler.telling import Shown, ToldTask


async def told(call: Call) -> ToldTask:
    """Return the task that a path names.

    :raises Refusal: 404, it is unknown here; 403, the key that was sent is not its own.
    """
    task = await call.facade.teller.task(uuid_of(call.words["task"], "Task"))
    knows_key(call, task)
    return task


def knows_key(call: Call, task: ToldTask) -> bool:
    """Return whether the caller has sent the key of a task.

    :raises Refusal: 403, they sent another one.
    """
    given = call.query.text("key")
    own = None if task.record is None else task.record.key
    if given is None or own is None:
        return False
    if not secrets.compare_digest(given.encode(), own.encode()):
        raise Refusal(403, "Invalid task key")
    return True


def require_change(call: Call, task: ToldTask) -> None:
    """Return if the caller may change a task: it is theirs, or they know its key.

    :raises Refusal: 403, they may not.
    """
    record = task.record
    if record is None:
        raise Refusal(403, "This task was not created in the way of pScheduler; use parley.")
    if knows_key(call, task) or call.requester.here:
        return
    if record.key is None and call.requester.address == record.requester:
        return
    raise Refusal(403, "Not allowed: only who created the task, or knows its key, may change it.")


async def create(call: Call) -> web.StreamResponse:
    """POST: the URL of a new task; ``expanded``: 303 to the task itself."""
    parsed = load(call.body, "Task")
    try:
        task = await call.facade.poster.post(parsed, call.requester, call.host)
    except ParleyError as error:
        raise refusal_of(error) from error
    call.request[THING] = str(task)
    href = f"{call.base}/tasks/{task}"
    if call.query.flag("expanded"):
        answer = call.json(href)
        answer.set_status(303)
        answer.headers["Location"] = href
        return answer
    return call.json(href)


async def listed(call: Call) -> web.StreamResponse:
    """GET: the tasks that were posted here, oldest first."""
    wanted = call.query.json("json") if call.query.has("json") else {}
    shown = Shown(call.query.flag("expanded"), call.query.flag("detail"))
    body = await call.facade.teller.listed(wanted, call.base, shown)
    return web.Response(body=body, content_type="application/json")


async def show(call: Call) -> web.StreamResponse:
    """GET: a task."""
    task = await told(call)
    document = await call.facade.teller.document(
        task,
        call.base,
        call.host,
        detail=call.query.flag("detail"),
        whole=knows_key(call, task),
    )
    return call.json(document)


async def end(call: Call) -> web.StreamResponse:
    """DELETE: end a task and its runs; as often as anybody asks."""
    task = await told(call)
    require_change(call, task)
    await call.facade.end_task(task)
    return answers.ok()


async def words(call: Call) -> web.StreamResponse:
    """GET: the words of a command line that would measure the same."""
    task = await told(call)
    answer = call.json([task.spoken.test, *task.spoken.words])
    answer.content_type, answer.charset = answers.HTML, "utf-8"
    return answer


ROUTES = (
    Route("GET", "/tasks", listed, Need.READ),
    Route("POST", "/tasks", create, Need.WRITE),
    Route("GET", "/tasks/{task}", show, Need.READ),
    Route("DELETE", "/tasks/{task}", end, Need.WRITE),
    Route("GET", "/tasks/{task}/cli", words, Need.READ),
)
