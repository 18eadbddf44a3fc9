"""Meshes: which there are, what they have, and what they have delivered, by pair and cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from aiohttp import web

from node.api import requests, responses
from node.api.routing import CURSOR, INSTANT, LIMIT, NODE, Query, Route
from node.model import times
from node.model.errors import FieldFault, InvalidDocument, NotFound
from node.model.taskstate import OPEN, TaskState
from node.model.wire.meshes import (
    CAUSES_MAX,
    Cause,
    Delivery,
    Mesh,
    MeshDelivery,
    MeshPair,
    MeshTask,
)
from node.model.wire.tasks import Schedule
from node.service import NodeService
from node.store import meshes
from node.store.meshes import MeshTaskCounts, SlotOutcome


async def list_(request: web.Request) -> web.StreamResponse:
    """GET: a page of meshes, by name; of which all tasks were cancelled only if asked for."""
    requests.only(request, "removed", "limit", "cursor")
    removed = requests.choices(request, "removed", frozenset({"true", "false"})) == ["true"]
    async with request.app[NODE].database.connection() as connection:
        every = [
            _document(found)
            for found in await meshes.listed(connection)
            if removed or set(found.tasks) != {TaskState.CANCELLED}
        ]
    return responses.many(*requests.page_of_names(request, every))


def _document(found: MeshTaskCounts) -> Mesh:
    return Mesh(
        name=found.mesh,
        tasks=found.tasks,
        campaigns=tuple(found.campaigns),
        created_at=found.created_at,
        changed_at=found.changed_at,
    )


async def show(request: web.Request) -> web.StreamResponse:
    """GET: one mesh, and what it has delivered; of no time at all nothing is counted."""
    node, name = request.app[NODE], requests.name(request, "mesh")
    requests.only(request, "from", "to")
    since, until = _span(request, node)
    mesh = await _one(node, name)
    found: list[SlotOutcome] = []
    if since < until:
        async with node.database.connection() as connection:
            found = await meshes.outcomes(connection, name, since, until)
    answer = MeshDelivery(**mesh.model_dump(), since=since, until=until, delivery=_delivery(found))
    return responses.one(answer)


async def _one(node: NodeService, name: str) -> Mesh:
    async with node.database.connection() as connection:
        found = await meshes.listed(connection, name)
    if not found:
        raise NotFound(_none(name))
    return _document(found[0])


def _none(name: str) -> str:
    return f"there is no mesh {name} led by this node; see: parley mesh list"


def _span(request: web.Request, node: NodeService) -> tuple[int, int]:
    """The last 24 hours unless said; nothing to come is due."""
    now = node.clock.now()
    since, until = requests.instant(request, "from"), requests.instant(request, "to")
    until = now if until is None else min(until, now)
    return max(until - times.DAY, times.EARLIEST) if since is None else since, until


def _delivery(found: Iterable[SlotOutcome]) -> Delivery:
    slots = dict.fromkeys(("delivered", "missing", "open"), 0)
    causes: list[Cause] = []
    for each in found:
        slots[each.outcome] += each.slots
        if each.outcome == "missing" and len(causes) < CAUSES_MAX:
            state, cause, said = each.state or "", each.cause or "", each.example or ""
            causes.append(Cause(state=state, cause=cause, count=each.slots, example=said))
    return Delivery(
        due=slots["delivered"] + slots["missing"],
        delivered=slots["delivered"],
        open=slots["open"],
        causes=tuple(causes),
    )


async def pairs(request: web.Request) -> web.StreamResponse:
    """GET: what each pair has delivered; those without a task that had nothing due are left out."""
    node, name = request.app[NODE], requests.name(request, "mesh")
    requests.only(request, "from", "to", "limit", "cursor")
    since, until = _span(request, node)
    after, size = _key_cursor(request), requests.limit(request)
    async with node.database.connection() as connection:
        if not await meshes.exists(connection, name):
            raise NotFound(_none(name))
        keys = await meshes.keys(connection, name, after, size)
        found: dict[str, list[SlotOutcome]] = {}
        if keys:
            span = keys[0].key, keys[-1].key
            found = await meshes.outcomes_of(connection, name, since, until, *span)
    every = [MeshPair(**vars(each), **dict(_delivery(found.get(each.key, ())))) for each in keys]
    shown = [pair for pair in every if pair.state in OPEN or pair.due or pair.open]
    return responses.many(shown, keys[-1].key if len(keys) == size else None)


async def tasks(request: web.Request) -> web.StreamResponse:
    """GET: what there is, to be compared with a mesh file; no such mesh is an empty one."""
    node, name = request.app[NODE], requests.name(request, "mesh")
    requests.only(request, "limit", "cursor")
    after, size = _task_cursor(request), requests.limit(request)
    async with node.database.connection() as connection:
        rows = await meshes.tasks(connection, name, after, size)
    found: Sequence[MeshTask] = [
        MeshTask(
            **{**row, "tools": tuple(row["tools"])}
            | {"schedule": Schedule.model_validate(row["schedule"])}
            | {"participants": tuple(str(each["name"]) for each in row["participants"])}
        )
        for row in rows
    ]
    following = None
    if len(found) == size:
        following = f"{found[-1].created_at}_{found[-1].id}_{found[-1].key}"
    return responses.many(found, following)


def _key_cursor(request: web.Request) -> str | None:
    text = request.query.get("cursor")
    if text is not None and not _is_key(text):
        raise _no_cursor()
    return text


def _task_cursor(request: web.Request) -> tuple[str, int, UUID] | None:
    text = request.query.get("cursor")
    if text is None:
        return None
    made, _, rest = text.partition("_")
    task, _, key = rest.partition("_")
    try:
        found = int(made[:20]), UUID(task)
    except ValueError:
        raise _no_cursor() from None
    if not 0 <= found[0] < times.LATEST or not _is_key(key):
        raise _no_cursor()
    return key, *found


def _is_key(text: str) -> bool:
    """Whether Postgres takes it: neither NUL nor half a letter."""
    return "\x00" not in text and text.encode(errors="replace").decode() == text


def _no_cursor() -> InvalidDocument:
    return InvalidDocument([FieldFault("?cursor", "is not one that a list has returned as next")])


_SPAN = (
    Query(
        "from",
        "Of slots then or later; the last 24 hours unless said.",
        INSTANT,
    ),
    Query(
        "to",
        "Of slots before; now unless said, and never later.",
        INSTANT,
    ),
)

_REMOVED = Query(
    "removed",
    "true: also those whose tasks were all cancelled.",
    {"type": "string", "enum": ["true", "false"]},
)

ROUTES = (
    Route(
        "GET",
        "/v1/meshes",
        list_,
        "List meshes, by name: how many tasks each has",
        answer=Mesh,
        listed=True,
        query=(_REMOVED, LIMIT, CURSOR),
    ),
    Route(
        "GET",
        "/v1/meshes/{name}",
        show,
        "What a mesh has delivered, and why the rest is missing",
        answer=MeshDelivery,
        query=_SPAN,
    ),
    Route(
        "GET",
        "/v1/meshes/{name}/pairs",
        pairs,
        "What each pair of a mesh has delivered, and why the rest is missing",
        answer=MeshPair,
        listed=True,
        query=(*_SPAN, LIMIT, CURSOR),
    ),
    Route(
        "GET",
        "/v1/meshes/{name}/tasks",
        tasks,
        "List the tasks of a mesh, to be compared with its file",
        answer=MeshTask,
        listed=True,
        query=(LIMIT, CURSOR),
    ),
)
