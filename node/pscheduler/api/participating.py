"""Calls of a foreign lead, whose tasks this node takes part in."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from aiohttp import web

from node.api.long_polling import await_ready
from node.model.runstate import RunState
from node.pscheduler import answers, documents, times, tools
from node.pscheduler.api import plugins, runs, tasks
from node.pscheduler.parameters import parse_json, uuid_of
from node.pscheduler.participating import LedRun, LedTask, Offer
from node.pscheduler.posted import without_private_members
from node.pscheduler.refusals import Refusal, invalid
from node.pscheduler.requesters import Need
from node.pscheduler.routing import Call, Route
from node.pscheduler.tests.contract import Document

_REASONS_LEVEL = 6
"""From this level of the API on, it is told why a tool does not measure."""


async def take_part(call: Call) -> web.StreamResponse:
    """Take part in a task that the caller leads; the answer is its URL, not as JSON."""
    task = uuid_of(call.words["task"], "Task")
    place = call.query.integer("participant")
    if place is None or place < 1:
        raise invalid("Task error: participant must be a number from 1.")
    tasks.require_size(call)
    document = _body_document(call)
    participating = call.facade.participating
    await participating.introduce(task, place, call.requester.address, document)
    return answers.text_response(f"{call.base}/tasks/{task}", answers.HTML)


async def runtimes(call: Call) -> web.StreamResponse:
    """The ranges of time in which a run can take place; a lead may ask without its key."""
    task = await _readable_task(call)
    start, end = call.query.instant("start"), call.query.instant("end")
    if start is None or end is None:
        raise invalid("Missing start or end time")
    if end < start:
        raise invalid("End is before the start")
    displacing = call.query.integer("priority") is not None
    found = await call.facade.participating.runtimes(task, (start, end), displacing=displacing)
    told = [
        {"lower": times.format_instant(first), "upper": times.format_instant(last)}
        for first, last in found
    ]
    return call.json(told)


async def change_run(call: Call) -> web.StreamResponse:
    """Hold a run at a start, or keep it with the data of all participants."""
    task, run = await led_task(call), uuid_of(call.words["run"], "Run")
    document, participating = _body_document(call), call.facade.participating
    if "part-data-full" in document:
        data = document["part-data-full"]
        if not isinstance(data, list):
            raise invalid("part-data-full is not a list.")
        await participating.commit(task, run, data)
    elif "start-time" in document:
        await participating.hold(task, run, _start(document["start-time"]))
    else:
        raise invalid("A run of another lead takes start-time or part-data-full only.")
    return answers.done_response()


def _start(value: Any) -> int:
    if not isinstance(value, str):
        raise invalid("start-time is not a string.")
    try:
        return times.parse_instant(value)
    except ValueError as error:
        raise invalid(f"start-time: {error}") from None


async def give_up_run(call: Call) -> web.StreamResponse:
    """Give a run up; what measures is stopped."""
    task, run = await led_task(call), uuid_of(call.words["run"], "Run")
    await call.facade.participating.release(task, run)
    return answers.done_response()


async def end_task(call: Call) -> web.StreamResponse:
    """End a task here; its lead ends it for this node alone."""
    task = await call.facade.participating.find(uuid_of(call.words["task"], "Task"))
    if task is None:
        return await tasks.end(call)
    await call.facade.participating.end(await led_task(call))
    return answers.done_response()


async def list_tools(call: Call) -> web.StreamResponse:
    """All tools; with ``test``, those that measure it here together with other nodes."""
    if not call.query.has("test"):
        return await plugins.all_tools(call)
    test = call.query.json("test")
    if not isinstance(test, dict):
        raise invalid("Argument 'test' must be an object with type and spec.")
    offers = call.facade.participating.offers(test)
    return call.json(_offers_document(offers, call))


async def show_run(call: Call) -> web.StreamResponse:
    """This node's part of a run; with ``wait-local``, once there is one."""
    task = await call.facade.participating.find(uuid_of(call.words["task"], "Task"))
    if task is None or call.words["run"] in {"first", "next"}:
        return await runs.show(call)
    key = call.query.text("key")
    if key is not None:
        await led_task(call)  # refuses another key than its own
    else:
        tasks.require_sight(call, task.record.requester)
    if call.query.flag("wait-merged"):
        raise invalid("Only its lead merges a run; wait-local waits for the part of this node.")
    wait_s = 0.0
    if call.query.flag("wait-local"):
        wait_s = min(call.query.seconds("wait", runs.WAIT_S), runs.WAIT_MAX_S)
    found = await _await_run(call, task, uuid_of(call.words["run"], "Run"), wait_s)
    document = run_document(found, call.base, call.facade.node.clock.now())
    return call.json(document if key is not None else without_private_members(document))


