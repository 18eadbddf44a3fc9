"""The aiohttp application of one node."""

from __future__ import annotations

from aiohttp import web

from node.api import (
    archives,
    campaigns,
    events,
    intervals,
    meshes,
    nodes,
    operations,
    participant,
    plans,
    pools,
    reservations,
    runs,
    tasks,
)
from node.api.middleware import PEER_BODY_MAX, guarded, problems
from node.api.routing import NODE
from node.service import NodeService

ROUTES = (
    *tasks.ROUTES,
    *runs.ROUTES,
    *plans.ROUTES,
    *reservations.ROUTES,
    *campaigns.ROUTES,
    *pools.ROUTES,
    *intervals.ROUTES,
    *meshes.ROUTES,
    *archives.ROUTES,
    *nodes.ROUTES,
    *events.ROUTES,
    *operations.ROUTES,
    *participant.ROUTES,
)


def application(node: NodeService, page: list[web.RouteDef]) -> web.Application:
    """Return the application that serves the API; ``page`` are the routes of the web page."""
    app = web.Application(middlewares=[problems], client_max_size=PEER_BODY_MAX)
    app[NODE] = node
    for route in ROUTES:
        app.router.add_route(route.method, route.path, guarded(route))
    app.router.add_routes(page)
    return app
