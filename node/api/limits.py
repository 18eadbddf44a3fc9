"""Routes of the limits that the owner of this host has set."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, Route
from node.model.wire.host_limits import ShownLimits


async def show(request: web.Request) -> web.StreamResponse:
    """GET: the limits in force, and whether their file could be read last."""
    requests.only(request)
    return responses.one(await request.app[NODE].limits.shown())


ROUTES = (
    Route(
        "GET",
        "/v1/limits",
        show,
        "Show what other nodes may have of this host, and whether its file could be read last",
        answer=ShownLimits,
    ),
)
