"""Routes of meshes: their tasks, and what they have delivered by pair and cause."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from aiohttp import web

from node.api import requests, responses
from node.api.routing import (
    CURSOR_BY_KEY,
    CURSOR_BY_NAME,
    INSTANT,
    LIMIT,
    NODE,
    PRINCIPAL,
    Query,
    Route,
)
from node.model import times
from node.model.errors import FieldFault, InvalidDocument, NotFound
from node.model.outcome import Judgement
from node.model.secrets import without_sealed
from node.model.taskstate import OPEN, TaskState
from node.model.verdict import Level
from node.model.wire.meshes import (
    MatrixEntry,
    Mesh,
    MeshDelivery,
    MeshMatrix,
    MeshPair,
    MeshResult,
    MeshTask,
    thresholds_of,
)
from node.model.wire.outcomes import JudgedOutcome
from node.model.wire.runs import MetricView
from node.model.wire.tasks import Schedule
from node.service import NodeService
from node.store import meshes
from node.store.database import Connection
from node.store.meshes import (
    LatestResult,
    MeshKey,
    MeshTaskCounts,
    NewestOutcome,
    SlotOutcome,
    Square,
)

KEYS_MAX = 100
"""Maximum number of pairs that a request names."""
PAIRS_MAX = 1_000_000
"""Maximum number of pairs of a matrix that were refused."""
_LETTERS = {
    Judgement.GOOD: "g",
    Judgement.FAIR: "f",
    Judgement.BAD: "b",
    Judgement.NO_ANSWER: "n",
    Judgement.FAILED: "x",
    Judgement.MISSED: "m",
    Judgement.NOT_PLANNED: "p",
    Judgement.STALE: "s",
    Judgement.UNKNOWN: "u",
}
_SHOWN = OPEN | {TaskState.REFUSED}
"""States of pairs that are shown though nothing of them was due."""


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of meshes, by name; with ``removed``, also those with only cancelled tasks."""
    requests.refuse_other_parameters(request, "removed", "limit", "cursor")
    removed = requests.flag(request, "removed")
    async with request.app[NODE].database.connection() as connection:
        every = [
            _mesh_document(counts)
            for counts in await meshes.find_all(connection, None, request[PRINCIPAL].only)
            if removed or set(counts.tasks) != {TaskState.CANCELLED}
        ]
    return responses.list_response(*requests.page_of_names(request, every))


def _mesh_document(counts: MeshTaskCounts) -> Mesh:
    return Mesh(
        name=counts.mesh,
        tasks=counts.tasks,
        campaigns=tuple(counts.campaigns),
        created_at=counts.created_at,
        changed_at=counts.changed_at,
    )


async def show(request: web.Request) -> web.StreamResponse:
    """One mesh, and what it has delivered in the span; nothing in an empty span."""
    node, name = request.app[NODE], requests.name(request, "mesh")
    requests.refuse_other_parameters(request, "from", "to")
    since, until = _span(request, node)
    only = request[PRINCIPAL].only
    mesh, outcomes = await asyncio.gather(
        _fetch_mesh(node, name, only), _outcomes(node, name, (since, until), only)
    )
    answer = MeshDelivery(
        **mesh.model_dump(), since=since, until=until, delivery=meshes.delivery_of(outcomes)
    )
    return responses.document_response(answer)


async def _outcomes(
    node: NodeService, name: str, span: tuple[int, int], only: str | None
) -> list[SlotOutcome]:
    if span[0] >= span[1]:
        return []
    async with node.database.connection() as connection:
        return await meshes.outcomes(connection, name, *span, only)


async def _fetch_mesh(node: NodeService, name: str, only: str | None) -> Mesh:
    async with node.database.connection() as connection:
        counts = await meshes.find_all(connection, name, only)
    if not counts:
        raise NotFound(_unknown_mesh_message(name))
    return _mesh_document(counts[0])


def _unknown_mesh_message(name: str) -> str:
    return f"this node leads no mesh {name}; see: parley mesh list"


