"""Routes of archivers, the node's archives, deliveries, and the backlog."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from node.api import requests, responses
from node.api.conditions import matched_revision
from node.api.routing import (
    CURSOR,
    CURSOR_BY_NAME,
    ID,
    LIMIT,
    NODE,
    PRINCIPAL,
    TEXT,
    Query,
    Route,
    words_schema,
)
from node.model.errors import NotFound
from node.model.named_archives import require_own_voice, visible_error
from node.model.wire.archives import (
    Archive,
    ArchiveDocument,
    ArchivePatch,
    ArchiverKind,
    ArchiveTested,
    Archiving,
    Backlog,
    Retried,
    RetryRequest,
)
from node.plugins.contracts import Archiver
from node.results.archivers import archivers, missing_requirement
from node.store import archives
from node.store.database import Record

_MOST = 2**31 - 1
_STATES = frozenset({"waiting", "delivered", "parked"})


def _archiver_kind(archiver: Archiver) -> ArchiverKind:
    return ArchiverKind(
        name=archiver.name,
        title=archiver.title,
        ordered=archiver.ordered,
        missing=missing_requirement(archiver),
        spec=archiver.spec_model.model_json_schema(by_alias=True),
    )


async def kinds(request: web.Request) -> web.StreamResponse:
    """The archivers, with the JSON Schema of their specs."""
    requests.refuse_other_parameters(request)
    return responses.list_response(
        [_archiver_kind(archiver) for _, archiver in sorted(archivers().items())]
    )


async def kind(request: web.Request) -> web.StreamResponse:
    """One archiver."""
    name = request.match_info["name"]
    if name not in archivers():
        msg = f"there is no archiver {name!r}; choose one of: {', '.join(sorted(archivers()))}"
        raise NotFound(msg)
    return responses.document_response(_archiver_kind(archivers()[name]))


async def add(request: web.Request) -> web.StreamResponse:
    """Answer 201 with the archive; an identical one again changes nothing."""
    document = requests.document(request, ArchiveDocument)
    require_own_voice(request[PRINCIPAL], document.archiver, document.spec)
    archive = await request.app[NODE].archives.add(document)
    return responses.document_response(archive, 201, {"Location": f"/v1/archives/{archive.name}"})


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of the node's archives, by name."""
    requests.refuse_other_parameters(request, "limit", "cursor")
    own = await request.app[NODE].archives.own()
    return responses.list_response(*requests.page_of_names(request, own))


async def show(request: web.Request) -> web.StreamResponse:
    """One archive of the node."""
    requests.refuse_other_parameters(request)
    name = requests.name(request, "archive")
    return responses.document_response(await request.app[NODE].archives.one(name))


async def edit(request: web.Request) -> web.StreamResponse:
    """The changed archive; deliveries that wait go to the new destination."""
    patch = requests.patch(request, ArchivePatch)
    archives_, name = request.app[NODE].archives, requests.name(request, "archive")
    if patch.spec:
        stored = await archives_.one(name)
        require_own_voice(request[PRINCIPAL], stored.archiver, patch.spec)
    return responses.document_response(await archives_.edit(name, patch))


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove the archive and its waiting deliveries."""
    archives_, name = request.app[NODE].archives, requests.name(request, "archive")
    await archives_.remove(name, matched_revision(request))
    return web.Response(status=204)


async def test(request: web.Request) -> web.StreamResponse:
    """Check whether results can be delivered, without delivering one."""
    name = requests.name(request, "archive")
    return responses.document_response(await request.app[NODE].archives.test(name))


async def deliveries(request: web.Request) -> web.StreamResponse:
    """A page of deliveries, newest first."""
    names = ("run", "task", "archive", "destination", "state", "limit", "cursor")
    requests.refuse_other_parameters(request, *names)
    at = requests.cursor(request)
    wanted = archives.DeliveryFilter(
        before=at[0] if at else None,
        run=requests.uuid(request, "run"),
        task=requests.uuid(request, "task"),
        archive=requests.word(request, "archive"),
        destination=requests.number(request, "destination", _MOST, 1),
        states=requests.choices(request, "state", _STATES),
        limit=requests.limit(request),
    )
    async with request.app[NODE].database.connection() as connection:
        rows = await archives.deliveries(connection, wanted)
    following = requests.next_cursor(rows, wanted.limit, lambda row: (row["number"], row["run"]))
    told = [_row_for_caller(request, row) for row in rows]
    return responses.list_response([Archiving.model_validate(row) for row in told], following)


def _row_for_caller(request: web.Request, row: Record) -> dict[str, Any]:
    """Return a row without those parts of its last error that the caller's role may not see."""
    return {**row, "last_error": visible_error(request[PRINCIPAL], row["last_error"])}


async def retry(request: web.Request) -> web.StreamResponse:
    """Retry at once deliveries that are parked or wait for their next attempt."""
    document = requests.document(request, RetryRequest)
    return responses.document_response(await request.app[NODE].archives.retry(document))


async def backlog(request: web.Request) -> web.StreamResponse:
    """The waiting and parked deliveries of each destination."""
    requests.refuse_other_parameters(request)
    async with request.app[NODE].database.connection() as connection:
        rows = await archives.backlog(connection)
    return responses.list_response(
        [Backlog.model_validate(_row_for_caller(request, row)) for row in rows]
    )


_NUMBER = {"type": "integer", "minimum": 1, "maximum": _MOST}

ROUTES = (
    Route("GET", "/v1/archivers", kinds, "List archivers", answer=ArchiverKind, listed=True),
    Route("GET", "/v1/archivers/{name}", kind, "Show an archiver", answer=ArchiverKind),
    Route(
        "POST",
        "/v1/archives",
        add,
        "Add an archive of the node: it receives the results of all tasks that the node leads",
        ArchiveDocument,
        Archive,
        status=201,
    ),
    Route(
        "GET",
        "/v1/archives",
        list_,
        "List the node's archives, by name",
        answer=Archive,
        listed=True,
        query=(LIMIT, CURSOR_BY_NAME),
    ),
    Route("GET", "/v1/archives/{name}", show, "Show an archive", answer=Archive),
    Route(
        "PATCH",
        "/v1/archives/{name}",
        edit,
        "Edit an archive",
        ArchivePatch,
        Archive,
    ),
    Route(
        "DELETE",
        "/v1/archives/{name}",
        remove,
        "Remove an archive, and drop its waiting deliveries",
        status=204,
    ),
    Route(
        "POST",
        "/v1/archives/{name}/test",
        test,
        "Check whether results can be delivered, without delivering one",
        answer=ArchiveTested,
    ),
    Route(
        "GET",
        "/v1/archivings",
        deliveries,
        "List deliveries of results, newest first",
        answer=Archiving,
        listed=True,
        query=(
            Query("run", "Only results of this run.", ID),
            Query("task", "Only results of this task.", ID),
            Query("archive", "Only to this archive of the node.", TEXT),
            Query("destination", "Only to this destination.", _NUMBER),
            Query("state", "Only in these states, separated by commas.", words_schema(_STATES)),
            LIMIT,
            CURSOR,
        ),
    ),
    Route(
        "POST",
        "/v1/archivings/retry",
        retry,
        "Retry at once deliveries that are parked or wait for their next attempt",
        RetryRequest,
        Retried,
    ),
    Route(
        "GET",
        "/v1/archivings/backlog",
        backlog,
        "Waiting and parked deliveries, by destination",
        answer=Backlog,
        listed=True,
    ),
)
