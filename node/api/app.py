"""The aiohttp application of one node."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial

from aiohttp import web

from node.api import (
    alerts,
    archives,
    audit,
    campaigns,
    diagnosis,
    directories,
    events,
    intervals,
    keys,
    limits,
    lists,
    mesh_files,
    meshes,
    nodes,
    operations,
    participant,
    plans,
    pools,
    problem_types,
    reservations,
    runs,
    secrets,
    shares,
    status,
    task_changes,
    tasks,
    tokens,
    webhooks,
)
from node.api.bodies import BODIES, Bodies, expect_later
from node.api.connections import ConnectionLimits, keep_connection
from node.api.heads import protocol_factory
from node.api.media import shorten_answer
from node.api.middleware import (
    PEER_BODY_MAX,
    add_headers,
    answer_errors,
    guarded_handler,
    refuse_plain_http,
    sign_answer,
    time_answer,
    trace_request,
)
from node.api.routing import NODE, ROUTES_SERVED
from node.operation.pair import PairChecker
from node.runtime.settings import Settings
from node.service import NodeService

ROUTES = (
    *tasks.ROUTES,
    *task_changes.ROUTES,
    *runs.ROUTES,
    *plans.ROUTES,
    *reservations.ROUTES,
    *campaigns.ROUTES,
    *pools.ROUTES,
    *intervals.ROUTES,
    *lists.ROUTES,
    *mesh_files.ROUTES,
    *meshes.ROUTES,
    *archives.ROUTES,
    *nodes.ROUTES,
    *directories.ROUTES,
    *keys.ROUTES,
    *shares.ROUTES,
    *limits.ROUTES,
    *tokens.ROUTES,
    *webhooks.ROUTES,
    *alerts.ROUTES,
    *secrets.ROUTES,
    *events.ROUTES,
    *audit.ROUTES,
    *status.ROUTES,
    *diagnosis.ROUTES,
    *operations.ROUTES,
    *problem_types.ROUTES,
    *participant.ROUTES,
)


HEAD_S = 10.0
"""Maximum seconds for the head of a request, and between two requests on a connection."""

_BACKLOG = 1024
_DRAIN_S = 2.0
_READ_AHEAD = 32_768


def runner(app: web.Application) -> web.AppRunner:
    """Return the aiohttp runner of an application, with this API's limits for slow callers.

    aiohttp closes a connection that has not brought a complete head ``keepalive_timeout`` after it
    was opened or the previous answer. Before a handler asks for a body, aiohttp keeps at most twice
    ``read_bufsize`` of it; what no handler asks for is read and dropped for ``lingering_time``, so
    that the caller gets its answer instead of a reset connection. Bodies are not decompressed: a
    megabyte can unfold to a gigabyte.
    """
    return web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=2.0,
        handle_signals=False,
        auto_decompress=False,
        keepalive_timeout=HEAD_S,
        lingering_time=_DRAIN_S,
        read_bufsize=_READ_AHEAD,
    )


async def listen(
    serving: web.AppRunner,
    settings: Settings,
    listening: socket.socket | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> asyncio.Server:
    """Accept connections, within the node's limits, on a socket or where the settings say.

    Those that begin with a handshake get TLS by the context that ``tls()`` returns then.

    :raises OSError: this host cannot listen there.
    """
    limits = ConnectionLimits(
        protocol_factory(serving), settings.connections_max, settings.connections_per_address, tls
    )
    loop = asyncio.get_running_loop()
    if listening is not None:
        return await loop.create_server(limits, sock=listening, backlog=_BACKLOG)
    return await loop.create_server(
        limits, settings.listen_host, settings.listen_port, backlog=_BACKLOG
    )


def tls_of(node: NodeService) -> Callable[[], ssl.SSLContext] | None:
    """Return the function that gives :func:`listen` the TLS context in force; None without TLS.

    It is called for each connection, because certificates may be renewed meanwhile.
    """
    certificates = node.certificates
    return None if certificates is None else lambda: certificates.context


def application(node: NodeService, page: list[web.RouteDef]) -> web.Application:
    """Return the application that serves the API; ``page`` are the routes of the web page."""
    app = web.Application(
        middlewares=[
            keep_connection,
            time_answer,
            trace_request,
            shorten_answer,
            sign_answer,
            audit.record_request,
            answer_errors,
            refuse_plain_http,
        ],
        client_max_size=PEER_BODY_MAX,
    )
    app[NODE] = node
    app[ROUTES_SERVED] = {route.operation: route for route in ROUTES}
    app[BODIES] = Bodies()
    app[operations.DESCRIBED] = operations.DescriptionCache()
    app[diagnosis.CHECKER] = PairChecker(node)
    app[operations.READINESS] = operations.readiness_checks(node)
    app.on_response_prepare.append(add_headers)
    for route in ROUTES:
        handler = guarded_handler(route)
        methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
        for method in methods:
            app.router.add_route(method, route.path, handler, expect_handler=expect_later)
    _refuse_other_methods_of_literal_paths(app)
    app.router.add_routes(page)
    return app


def _refuse_other_methods_of_literal_paths(app: web.Application) -> None:
    """Answer 405 for methods that paths such as ``/v1/tasks/changes`` do not have.

    Otherwise aiohttp would match ``/v1/tasks/{id}``, with ``changes`` as the id.
    """
    methods: dict[str, set[str]] = {}
    for route in ROUTES:
        methods.setdefault(route.path, set()).update(
            ("GET", "HEAD") if route.method == "GET" else (route.method,)
        )
    for path, allowed in methods.items():
        if not path.endswith("}") and f"{path.rpartition('/')[0]}/{{id}}" in methods:
            app.router.add_route("*", path, partial(_refuse_method, frozenset(allowed)))


async def _refuse_method(allowed: frozenset[str], request: web.Request) -> web.StreamResponse:
    raise web.HTTPMethodNotAllowed(request.method, allowed)