def _span(request: web.Request, node: NodeService) -> tuple[int, int]:
    """Return the span of the request, by default about a day; it ends now at the latest.

    By default it begins with a whole hour: these are summed up, and no slot of it need be read.
    """
    now = node.clock.now()
    since, until = requests.instant(request, "from"), requests.instant(request, "to")
    until = now if until is None else min(until, now)
    if since is None:
        since = max((until - times.DAY) // times.HOUR * times.HOUR, times.EARLIEST)
    return since, until


async def pairs(request: web.Request) -> web.StreamResponse:
    """Return what each pair has delivered, except pairs without a task that had nothing due."""
    node, name = request.app[NODE], requests.name(request, "mesh")
    requests.refuse_other_parameters(request, "from", "to", "order", "key", "limit", "cursor")
    named = requests.keys(request, "key", KEYS_MAX)
    span = _span(request, node)
    worst = requests.choices(request, "order", frozenset({"key", "worst"})) == ["worst"]
    after, size, only = _key_cursor(request), requests.limit(request), request[PRINCIPAL].only
    async with node.database.connection() as connection:
        if not await meshes.exists(connection, name, only):
            raise NotFound(_unknown_mesh_message(name))
        if worst:
            return responses.list_response(
                await _worst_pairs(node, connection, name, span, size, only), None
            )
        keys = (
            await _page_of_keys(connection, name, after, size, only)
            if named is None
            else await _named_keys(connection, name, named, only)
        )
        outcomes: dict[str, list[SlotOutcome]] = {}
        latest: dict[str, LatestResult] = {}
        newest: dict[str, NewestOutcome] = {}
        if keys:
            ends, found = (keys[0].key, keys[-1].key), [each.key for each in keys]
            if named is None:
                outcomes = await meshes.outcomes_by_key(connection, name, *span, *ends, only)
            else:  # those between them are many
                for key in found:
                    outcomes |= await meshes.outcomes_by_key(
                        connection, name, *span, key, key, only
                    )
            latest = await meshes.latest_results(connection, name, found, span[1], only)
            newest = await meshes.newest_outcomes(connection, name, found, span[1], only)
    every = [
        _pair(node, each, outcomes.get(each.key, ()), latest.get(each.key), newest.get(each.key))
        for each in keys
    ]
    shown = [pair for pair in every if pair.state in _SHOWN or pair.due or pair.open]
    is_full = named is None and len(keys) == size
    return responses.list_response(shown, keys[-1].key if is_full else None)


async def _page_of_keys(
    connection: Connection, name: str, after: str | None, size: int, only: str | None
) -> list[MeshKey]:
    """Return a page of the keys of a mesh, those included for which no task was created."""
    keys = await meshes.keys(connection, name, after, size, only)
    last = keys[-1].key if len(keys) == size else None
    refused = await meshes.refused_keys(connection, name, after, last, only, size, None)
    return _with_refused(keys, refused)[:size]


async def _named_keys(
    connection: Connection, name: str, named: list[str], only: str | None
) -> list[MeshKey]:
    """Return those of these keys that a mesh has."""
    keys = await meshes.newest_tasks(connection, name, named, only)
    refused = await meshes.refused_keys(connection, name, None, None, only, len(named), named)
    return _with_refused(keys, refused)


def _with_refused(keys: Iterable[MeshKey], refused: Iterable[MeshKey]) -> list[MeshKey]:
    newest = {each.key: each for each in (*keys, *refused)}
    return sorted(newest.values(), key=lambda each: each.key)


async def matrix(request: web.Request) -> web.StreamResponse:
    """Return what is to be thought of each pair of a mesh, a letter each."""
    node, name = request.app[NODE], requests.name(request, "mesh")
    requests.refuse_other_parameters(request)
    now, only = node.clock.now(), request[PRINCIPAL].only
    async with node.database.connection() as connection:
        if not await meshes.exists(connection, name, only):
            raise NotFound(_unknown_mesh_message(name))
        squares = await meshes.matrix(connection, name, now, only, now - times.DAY)
        refused = await meshes.refused_keys(connection, name, None, None, only, PAIRS_MAX, None)
    return responses.document_response(MeshMatrix(at=now, entries=matrix_of(squares, refused)))


def matrix_of(squares: Iterable[Square], refused: Iterable[MeshKey]) -> tuple[MatrixEntry, ...]:
    """Return pairs as a matrix for each entry of their mesh file, a letter for each pair."""
    entries: dict[str, dict[tuple[str, str], str]] = {}
    tests: dict[str, str] = {}
    every: list[Square | MeshKey] = [*squares, *refused]
    for each in every:
        name, source, dest = [*each.key.split("/"), "", ""][:3]
        tests[name] = each.test
        entries.setdefault(name, {})[source, dest] = _letter_of(each)
    return tuple(
        _matrix_entry(name, tests[name], letters) for name, letters in sorted(entries.items())
    )


def _matrix_entry(name: str, test: str, letters: Mapping[tuple[str, str], str]) -> MatrixEntry:
    sources, dests = (tuple(sorted({pair[end] for pair in letters})) for end in (0, 1))
    rows = tuple("".join(letters.get((source, dest), ".") for dest in dests) for source in sources)
    return MatrixEntry(name=name, test=test, sources=sources, dests=dests, rows=rows)


def _letter_of(pair: Square | MeshKey) -> str:
    if pair.state == TaskState.REFUSED:
        return "r"
    if isinstance(pair, MeshKey) or pair.judgement is None:
        return _LETTERS[Judgement.UNKNOWN]
    letter = _LETTERS[Judgement(pair.judgement)]
    return letter if pair.verdict in {None, Level.CLEAN} else letter.upper()


async def _worst_pairs(
    node: NodeService,
    connection: Connection,
    name: str,
    span: tuple[int, int],
    size: int,
    only: str | None,
) -> list[MeshPair]:
    keys = await meshes.worst_keys(connection, name, *span, size, only)
    tasks_of_keys = await meshes.newest_tasks(connection, name, keys, only)
    newest = {each.key: each for each in tasks_of_keys}
    latest = await meshes.latest_results(connection, name, keys, span[1], only)
    judged = await meshes.newest_outcomes(connection, name, keys, span[1], only)
    shown = []
    for key in keys:
        outcomes = await meshes.outcomes_by_key(connection, name, *span, key, key, only)
        if key in newest:
            slots = outcomes.get(key, ())
            shown.append(_pair(node, newest[key], slots, latest.get(key), judged.get(key)))
    return shown


def _pair(
    node: NodeService,
    key: MeshKey,
    outcomes: Iterable[SlotOutcome],
    latest: LatestResult | None,
    newest: NewestOutcome | None,
) -> MeshPair:
    told = {**vars(key), "thresholds": thresholds_of({"thresholds": key.thresholds})}
    del told["reason"]
    return MeshPair(
        **told,
        **dict(meshes.delivery_of(outcomes)),
        outcome=_outcome_of(node, key, newest),
        latest=_result(node, latest),
    )


def _outcome_of(node: NodeService, key: MeshKey, newest: NewestOutcome | None) -> JudgedOutcome:
    if key.state == TaskState.REFUSED:
        judgement = Judgement.NOT_PLANNED
        return JudgedOutcome(judgement=judgement, code=key.state, reason=key.reason)
    if newest is None:
        return JudgedOutcome.unknown()
    return JudgedOutcome.told(**vars(newest), lead=node.card.name)


def _result(node: NodeService, latest: LatestResult | None) -> MeshResult | None:
    if latest is None:
        return None
    metrics = node.capabilities.metrics(latest.test, latest.result)
    return MeshResult(
        run=latest.run,
        ends_at=latest.ends_at,
        summary=latest.summary,
        verdict=latest.verdict,
        stale=latest.is_stale,
        metrics=tuple(MetricView(**vars(metric)) for metric in metrics),
    )


async def tasks(request: web.Request) -> web.StreamResponse:
    """The tasks of a mesh, to be compared with its file; an unknown mesh has none."""
    node, name = request.app[NODE], requests.name(request, "mesh")
    requests.refuse_other_parameters(request, "limit", "cursor")
    after, size = _task_cursor(request), requests.limit(request)
    async with node.database.connection() as connection:
        rows = await meshes.tasks(connection, name, after, size, request[PRINCIPAL].only)
    items = [task_of(row) for row in rows]
    following = None
    if len(items) == size:
        following = f"{items[-1].created_at}_{items[-1].id}_{items[-1].key}"
    return responses.list_response(items, following)


def task_of(row: Mapping[str, Any]) -> MeshTask:
    """Return a row of the query ``mesh_tasks`` as the API shows it."""
    schedule = Schedule.model_validate(row["schedule"])
    changed = {
        "spec": without_sealed(row["spec"]),
        "tools": tuple(row["tools"]),
        "schedule": schedule.times,
        "after": schedule.after,
        "participants": tuple(str(each["name"]) for each in row["participants"]),
    }
    return MeshTask(**{**row, **changed})


def _key_cursor(request: web.Request) -> str | None:
    text = request.query.get("cursor")
    if text is not None and not requests.is_storable(text):
        raise _invalid_cursor()
    return text


def _task_cursor(request: web.Request) -> tuple[str, int, UUID] | None:
    text = request.query.get("cursor")
    if text is None:
        return None
    made, _, rest = text.partition("_")
    task, _, key = rest.partition("_")
    try:
        position = int(made[:20]), UUID(task)
    except ValueError:
        raise _invalid_cursor() from None
    if not 0 <= position[0] < times.LATEST or not requests.is_storable(key):
        raise _invalid_cursor()
    return key, *position


def _invalid_cursor() -> InvalidDocument:
    return InvalidDocument([FieldFault("?cursor", "is not one that a list has returned as next")])


_SPAN = (
    Query(
        "from",
        "Only slots at or after this instant; default: the begin of the hour 24 hours before the "
        "end. Whole hours are answered fastest.",
        INSTANT,
    ),
    Query(
        "to",
        "Only slots before this instant; default, and at the latest, now.",
        INSTANT,
    ),
)

_ORDER = Query(
    "order",
    "By key (default), or the worst first: those with the smallest share of delivered slots. The "
    "worst ones are one page at most, without pairs that have delivered everything.",
    {"type": "string", "enum": ["key", "worst"]},
)

_KEYS = Query(
    "key",
    f"Only these pairs, separated by commas, at most {KEYS_MAX}; without cursor.",
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": KEYS_MAX},
)

_REMOVED = Query(
    "removed",
    "true: include meshes whose tasks were all cancelled.",
    {"type": "string", "enum": ["true", "false"]},
)

ROUTES = (
    Route(
        "GET",
        "/v1/meshes",
        list_,
        "List meshes, by name, with the number of their tasks",
        answer=Mesh,
        listed=True,
        query=(_REMOVED, LIMIT, CURSOR_BY_NAME),
    ),
    Route(
        "GET",
        "/v1/meshes/{name}",
        show,
        "Show what a mesh has delivered, and why the rest is missing",
        answer=MeshDelivery,
        query=_SPAN,
    ),
    Route(
        "GET",
        "/v1/meshes/{name}/pairs",
        pairs,
        "List what each pair of a mesh has delivered, why the rest is missing, and its result",
        answer=MeshPair,
        listed=True,
        query=(*_SPAN, _ORDER, _KEYS, LIMIT, CURSOR_BY_KEY),
    ),
    Route(
        "GET",
        "/v1/meshes/{name}/matrix",
        matrix,
        "Show what is to be thought of each pair of a mesh, a letter each",
        answer=MeshMatrix,
    ),
    Route(
        "GET",
        "/v1/meshes/{name}/tasks",
        tasks,
        "List the tasks of a mesh, to be compared with its file",
        answer=MeshTask,
        listed=True,
        query=(LIMIT, CURSOR_BY_KEY),
    ),
)
