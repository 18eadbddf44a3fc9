"""Routes of tasks, their runs, seats, and explanation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from aiohttp import web

from node.api import requests, responses, runs
from node.api.conditions import matched_revision
from node.api.long_polling import await_ready
from node.api.routing import (
    CLASSES,
    CURSOR_BY_KEY,
    ID,
    INSTANT,
    LIMIT,
    MEASURED,
    NODE,
    PREFIX,
    PRINCIPAL,
    REQUESTER,
    THING,
    TRIAL,
    WORD,
    Query,
    Route,
    fields_query,
    wait_query,
    words_schema,
)
from node.model import times
from node.model.changes import patched_document
from node.model.errors import (
    FieldFault,
    InvalidDocument,
    NotAllowed,
    NotFound,
    NoTime,
    PeerUnreachable,
)
from node.model.headline import headline
from node.model.host_limits.rules import User
from node.model.named_archives import require_archives
from node.model.outcome import Judgement
from node.model.outside_leads import is_told_as_outside, lead_in_words
from node.model.permissions import require_own
from node.model.principals import Principal
from node.model.secrets import without_sealed
from node.model.task_terms import TaskTerms, take_terms
from node.model.taskstate import TaskState
from node.model.wire.campaigns import DEFAULT
from node.model.wire.outcomes import JudgedOutcome
from node.model.wire.plans import Outcome, PlanRequest
from node.model.wire.problems import Problem, problem_of
from node.model.wire.runs import Explanation, Run
from node.model.wire.seats import NOT_SEARCHED, Seat, SeatCount, SeatRequest, SeatState
from node.model.wire.task_lists import KEY_MAX, TASKS_MAX, ListedTask, TaskCreation
from node.model.wire.tasks import (
    LatestRun,
    Task,
    TaskDocument,
    TaskPatch,
    TestChoice,
)
from node.plugins import choice
from node.plugins.choice import ToolOffer
from node.service import NodeService
from node.store import meshes, seats, tasks
from node.store import runs as runs_store
from node.store.database import Record
from node.store.meshes import RefusedPair
from node.tasks.explanation import explain_missing_slot, explain_task, stands_for

STATES = frozenset(TaskState)
OUTCOMES = frozenset(Judgement)
SORTS = frozenset({"created", "next", "name", "mesh", "state"})
_SOON = 5_000_000
_FAULTS = 500
_NAME_MAX = 1000
_MESH_MAX = 63
_MESH_KEY_MAX = 400
_REASON_MAX = 1000
_REASONS = 3
_WITHOUT_TIME = {Outcome.NO_TIME, Outcome.CLOCK}


def task_of(row: Record) -> Task:
    """Return a row of the query ``tasks`` as a document of the API."""
    values = dict(row)
    terms = take_terms(values)
    pool = None if values["pool"] is None else SeatRequest.model_validate(values["pool"])
    return Task(
        **_editable_fields(terms, pool),
        waiting=values["waiting"],
        reference_left_out=values["reference_left_out"],
        id=values["id"],
        state=values["state"],
        reason=values["reason"],
        paused_at=values["paused_at"],
        participants=terms.participants,
        takes=terms.takes,
        lead=values["lead_name"] or lead_in_words(values["lead"]),
        led_here=bool(values["led_here"]),
        created_at=terms.created_at,
        ended_at=values["ended_at"],
        next_run_at=values["next_run_at"],
        planned=values["planned"],
        plan_at=values["plan_at"],
        runs=values["counts"]["runs"],
        judgements=values["counts"]["judgements"],
        latest=None if values["latest"] is None else LatestRun.model_validate(values["latest"]),
        outcome=JudgedOutcome.told(
            **{"ended_at": None, **values["outcome"]},
            lead=values["lead_name"] or lead_in_words(values["lead"]),
        ),
        pool=pool,
        seats=None if values["seats"] is None else _seat_count(values["seats"]),
        parent=values["parent"],
        requester=values["requester"],
    )


def headline_of(row: Record) -> str:
    """Return the headline of a row of the query ``measured_tasks``."""
    pool = None if row["pool"] is None else SeatRequest.model_validate(row["pool"])
    return headline(row["test"], row["participants"], row["spec"], pool)


def _seat_count(stored: Mapping[str, Any]) -> SeatCount:
    count = SeatCount.model_validate(stored)
    if count.taken == count.wanted or count.reason is not None:
        return count
    return count.model_copy(update={"reason": NOT_SEARCHED})


def _editable_fields(terms: TaskTerms, pool: SeatRequest | None) -> dict[str, Any]:
    """Return the fields of a task's document that an edit may change, with their values."""
    names = [participant.name for participant in terms.participants]
    return {
        "headline": headline(terms.test, names, terms.spec, pool),
        "revision": terms.revision,
        "test": TestChoice(type=terms.test, spec=without_sealed(terms.spec)),
        "tool": terms.tool,
        "tools": terms.tools,
        "schedule": terms.schedule.times,
        "after": terms.schedule.after,
        "priority": terms.priority,
        "scheduling_class": terms.scheduling_class,
        "duration": terms.duration,
        "campaign": terms.campaign,
        "reference": terms.reference,
    }