async def _await_run(call: Call, task: LedTask, run: UUID, wait_s: float) -> LedRun:
    facade = call.facade

    async def fetch_run() -> tuple[LedRun, bool]:
        found = await facade.participating.run(task, run)
        return found, found.is_over

    return await await_ready(facade.node, fetch_run, wait_s)


def run_document(found: LedRun, base: str, now: int) -> Document:
    """Return this node's part of a run in the form of pScheduler."""
    run, task = found.run, found.task
    href = f"{base}/tasks/{run.task}"
    shown = "scheduled" if run.state is RunState.BOOKED else run.state
    state = documents.state_of(shown, run.starts_at, now)
    return {
        "start-time": times.format_instant(run.starts_at),
        "end-time": times.format_instant(run.ends_at),
        "duration": times.format_duration(run.ends_at - run.starts_at),
        "participant": run.participant,
        "participants": list(task.participants),
        "participant-data": found.data,
        "participant-data-full": run.part_data,
        "state": state,
        "state-display": documents.DISPLAY[state],
        "result": found.part,
        "result-full": None,
        "result-merged": None,
        "errors": run.reason,
        "priority": run.priority or None,
        "limit-diags": documents.NO_LIMITS,
        "added": times.format_instant(run.added_at),
        "href": f"{href}/runs/{run.run}",
        "task-href": href,
        "result-href": f"{href}/runs/{run.run}/result",
    }


def _offers_document(offers: list[Offer], call: Call) -> list[Document]:
    """Return the tools for a test, best first, as the level of the call wants them."""
    level = call.query.integer("api") or 1
    if level < _REASONS_LEVEL:
        able = [each for each in offers if not each.reasons]
        return [tools.tool_enumeration(each.tool, call.base) for each in able]
    return [
        {"can-run": _can_run(each), "tool": tools.tool_enumeration(each.tool, call.base)}
        for each in sorted(offers, key=lambda each: bool(each.reasons))
    ]


def _can_run(offer: Offer) -> Document:
    if not offer.reasons:
        return {"can-run": True}
    return {"can-run": False, "reasons": list(offer.reasons)}


async def led_task(call: Call) -> LedTask:
    """Return the task of a call that only its lead may make.

    :raises Refusal: there is no such task, or the caller is another one.
    """
    requester = call.requester
    return await call.facade.participating.task(
        uuid_of(call.words["task"], "Task"),
        key=call.query.text("key"),
        address=requester.address,
    )


async def _readable_task(call: Call) -> LedTask:
    """Return the task of a call that changes nothing.

    :raises Refusal: there is no such task, or the caller has sent another key than its own.
    """
    if call.query.has("key"):
        return await led_task(call)
    found = await call.facade.participating.find(uuid_of(call.words["task"], "Task"))
    if found is None:
        raise Refusal(404, "No such task.")
    tasks.require_sight(call, found.record.requester)
    return found


def _body_document(call: Call) -> Document:
    document = parse_json(call.body, "The body")
    if not isinstance(document, dict):
        raise invalid("The body is not a JSON object.")
    return document


ROUTES: tuple[Route, ...] = (
    Route("GET", "/tools", list_tools),
    Route("POST", "/tasks/{task}", take_part, Need.WRITE),
    Route("DELETE", "/tasks/{task}", end_task, Need.WRITE),
    Route("GET", "/tasks/{task}/runtimes", runtimes, Need.READ),
    Route("GET", "/tasks/{task}/runs/{run}", show_run, Need.READ),
    Route("PUT", "/tasks/{task}/runs/{run}", change_run, Need.WRITE),
    Route("DELETE", "/tasks/{task}/runs/{run}", give_up_run, Need.WRITE),
)
