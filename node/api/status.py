"""Routes of the status of this node."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, Route
from node.diagnosis.status import status_of
from node.model.wire.status import NodeStatus


async def status(request: web.Request) -> web.StreamResponse:
    """GET: how this node is, and what needs attention."""
    requests.only(request)
    return responses.one(await status_of(request.app[NODE]))


ROUTES = (
    Route(
        "GET", "/v1/status", status, "How this node is, and what needs attention", answer=NodeStatus
    ),
)