async def fetch(node: NodeService, task: UUID) -> Task:
    """Return one task.

    :raises NotFound: there is none.
    """
    now = node.clock.now()
    async with node.database.connection() as connection:
        rows = await tasks.find_page(connection, tasks.TaskFilter(task=task), now)
        if not rows:
            msg = f"there is no task {task} on this node"
            raise NotFound(msg)
        archives = await node.archives.of_task(connection, task)
    stored = task_of(rows[0])
    plan_at = None if stored.plan_at is None else max(stored.plan_at, now)  # overdue means now
    return stored.model_copy(
        update={
            "archives": archives,
            "tool_reason": _tool_reason(node, stored),
            "plan_at": plan_at,
        }
    )


def _tool_reason(node: NodeService, task: Task) -> str | None:
    """Return why the task has its tool; ``None`` if another node, or each seat, decides that."""
    if task.tool is None or not task.led_here or not task.participants:
        return None
    try:
        spec = node.capabilities.spec(node.capabilities.test(task.test.type), task.test.spec)
    except InvalidDocument:  # stored by a newer version of this program
        return None
    offers = [ToolOffer(p.name, p.accepted, p.tools, p.lacks) for p in task.participants]
    return choice.explain_choice(task.test.type, task.tool, task.tools, spec, offers)


async def create(request: web.Request) -> web.StreamResponse:
    """Answer 201 with the task; a repeated Idempotency-Key gives the existing task.

    For a list of tasks 200, with the id or the problem of each. 429 where so many wait that this
    one would wait too long.
    """
    node = request.app[NODE]
    if requests.is_list(request):
        return await _create_several(request)
    requests.refuse_other_parameters(request, "if_time")
    document = requests.document(request, TaskDocument)
    await require_may_post(node, request[PRINCIPAL], document)  # a refusal needs no place
    async with node.creation_gate.place(request[PRINCIPAL].name):
        if requests.flag(request, "if_time"):
            await _require_time(node, document, user_of(request, document.campaign))
        task = await _admit(request, document, idempotency_key(request))
        answer = await fetch(node, task)
    return responses.document_response(answer, 201, {"Location": f"/v1/tasks/{task}"})


async def _admit(
    request: web.Request, document: TaskDocument, key: str | None, place: int = 0
) -> UUID:
    user = user_of(request, document.campaign)
    task, _ = await request.app[NODE].admission.create(document, key, user, place=place)
    return task


