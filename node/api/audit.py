"""The route of the audit, and the middleware that records requests in it."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from node.api import requests, responses
from node.api.long_polling import await_ready
from node.api.routing import (
    INSTANT,
    LIMIT,
    NODE,
    PRINCIPAL,
    PROBLEM,
    ROUTES_SERVED,
    TEXT,
    THING,
    TRIAL,
    Query,
    Route,
    wait_query,
    words_schema,
)
from node.model.audit import AuditEntry, AuditOutcome, is_recorded, outcome_of, storable_text
from node.model.principals import STRANGER
from node.model.wire.audit import AuditRecord
from node.store import audit
from node.store.audit import AuditFilter
from node.store.database import Record

_ID_MAX = 2**63 - 1
_OUTCOMES = frozenset(map(str, AuditOutcome))


@web.middleware
async def record_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Add a request to the audit; changes by users are recorded before they are answered."""
    answer = await handler(request)
    resource = request.match_info.route.resource
    path = "" if resource is None else resource.canonical
    method = "GET" if request.method == "HEAD" else request.method
    route = request.app[ROUTES_SERVED].get(f"{method} {path}")
    if route is None:
        return answer
    trial = request.get(TRIAL, False)
    if is_recorded(route.operation, route.access, answer.status, trial=trial):
        log, entry = request.app[NODE].audit, _audit_entry(request, route, answer)
        if entry.is_change_of_user:
            await log.record(entry)
        else:
            log.note(entry)
    return answer


def _audit_entry(request: web.Request, route: Route, answer: web.StreamResponse) -> AuditEntry:
    problem = request.get(PROBLEM)
    return AuditEntry(
        request.app[NODE].clock.now(),
        request.get(PRINCIPAL, STRANGER),
        route.name,
        outcome_of(answer.status, problem),
        storable_text(_thing(request, route, answer)),
        request.remote,
        answer.status,
        problem,
    )


def _thing(request: web.Request, route: Route, answer: web.StreamResponse) -> str | None:
    """Return the id or name in the path, or of what was made; None if it is about no one thing."""
    thing: str | None = request.get(THING)
    if thing is not None:
        return thing
    for word in ("id", "name"):
        if word in request.match_info:
            return str(request.match_info[word])
    made = answer.headers.get("Location", "").removeprefix(f"{route.path}/")
    return made if made and "/" not in made else None


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of the audit, the newest rows first; with ``wait``, when there are some."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, *(query.name for query in FILTERS))
    wanted = AuditFilter(
        principal=storable_text(request.query.get("principal")),
        verb=storable_text(request.query.get("verb")),
        thing=storable_text(request.query.get("thing")),
        outcomes=requests.choices(request, "outcome", _OUTCOMES),
        since=requests.instant(request, "since"),
        until=requests.instant(request, "until"),
    )
    ascending = requests.choices(request, "order", frozenset({"asc", "desc"})) == ["asc"]
    entries = audit.first_entries if ascending else audit.last_entries
    beyond, limit = requests.number(request, "cursor", _ID_MAX), requests.limit(request)

    async def fetch_rows() -> tuple[list[Record], bool]:
        async with node.database.connection() as connection:
            rows = await entries(connection, wanted, beyond, limit)
        return rows, bool(rows)

    rows = await await_ready(node, fetch_rows, requests.seconds(request))
    following = str(rows[-1]["id"]) if len(rows) == limit else None
    return responses.list_response([AuditRecord(**row) for row in rows], following)


FILTERS = (
    Query("principal", "Only of this label, node name, id of a token, or key of a node.", TEXT),
    Query("verb", "Only this operation: an operationId of this document.", TEXT),
    Query("thing", "Only about this: a name, or the first characters of an id.", TEXT),
    Query("outcome", "Only these, separated by commas.", words_schema(_OUTCOMES)),
    Query("since", "Only from this instant on.", INSTANT),
    Query("until", "Only before this instant.", INSTANT),
    Query("order", "By id: desc (default) or asc.", {"type": "string", "enum": ["asc", "desc"]}),
    LIMIT,
    Query("cursor", "The value of next in the previous page, or the id of a row.", TEXT),
    wait_query("there are some"),
)

ROUTES = (
    Route(
        "GET",
        "/v1/audit",
        list_,
        "Who did what on this node, and who was refused",
        answer=AuditRecord,
        listed=True,
        query=FILTERS,
    ),
)
