"""Tasks: create, list, show, pause, resume, edit, cancel."""

from __future__ import annotations

from uuid import UUID

from aiohttp import web

from node.api import requests, responses, runs
from node.api.long_polling import until
from node.api.routing import (
    CURSOR,
    ID,
    INSTANT,
    LIMIT,
    NODE,
    PREFIX,
    TEXT,
    Access,
    Query,
    Route,
    waits,
)
from node.model import times
from node.model.errors import FieldFault, InvalidDocument, NotFound
from node.model.outcomes import UNANSWERED
from node.model.taskstate import TaskState
from node.model.wire.runs import Explanation, Run
from node.model.wire.seats import Seat, SeatCount, SeatRequest, SeatState
from node.model.wire.tasks import (
    Participant,
    Schedule,
    Task,
    TaskDocument,
    TaskPatch,
    TestChoice,
)
from node.plugins import choice
from node.plugins.choice import ToolOffer
from node.service import NodeService
from node.store import seats, tasks
from node.store.database import Record
from node.store.tasks import StoredTask

STATES = frozenset(TaskState)
_KEY_MAX = 200
_SOON = 5_000_000
_REASONS = 3
_NAMED = 5


def task_of(row: Record) -> Task:
    """A stored row as the API shows it."""
    return Task(
        id=row["id"],
        state=row["state"],
        reason=row["reason"],
        revision=row["revision"],
        paused_at=row["paused_at"],
        test=TestChoice(type=row["test"], spec=row["spec"]),
        tool=row["tool"],
        tools=tuple(row["tools"]),
        schedule=Schedule.model_validate(row["schedule"]),
        priority=row["priority"],
        scheduling_class=row["scheduling_class"],
        duration=row["duration"],
        participants=tuple(Participant.model_validate(p) for p in row["participants"]),
        lead=row["lead_name"] or row["lead"],
        led_here=bool(row["led_here"]),
        campaign=row["campaign"],
        reference=row["reference"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        next_run_at=row["next_run_at"],
        planned=row["planned"],
        plan_at=row["plan_at"],
        runs=row["runs"],
        pool=None if row["pool"] is None else SeatRequest.model_validate(row["pool"]),
        seats=None if row["seats"] is None else SeatCount.model_validate(row["seats"]),
        parent=row["parent"],
    )


async def fetch(node: NodeService, task: UUID) -> Task:
    """One task.

    :raises NotFound: there is none.
    """
    now = node.clock.now()
    async with node.database.connection() as connection:
        rows = await tasks.listed(connection, tasks.TaskFilter(task=task), now)
    if not rows:
        msg = f"there is no task {task} on this node"
        raise NotFound(msg)
    found, archived = task_of(rows[0]), await node.archives.of_task(task)
    why = _tool_reason(node, found)
    plan_at = None if found.plan_at is None else max(found.plan_at, now)  # what is due is next
    told = {"archives": archived, "tool_reason": why, "plan_at": plan_at}
    return found.model_copy(update=told)


def _tool_reason(node: NodeService, task: Task) -> str | None:
    """Why it has its tool; nothing where that was decided elsewhere, or seat by seat."""
    if task.tool is None or not task.led_here or not task.participants:
        return None
    try:
        spec = node.capabilities.spec(node.capabilities.test(task.test.type), task.test.spec)
    except InvalidDocument:  # kept by a version of this program that knew more
        return None
    answered = [ToolOffer(p.name, p.accepted, p.tools, p.lacks) for p in task.participants]
    return choice.explain_choice(task.test.type, task.tool, task.tools, spec, answered)


async def create(request: web.Request) -> web.StreamResponse:
    """POST: 201 with the task; a repeated Idempotency-Key gives the task made before."""
    node = request.app[NODE]
    document = requests.document(request, TaskDocument)
    task, _ = await node.admission.create(document, idempotency_key(request))
    answer = await fetch(node, task)
    return responses.one(answer, 201, {"Location": f"/v1/tasks/{task}"})


def idempotency_key(request: web.Request) -> str | None:
    """By which the same POST is known again."""
    key = request.headers.get("Idempotency-Key")
    if key is not None and not 1 <= len(key) <= _KEY_MAX:
        fault = FieldFault("Idempotency-Key", f"must have 1 to {_KEY_MAX} characters")
        raise InvalidDocument([fault])
    return key


async def list_(request: web.Request) -> web.StreamResponse:
    """GET: a page of tasks, newest first."""
    node = request.app[NODE]
    requests.only(request, "state", "test", "prefix", "seats", "parent", "limit", "cursor")
    at = requests.cursor(request)
    wanted = tasks.TaskFilter(
        states=requests.choices(request, "state", STATES),
        test=requests.word(request, "test"),
        prefix=requests.word(request, "prefix"),
        before_created=at[0] if at else None,
        before_task=at[1] if at else None,
        seats=requests.choices(request, "seats", frozenset({"true", "false"})) == ["true"],
        parent=requests.uuid(request, "parent"),
        limit=requests.limit(request),
    )
    async with node.database.connection() as connection:
        rows = await tasks.listed(connection, wanted, node.clock.now())
    full = len(rows) == wanted.limit
    following = requests.cursor_after(rows[-1]["created_at"], rows[-1]["id"]) if full else None
    return responses.many([task_of(row) for row in rows], following)


async def show(request: web.Request) -> web.StreamResponse:
    """GET: one task; with ``wait`` as soon as it has been planned."""
    node = request.app[NODE]
    requests.only(request, "wait")
    task = requests.identifier(request)

    async def planned() -> tuple[Task, bool]:
        found = await fetch(node, task)
        later = found.plan_at is not None and found.plan_at > node.clock.now() + _SOON
        # What is decided is "held" for a moment until it is committed here, too; and seats that
        # are given are planned next.
        seated = found.seats is not None and found.seats.taken > 0
        settled = found.planned and not found.runs.get("held") and not (seated and not found.runs)
        return found, settled or later or found.state != TaskState.ACTIVE or not found.led_here

    return responses.one(await until(node, planned, requests.seconds(request)))


async def pause(request: web.Request) -> web.StreamResponse:
    """POST: its runs to come are freed everywhere and no others planned; again is harmless."""
    node = request.app[NODE]
    task = requests.identifier(request)
    await node.editing.pause(task)
    return responses.one(await fetch(node, task))


async def resume(request: web.Request) -> web.StreamResponse:
    """POST: it is planned again from now on; again is harmless."""
    node = request.app[NODE]
    task = requests.identifier(request)
    await node.editing.resume(task)
    return responses.one(await fetch(node, task))


async def edit(request: web.Request) -> web.StreamResponse:
    """PATCH: the task with the changes; with ``dry_run`` as it would be, and nothing is changed."""
    node = request.app[NODE]
    requests.only(request, "dry_run")
    dry_run = requests.choices(request, "dry_run", frozenset({"true", "false"})) == ["true"]
    task = requests.identifier(request)
    patch = requests.document(request, TaskPatch)
    would_be = await node.editing.edit(task, patch, dry_run=dry_run)
    found = await fetch(node, task)
    if would_be is None:
        return responses.one(found)
    if "archives" in patch.model_fields_set:
        archived = await node.archives.edited(task, patch.archives or ())
        found = found.model_copy(
            update={"archives": found.archives if archived is None else archived.after}
        )
    return responses.one(_as_if(found, would_be))


def _as_if(found: Task, would_be: StoredTask) -> Task:
    """A task as it would be after an edit."""
    return found.model_copy(
        update={
            "revision": would_be.terms.revision,
            "test": TestChoice(type=would_be.terms.test, spec=would_be.terms.spec),
            "tool": would_be.terms.tool,
            "tools": would_be.terms.tools,
            "schedule": would_be.terms.schedule,
            "priority": would_be.terms.priority,
            "scheduling_class": would_be.terms.scheduling_class,
            "duration": would_be.terms.duration,
            "campaign": would_be.terms.campaign,
            "reference": would_be.terms.reference,
        }
    )


async def cancel(request: web.Request) -> web.StreamResponse:
    """DELETE: the task and its runs end, on every participant; again is harmless."""
    node = request.app[NODE]
    task = requests.identifier(request)
    await node.termination.cancel_task(task)
    return responses.one(await fetch(node, task))


async def seats_of(request: web.Request) -> web.StreamResponse:
    """GET: the seats of a pool task in the terms that are not over, in order."""
    node = request.app[NODE]
    requests.only(request, "from")
    task = await fetch(node, requests.identifier(request))
    since = requests.instant(request, "from") or node.clock.now()
    async with node.database.connection() as connection:
        rows = await seats.listed(connection, task.id, since)
    return responses.many([_seat_of(row, node.clock.now()) for row in rows], None)


def _seat_of(row: Record, now: int) -> Seat:
    state: SeatState
    if row["task"] is None:
        state = "empty"
    elif row["lost_at"] is not None:
        state = "lost"
    else:
        state = "over" if row["over_at"] <= now else "taken"
    return Seat(
        term=row["term"],
        until=row["until"],
        number=row["number"],
        state=state,
        node=row["name"] or row["node"],
        task=row["task"],
        reason=row["reason"] if state in {"empty", "lost"} else None,
        runs=row["runs"],
    )


async def runs_of(request: web.Request) -> web.StreamResponse:
    """GET: a page of the task's runs."""
    task = requests.identifier(request)
    await fetch(request.app[NODE], task)
    return await runs.page(request, task)


def _again(task: Task, plan_at: int, outcome: str) -> str:
    """When it is tried again, or that this would be too late."""
    end = task.schedule.until
    if end is not None and plan_at > end + (task.schedule.slip or 0):
        return f"not planned again: it ends before, at {times.to_the_second(end)}"
    verb = "asked" if outcome in UNANSWERED else "planned"
    return f"{verb} again at {times.to_the_second(plan_at)}"


async def explain(request: web.Request) -> web.StreamResponse:
    """GET: why the task's runs are where they are."""
    node = request.app[NODE]
    task = await fetch(node, requests.identifier(request))
    async with node.database.connection() as connection:
        decisions = await runs.decisions(connection, task.id, None, requests.limit(request))
        waits = await seats.waiting(connection, task.id, _REASONS) if task.pool else []
        before = await seats.before(connection, task.id, node.clock.now()) if task.pool else None
    counted = ", ".join(f"{count} {state}" for state, count in sorted(task.runs.items()))
    newest = decisions[0].sentence if decisions else _not_planned(node, task)
    lacks = bool(decisions) and not decisions[0].placed
    if task.seats is not None and decisions:
        # The newest decision may be of a term that is far away.
        newest, lacks = seats_in_words(task.seats), task.seats.taken < task.seats.wanted
    sentence = task.reason or newest
    if before is not None and task.state == TaskState.ACTIVE:
        sentence += f"; in pool {before[0]} {before[1]:,} terms are due before it, or beside it"
    elif not task.reason and lacks and task.plan_at is not None:
        sentence += f"; {_again(task, task.plan_at, decisions[0].outcome)}"
    sentence = "; ".join([sentence, *map(waiting_in_words, waits)])
    return responses.one(
        Explanation(
            task=task.id,
            run=None,
            state=task.state,
            sentence=f"{sentence} ({counted})" if counted else sentence,
            tool=task.tool,
            tool_reason=task.tool_reason,
            decisions=decisions,
        )
    )


def seats_in_words(seats: SeatCount) -> str:
    """How the seats of the term that is on, or of the next one, stand and why some are empty."""
    first, until = times.to_the_second(seats.term), times.to_the_second(seats.until)
    when = first if seats.until - seats.term < times.SECOND else f"{first} to {until}"
    said = f"{seats.taken} of {seats.wanted} seat{'' if seats.wanted == 1 else 's'}, {when}"
    empty = seats.wanted - seats.taken
    if not empty:
        return said
    why = seats.reason or "nodes are being looked for"
    return f"{said}; {empty} {'is' if empty == 1 else 'are'} empty: {why}"


def waiting_in_words(waits: seats.SeatWait) -> str:
    """What runs of seats wait for, as it is said at the pool task."""
    count, nodes = waits.runs, len(waits.nodes)
    some = f" and {nodes - _NAMED} more" if nodes > _NAMED else ""
    whose = f"seat{'' if nodes == 1 else 's'} of {', '.join(waits.nodes[:_NAMED])}{some}"
    runs_wait = f"{count} run{' waits' if count == 1 else 's wait'}"
    since = times.to_the_second(waits.slot)
    return f"{whose}: {runs_wait} from {since} on, because {waits.reason}"


def _not_planned(node: NodeService, task: Task) -> str:
    if not task.led_here:
        return f"it is planned by its lead, {task.lead}, which has the trace"
    if task.plan_at is None:
        return "nothing is left to plan"
    if task.plan_at > node.clock.now():
        return "its first run lies beyond the horizon; it is planned when it comes closer"
    return "it is about to be planned"


_SEATS = Query(
    "seats",
    "Also the ordinary tasks that have seats of pool tasks.",
    {"type": "boolean", "default": False},
)
_PARENT = Query("parent", "Only those of this pool task.", ID)
_WAIT = waits("there is something new")
DRY_RUN = Query(
    "dry_run",
    "Check it and ask the participants; answer the task as it would be, and change nothing.",
    {"type": "boolean", "default": False},
)
KEY = Query(
    "Idempotency-Key",
    "The same key again gives what was made before; kept for a day.",
    {"type": "string", "minLength": 1, "maxLength": 200},
)

ROUTES = (
    Route(
        "POST",
        "/v1/tasks",
        create,
        "Create a task",
        Access.WRITE,
        TaskDocument,
        Task,
        status=201,
        headers=(KEY,),
    ),
    Route(
        "GET",
        "/v1/tasks",
        list_,
        "List tasks, newest first",
        answer=Task,
        listed=True,
        query=(
            Query("state", "Comma-separated states.", TEXT),
            Query("test", "Only this test.", TEXT),
            PREFIX,
            _SEATS,
            _PARENT,
            LIMIT,
            CURSOR,
        ),
    ),
    Route("GET", "/v1/tasks/{id}", show, "Show a task", answer=Task, query=(_WAIT,)),
    Route(
        "PATCH",
        "/v1/tasks/{id}",
        edit,
        "Edit a task",
        Access.WRITE,
        TaskPatch,
        Task,
        query=(DRY_RUN,),
    ),
    Route(
        "POST",
        "/v1/tasks/{id}/pause",
        pause,
        "Pause a task: free its runs to come",
        Access.WRITE,
        answer=Task,
    ),
    Route(
        "POST", "/v1/tasks/{id}/resume", resume, "Resume a paused task", Access.WRITE, answer=Task
    ),
    Route(
        "DELETE", "/v1/tasks/{id}", cancel, "Cancel a task and its runs", Access.WRITE, answer=Task
    ),
    Route(
        "GET",
        "/v1/tasks/{id}/seats",
        seats_of,
        "List the seats of a pool task, term by term",
        answer=Seat,
        listed=True,
        query=(
            Query(
                "from",
                "Of terms that end after this instant; now unless said.",
                INSTANT,
            ),
        ),
    ),
    Route(
        "GET",
        "/v1/tasks/{id}/runs",
        runs_of,
        "List a task's runs",
        answer=Run,
        listed=True,
        query=runs.FILTERS,
    ),
    Route(
        "GET",
        "/v1/tasks/{id}/explain",
        explain,
        "Why its runs are where they are",
        answer=Explanation,
        query=(LIMIT,),
    ),
)