async def _create_several(request: web.Request) -> web.StreamResponse:
    """Create the tasks of a list; each is created or refused as if it came alone."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request)
    if "Idempotency-Key" in request.headers:
        reason = "is for one task; in a list each has its own: idempotency_key"
        raise InvalidDocument([FieldFault("Idempotency-Key", reason)])
    items = requests.document_list(request, TASKS_MAX)
    request[THING] = f"{len(items)} tasks"
    async with node.creation_gate.place(request[PRINCIPAL].name, len(items)):
        # The tasks that a user may have are the first ones of the list, as the plan says.
        at_once = 1 if node.limits.counts_tasks_of(user_of(request, None)) else len(items)
        outcomes: list[UUID | BaseException] = []
        while (done := len(outcomes)) < len(items):
            some = enumerate(items[done : done + at_once], done)
            outcomes += await asyncio.gather(
                *(_create_listed(request, item, place) for place, item in some),
                return_exceptions=True,
            )
    creations = []
    refused = []
    for item, outcome in zip(items, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            problem = problem_of(responses.error_of(outcome))
            creations.append(TaskCreation(problem=problem))
            refused.append(_refused_pair(item, problem))
        else:
            creations.append(TaskCreation(task=outcome))
    if pairs := [pair for pair in refused if pair is not None]:
        async with node.database.transaction() as connection:
            requester = user_of(request, None).token
            await meshes.keep_refusals(connection, pairs, requester, node.clock.now())
    return responses.list_response(creations)


def _refused_pair(item: Any, problem: Problem) -> RefusedPair | None:
    """Return the pair of a mesh that an item was for; None if none was, or the node is at fault."""
    reference = item.get("reference") if isinstance(item, dict) else None
    test = item.get("test") if isinstance(item, dict) else None
    if not isinstance(reference, dict) or not isinstance(test, dict) or problem.status >= _FAULTS:
        return None
    names = ("mesh", "key", "source", "dest")
    told = [reference.get(name) for name in names] + [test.get("type")]
    texts = [each for each in told if isinstance(each, str) and len(each) <= _NAME_MAX]
    if len(texts) < len(told) or len(texts[0]) > _MESH_MAX or len(texts[1]) > _MESH_KEY_MAX:
        return None
    mesh, key, source, dest, kind = texts
    return RefusedPair(mesh, key, source, dest, kind, problem.detail[:_REASON_MAX])


async def _create_listed(request: web.Request, item: Any, place: int) -> UUID:
    key = item.pop("idempotency_key", None) if isinstance(item, dict) else None
    document = requests.item(item, TaskDocument)
    await require_may_post(request.app[NODE], request[PRINCIPAL], document)
    return await _admit(request, document, None if key is None else _checked_key(key), place)


def user_of(request: web.Request, campaign: str | None) -> User:
    """Return who asks for a task of a campaign, as limits see them."""
    return User.of(request[PRINCIPAL], campaign or DEFAULT, request.remote)


async def require_may_post(
    node: NodeService, user: Principal, document: TaskDocument | TaskPatch
) -> None:
    """Check that a user may say what their document says of others.

    :raises NotAllowed: it sends results elsewhere, follows the task of another user, or uses a
        secret that is not for them.
    """
    require_archives(user, document.archives or (), node.settings.named_archives)
    if user.bound is not None and isinstance(document, TaskDocument):
        await _require_secrets(node, user.bound, document.test)
    followed = _followed_task(document)
    if followed is not None and user.only is not None:
        async with node.database.connection() as connection:
            requester = await tasks.requester(connection, followed)
        require_own(user, requester, f"task {followed}")


async def _require_secrets(node: NodeService, user: str, test: TestChoice) -> None:
    """Check that a user who is bound may use the owner's secrets that their task names.

    :raises NotAllowed: one does not name them.
    """
    names = node.drafter.secrets.names_in(test.type, test.spec)
    if (refusal := await node.secrets.refusal(names, user)) is not None:
        raise NotAllowed(refusal)


def _followed_task(document: TaskDocument | TaskPatch) -> UUID | None:
    """Return the task that a document is to follow; None if it names none in a valid form."""
    if isinstance(document.after, Mapping):
        with contextlib.suppress(ValueError):
            return UUID(str(document.after.get("task")))
        return None
    return None if document.after is None else document.after.task


async def _require_time(node: NodeService, document: TaskDocument, user: User) -> None:
    """Check that a task would find time for one of its runs now, or may do so when it is closer.

    :raises NoTime: it would find none; the error has what would.
    :raises PeerUnreachable: a participant does not say whether it has time.
    """
    posted = document.model_dump(mode="json", exclude_unset=True)
    plan = await node.preview.plan(PlanRequest.model_validate(posted), user)
    if plan.outcome is Outcome.UNREACHABLE:
        raise PeerUnreachable(plan.sentence)
    if plan.outcome in _WITHOUT_TIME:
        nearest = [f"{number}. {it.differs}" for number, it in enumerate(plan.alternatives, 1)]
        instead = f"; what would find time: {'; '.join(nearest)}" if nearest else ""
        msg = f"{plan.sentence}{instead}"
        raise NoTime(msg, plan.alternatives)


def idempotency_key(request: web.Request) -> str | None:
    """Return the key by which a repeated POST is recognised."""
    key = request.headers.get("Idempotency-Key")
    return None if key is None else _checked_key(key, "Idempotency-Key")


def _checked_key(key: Any, place: str = "/idempotency_key") -> str:
    text = key if isinstance(key, str) else ""
    if not (1 <= len(text) <= KEY_MAX and text.isascii() and text.isprintable()):
        raise InvalidDocument([FieldFault(place, f"must have 1 to {KEY_MAX} ASCII characters")])
    return text


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of tasks, newest first, or in another order."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, *(query.name for query in FILTERS))
    only = requests.fields(request, Task)
    sort = requests.choice(request, "sort", SORTS) or "created"
    order = requests.choice(request, "order", frozenset({"asc", "desc"}))
    at = requests.cursor(request) if sort == "created" else None
    place = None if sort == "created" else requests.placed_cursor(request)
    last = at or place
    wanted = tasks.TaskFilter(
        states=requests.choices(request, "state", STATES),
        test=requests.word(request, "test"),
        prefix=requests.word(request, "prefix"),
        before_created=at[0] if at else None,
        before_task=last[1] if last else None,
        seats=requests.flag(request, "seats"),
        parent=requests.uuid(request, "parent"),
        requester=requests.requester(request),
        limit=requests.limit(request),
        participant=requests.text(request, "participant"),
        target=requests.text(request, "target"),
        campaign=requests.word(request, "campaign"),
        mesh=requests.word(request, "mesh"),
        classes=requests.choices(request, "class", CLASSES),
        outcomes=requests.choices(request, "outcome", OUTCOMES),
        words=requests.search_words(request),
        sort=sort,
        descending=order == "desc" or (order is None and sort == "created"),
        after_place=place[0] if place else None,
    )
    async with node.database.connection() as connection:
        rows = await tasks.find_page(connection, wanted, node.clock.now())
    key = "created_at" if sort == "created" else "place"
    following = requests.next_cursor(rows, wanted.limit, lambda row: (row[key], row["id"]))
    return responses.list_response([task_of(row) for row in rows], following, only)


async def show(request: web.Request) -> web.StreamResponse:
    """One task; with ``wait``, when it has been planned."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, "wait")
    task = requests.identifier(request)

    async def fetch_planned() -> tuple[Task, bool]:
        current = await fetch(node, task)
        later = current.plan_at is not None and current.plan_at > node.clock.now() + _SOON
        # A task that waits for runs of another one has nothing to plan before one of them ends.
        # After a decision runs are "held" for a moment until they are committed here, too, and a
        # task whose seats were just granted is planned next: both are not settled yet.
        seated = current.seats is not None and current.seats.taken > 0
        settled = (
            current.planned and not current.runs.get("held") and not (seated and not current.runs)
        )
        waits = current.after is not None and current.plan_at is None
        open_here = current.state == TaskState.ACTIVE and current.led_here
        return current, settled or later or waits or not open_here

    return responses.document_response(
        await await_ready(node, fetch_planned, requests.seconds(request))
    )


