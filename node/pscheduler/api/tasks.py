"""Tasks: posted, listed, shown, ended."""

from __future__ import annotations

import secrets

from aiohttp import web

from node.api.routing import THING
from node.model.errors import ParleyError
from node.model.wire.participants import INTRODUCTION_BYTES_MAX
from node.pscheduler import answers
from node.pscheduler.admission import refusal_of
from node.pscheduler.parameters import parse_json, uuid_of
from node.pscheduler.private_members import may_change
from node.pscheduler.refusals import Refusal
from node.pscheduler.requesters import Need
from node.pscheduler.routing import Call, Route
from node.pscheduler.telling import Shown, ToldTask


async def find_task(call: Call) -> ToldTask:
    """Return the task that a path names.

    :raises Refusal: 404, it is unknown here; 403, the key that was sent is not its own, or it was
        posted by somebody else whose tasks the caller does not see.
    """
    task = await call.facade.teller.task(uuid_of(call.words["task"], "Task"))
    if not knows_key(call, task):
        require_sight(call, None if task.record is None else task.record.requester)
    return task


def require_sight(call: Call, requester: str | None) -> None:
    """Check that the caller sees what was posted from an address; None is another way.

    :raises Refusal: 403, they see their own tasks only.
    """
    if call.requester.sole_address not in {None, requester}:
        raise Refusal(
            403,
            f"This task was not posted from {call.requester.address}, which sees its own tasks "
            "only; the owner lets networks read all tasks with PARLEY_PSCHEDULER_READ.",
        )


def knows_key(call: Call, task: ToldTask) -> bool:
    """Return whether the caller has sent the key of a task.

    :raises Refusal: 403, they sent another one.
    """
    given = call.query.text("key")
    own = task.key
    if given is None or own is None:
        return False
    if not secrets.compare_digest(given.encode(), own.encode()):
        raise Refusal(403, "Invalid task key")
    return True


def require_change(call: Call, task: ToldTask) -> None:
    """Check that the caller may change a task: it is theirs, or they know its key.

    :raises Refusal: 403, they may not.
    """
    record = task.record
    if record is None:
        raise Refusal(403, "This task was not created in the way of pScheduler; use parley.")
    knows_key(call, task)  # refuses another key than its own
    sealing, given = call.facade.node.core.sealing, call.query.text("key")
    if not may_change(sealing, record, given, call.requester.address):
        msg = "Not allowed: only who created the task, or knows its key, may change it."
        raise Refusal(403, msg)


def require_size(call: Call) -> None:
    """Check that the document of a task is no larger than one of another node may be.

    :raises Refusal: 413, it is.
    """
    if len(call.body) > INTRODUCTION_BYTES_MAX:
        raise Refusal(413, f"A task has at most {INTRODUCTION_BYTES_MAX} bytes here.")


async def create(call: Call) -> web.StreamResponse:
    """The URL of a new task; ``expanded``: 303 to the task itself."""
    require_size(call)
    parsed = parse_json(call.body, "Task")
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


async def list_tasks(call: Call) -> web.StreamResponse:
    """The tasks that were posted here, oldest first."""
    wanted = call.query.json("json") if call.query.has("json") else {}
    shown = Shown(call.query.flag("expanded"), call.query.flag("detail"))
    body = await call.facade.teller.task_list(wanted, call.base, shown, call.requester)
    return web.Response(body=body, content_type="application/json")


async def show(call: Call) -> web.StreamResponse:
    """A task."""
    task = await find_task(call)
    document = await call.facade.teller.document(
        task,
        call.base,
        call.host,
        detail=call.query.flag("detail"),
        viewer=call.requester.address,
        whole=knows_key(call, task),
    )
    return call.json(document)


async def end(call: Call) -> web.StreamResponse:
    """End a task and its runs; as often as anybody asks."""
    task = await find_task(call)
    require_change(call, task)
    await call.facade.end_task(task)
    return answers.done_response()


async def words(call: Call) -> web.StreamResponse:
    """The words of a command line that would measure the same."""
    task = await find_task(call)
    answer = call.json([task.spoken.test, *task.spoken.words])
    answer.content_type, answer.charset = answers.HTML, "utf-8"
    return answer


ROUTES = (
    Route("GET", "/tasks", list_tasks, Need.READ),
    Route("POST", "/tasks", create, Need.WRITE),
    Route("GET", "/tasks/{task}", show, Need.READ),
    Route("DELETE", "/tasks/{task}", end, Need.WRITE),
    Route("GET", "/tasks/{task}/cli", words, Need.READ),
)
