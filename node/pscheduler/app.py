"""The aiohttp application of the façade: one handler that finds the route and words each refusal.

Errors are lines of text, because the command line prints them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from node.api.bodies import Bodies, expect_later
from node.api.connections import keep_connection
from node.api.routing import PRINCIPAL, THING
from node.model.audit import AuditEntry, outcome_of, storable_text
from node.model.errors import InvalidDocument, ParleyError, fault_of
from node.pscheduler import answers
from node.pscheduler.api import host, participating, plugins, runs, schedule, status, tasks
from node.pscheduler.facade import FACADE, LEVEL_MAX, Facade
from node.pscheduler.parameters import Parameters
from node.pscheduler.refusals import Refusal
from node.pscheduler.routing import ROOT, Call, Route, RouteTable

ROUTES: tuple[Route, ...] = (
    *participating.ROUTES,
    *host.ROUTES,
    *plugins.ROUTES,
    *tasks.ROUTES,
    *runs.ROUTES,
    *schedule.ROUTES,
    *status.ROUTES,
)

BODY_MAX = 1_000_000

_BODIES: web.AppKey[Bodies] = web.AppKey("bodies")
_TABLE: web.AppKey[RouteTable] = web.AppKey("table")
_ROUTE: web.RequestKey[Route] = web.RequestKey("route")
_SECOND_LIST = re.compile(r"((?:^|&)api=\d+)\?")
_FORBIDDEN = frozenset({403, 429})
_UNABLE, _UNABLE_TEXT = 422, "Unable to complete request: "

log = structlog.get_logger()


def application(facade: Facade) -> web.Application:
    """Return the application that serves a façade."""
    layers = [keep_connection, record_request, answer_errors]
    app = web.Application(middlewares=layers, client_max_size=BODY_MAX)
    app[FACADE] = facade
    app[_BODIES] = Bodies()
    app[_TABLE] = RouteTable(ROUTES)
    app.router.add_route("*", "/{path:.*}", serve, expect_handler=expect_later)
    return app


async def serve(request: web.Request) -> web.StreamResponse:
    """Find the route of a request and answer it."""
    facade = request.app[FACADE]
    if not request.secure:
        raise Refusal(400, "This is plain HTTP, and this server speaks HTTPS only.")
    route, words = request.app[_TABLE].find(request.method, _path_words(request))
    requester = facade.requester(request)
    request[_ROUTE], request[PRINCIPAL] = route, requester.principal
    request[THING] = words.get("task", "")
    facade.require(requester, route.need)
    facade.spend(requester)
    query = Parameters(_parameters_of(request))
    _require_level(query)
    async with request.app[_BODIES].received_body(request, BODY_MAX) as body:
        call = Call(facade, request, requester, words, query, body)
        return await route.handler(call)


def _path_words(request: web.Request) -> list[str]:
    """Return the words of a path below the root.

    :raises Refusal: it is not below the root, or has what no name has.
    """
    path = request.rel_url.raw_path
    words = [unquote(word, errors="replace") for word in path.split("/") if word]
    if not words or words[0] != ROOT or any("\x00" in word for word in words):
        raise Refusal(404, f"There is no such resource on this server; see /{ROOT}/.")
    return words[1:]


def _parameters_of(request: web.Request) -> Mapping[str, str]:
    """Return the parameters of a request.

    A lead that asks for time at a priority writes two lists of them, each behind a question mark:
    ``?priority=5&api=4?start=…&end=…``. One that cancels a task adds an empty list: ``?key=K?``.
    """
    given = request.rel_url.raw_query_string
    text = _SECOND_LIST.sub(r"\1&", given.removesuffix("?"))
    return request.query if text == given else URL.build(query_string=text, encoded=True).query


def _require_level(query: Parameters) -> None:
    level = query.integer("api")
    if level is not None and level > LEVEL_MAX:
        raise Refusal(501, f"No API level above {LEVEL_MAX} is supported here.")


@web.middleware
async def record_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Add changes and refused requests to the audit; a change before it is answered."""
    answer = await handler(request)
    route = request.get(_ROUTE)
    if route is None or not (route.changes or answer.status in _FORBIDDEN):
        return answer
    node = request.app[FACADE].node
    entry = AuditEntry(
        node.clock.now(),
        request[PRINCIPAL],
        f"pscheduler_{route.handler.__name__}",
        outcome_of(answer.status, None),
        storable_text(request[THING]) or None,
        request.remote,
        answer.status,
    )
    if entry.is_change_of_user:
        await node.audit.record(entry)
    else:
        node.audit.note(entry)
    return answer


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error with lines of text."""
    try:
        answer = await handler(request)
    except (ConnectionResetError, TimeoutError):
        raise
    except web.HTTPException as error:
        if error.status < web.HTTPBadRequest.status_code:
            raise
        answer = answers.text_response(error.reason, status=error.status)
    except Exception as error:  # noqa: BLE001 - it is logged, and told as what it is
        answer = _refusal_response(request, error)
    answer.force_close()  # clients open a connection for each request
    return answer


def _refusal_response(request: web.Request, error: Exception) -> web.Response:
    if isinstance(error, Refusal):
        unable = error.status == _UNABLE and not error.text.startswith(_UNABLE_TEXT)
        text = f"{_UNABLE_TEXT}{error.text}" if unable else error.text
        return answers.text_response(text, status=error.status)
    explained = error if isinstance(error, ParleyError) else fault_of(error)
    if explained is None:
        log.error("request failed", method=request.method, path=request.path, exc_info=error)
        return answers.text_response(
            "This node has met a fault of its own; its log has it.", status=500
        )
    if isinstance(explained, InvalidDocument):
        lines = "\n".join(f"{fault.pointer}: {fault.detail}" for fault in explained.faults)
        return answers.text_response(lines, status=400)
    return answers.text_response(explained.detail, status=explained.status)