async def pause(request: web.Request) -> web.StreamResponse:
    """Free the future runs on all nodes, and plan no others; idempotent."""
    node = request.app[NODE]
    task = requests.identifier(request)
    await node.editing.pause(task, matched_revision(request))
    return responses.document_response(await fetch(node, task))


async def resume(request: web.Request) -> web.StreamResponse:
    """Plan the task again from now on; idempotent."""
    node = request.app[NODE]
    task = requests.identifier(request)
    await node.editing.resume(task, matched_revision(request))
    return responses.document_response(await fetch(node, task))


async def release(request: web.Request) -> web.StreamResponse:
    """Try now what the task waits for, and end a hold by policies; idempotent."""
    node = request.app[NODE]
    task = requests.identifier(request)
    await node.editing.release(task, matched_revision(request))
    return responses.document_response(await fetch(node, task))


async def edit(request: web.Request) -> web.StreamResponse:
    """The changed task; with ``dry_run``, the task as it would be, without changing it."""
    requests.refuse_other_parameters(request, "dry_run")
    dry_run = request[TRIAL] = requests.flag(request, "dry_run")
    task = requests.identifier(request)
    patch = requests.patch(request, TaskPatch)
    return responses.document_response(await edit_for_user(request, task, patch, dry_run=dry_run))


async def edit_for_user(
    request: web.Request, task: UUID, patch: TaskPatch, *, dry_run: bool
) -> Task:
    """Edit a task for the user who asks; return it, or with ``dry_run`` as it would be."""
    node = request.app[NODE]
    await require_may_post(node, request[PRINCIPAL], patch)
    user = request[PRINCIPAL].bound
    if user is not None and patch.test is not None:
        # Also what stays: an edit of the target would send it elsewhere.
        test = (await fetch(node, task)).test
        whole = TestChoice(
            type=test.type, spec=patched_document(test.spec, patch.test.get("spec") or {})
        )
        await _require_secrets(node, user, whole)
    by = user_of(request, None)
    if node.user_limits.bounds or by.bound:
        tried = await node.editing.edit(task, patch, dry_run=True)
        if tried is not None:
            node.user_limits.require(user_of(request, tried.terms.campaign), tried)
    would_be = await node.editing.edit(task, patch, by=by, dry_run=dry_run)
    current = await fetch(node, task)
    if would_be is None:
        return current
    if "archives" in patch.model_fields_set:
        archives_change = await node.archives.effect_of_edit(task, patch.archives or ())
        current = current.model_copy(
            update={
                "archives": current.archives if archives_change is None else archives_change.after
            }
        )
    return current.model_copy(update=_editable_fields(would_be.terms, current.pool))


async def cancel(request: web.Request) -> web.StreamResponse:
    """Cancel the task and its runs on every participant; idempotent."""
    node = request.app[NODE]
    task = requests.identifier(request)
    await node.termination.cancel_task(task, matched_revision(request))
    return responses.document_response(await fetch(node, task))


async def seats_of(request: web.Request) -> web.StreamResponse:
    """The seats of a pool task in the terms that are not over, in order."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, "from")
    task = await fetch(node, requests.identifier(request))
    since = requests.instant(request, "from") or node.clock.now()
    async with node.database.connection() as connection:
        rows = await seats.find_all(connection, task.id, since)
    return responses.list_response([_seat_of(row, node.clock.now()) for row in rows], None)


def _seat_of(row: Record, now: int) -> Seat:
    state: SeatState
    if row["task"] is None:
        state = "empty"
    elif row["lost_at"] is not None:
        state = "lost"
    else:
        state = "over" if row["over_at"] <= now else "taken"
    return Seat.from_row(
        row,
        state=state,
        node=row["name"] or row["node"],
        reason=(row["reason"] or NOT_SEARCHED) if state in {"empty", "lost"} else None,
    )


async def runs_of(request: web.Request) -> web.StreamResponse:
    """A page of the task's runs."""
    task = requests.identifier(request)
    await fetch(request.app[NODE], task)
    return await runs.answer_page(request, task)


async def explain(request: web.Request) -> web.StreamResponse:
    """Return why the task's runs are in their states; with ``slot``, why that one is."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, "slot", "limit")
    task = await fetch(node, requests.identifier(request))
    if (slot := requests.instant(request, "slot")) is not None:
        return responses.document_response(
            await _slot_explanation(node, task, slot, request[PRINCIPAL])
        )
    async with node.database.connection() as connection:
        decisions = await runs.decisions(
            connection, task.id, None, requests.limit(request), request[PRINCIPAL]
        )
        waits = await seats.waiting_reasons(connection, task.id, _REASONS) if task.pool else []
        before = (
            await seats.terms_before(connection, task.id, node.clock.now()) if task.pool else None
        )
    newest = decisions[0] if decisions else None
    followed = None
    if task.after is not None and task.led_here:
        with contextlib.suppress(NotFound):
            followed = await fetch(node, task.after.task)
    return responses.document_response(
        Explanation(
            task=task.id,
            run=None,
            headline=task.headline,
            state=task.state,
            sentence=explain_task(task, newest, waits, before, node.clock.now(), followed),
            requester=task.requester,
            tool=task.tool,
            tool_reason=task.tool_reason,
            decisions=decisions,
        )
    )


async def _slot_explanation(
    node: NodeService, task: Task, slot: int, user: Principal
) -> Explanation:
    async with node.database.connection() as connection:
        found = await runs_store.find_at_slot(connection, task.id, slot)
        nearest = None
        if found is None:
            nearest = await runs_store.find_nearest_slot(connection, task.id, slot)
        if nearest is not None and stands_for(task, slot, nearest):
            found = await runs_store.find_at_slot(connection, task.id, nearest)
    if found is None:
        msg = explain_missing_slot(task, slot)
        raise NotFound(msg + _place_of_slot(node, task, slot))
    run, known_slot = found
    explained = await runs.run_explanation(
        node, await runs.fetch(node, run, user), known_slot, user
    )
    if nearest is None:
        return explained
    asked, there = map(times.to_the_second, (slot, known_slot))
    sentence = f"the slot nearest to {asked} is {there}: {explained.sentence}"
    return explained.model_copy(update={"sentence": sentence})


def _place_of_slot(node: NodeService, task: Task, slot: int) -> str:
    """Return a sentence on where to find a slot unknown here, or why it is known no more."""
    if is_told_as_outside(task.lead):
        return f"; {task.lead} leads the task"
    if not task.led_here:
        return f"; {task.lead} leads the task, and knows also why there is no run"
    kept = node.settings.keep_failed
    if slot + kept > node.clock.now() or slot < task.created_at:
        return ""
    return f"; what has no result is kept for {times.duration_text(kept)} (PARLEY_KEEP_FAILED)"


_SEATS = Query(
    "seats",
    "Include the tasks of the seats of pool tasks.",
    {"type": "boolean", "default": False},
)
_PARENT = Query("parent", "Only tasks of the seats of this pool task.", ID)
_WAIT = wait_query("the task has been planned")
DRY_RUN = Query(
    "dry_run",
    "Check the changes and ask the participants; return the task as it would be, unchanged.",
    {"type": "boolean", "default": False},
)
IF_TIME = Query(
    "if_time",
    "Create it only if one of its runs finds time now; otherwise 409 with tasks that would, or 502 "
    "if a participant does not say.",
    {"type": "boolean", "default": False},
)
KEY = Query(
    "Idempotency-Key",
    "A repeated key gives what was created before; remembered for a day.",
    {"type": "string", "minLength": 1, "maxLength": 200},
)

_SORT = Query(
    "sort",
    "By creation (default), the next run, the name (test and ends), the mesh, or the state: "
    "refused ones first, then active ones by their next run, paused ones, and ended ones.",
    {"type": "string", "enum": sorted(SORTS), "default": "created"},
)
_ORDER = Query(
    "order",
    "asc, or desc, which is the default by creation.",
    {"type": "string", "enum": ["asc", "desc"]},
)

FILTERS = (
    Query("state", "Only in these states, separated by commas.", words_schema(STATES)),
    Query("test", "Only tasks of this test.", WORD),
    PREFIX,
    _SEATS,
    _PARENT,
    *MEASURED,
    Query(
        "outcome",
        "Only those whose newest slot has these judgements, separated by commas.",
        words_schema(OUTCOMES),
    ),
    REQUESTER,
    _SORT,
    _ORDER,
    LIMIT,
    CURSOR_BY_KEY,
    fields_query(Task),
)

ROUTES = (
    Route(
        "POST",
        "/v1/tasks",
        create,
        "Create a task, or those of a list",
        TaskDocument,
        Task,
        status=201,
        several=(ListedTask, TaskCreation),
        headers=(KEY,),
        query=(IF_TIME,),
    ),
    Route(
        "GET",
        "/v1/tasks",
        list_,
        "List tasks, newest first, or in another order",
        answer=Task,
        listed=True,
        query=FILTERS,
    ),
    Route("GET", "/v1/tasks/{id}", show, "Show a task", answer=Task, query=(_WAIT,)),
    Route(
        "PATCH",
        "/v1/tasks/{id}",
        edit,
        "Edit a task",
        TaskPatch,
        Task,
        query=(DRY_RUN,),
    ),
    Route(
        "POST",
        "/v1/tasks/{id}/pause",
        pause,
        "Pause a task: free its future runs",
        answer=Task,
    ),
    Route("POST", "/v1/tasks/{id}/resume", resume, "Resume a paused task", answer=Task),
    Route(
        "POST",
        "/v1/tasks/{id}/release",
        release,
        "Try now what a task waits for, and end a hold by the policies of its pool",
        answer=Task,
    ),
    Route("DELETE", "/v1/tasks/{id}", cancel, "Cancel a task and its runs", answer=Task),
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
                "Only terms that end after this instant; default: now.",
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
        "Explain why the runs of a task are in their states",
        answer=Explanation,
        query=(
            Query("slot", "Only the slot nearest to this time, or the gap it is in.", INSTANT),
            LIMIT,
        ),
    ),
)
