"""Routes of the status of this node."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, Route
from node.model.wire.status import NodeStatus
from node.operation.status import status_of


async def status(request: web.Request) -> web.StreamResponse:
    """GET: how this node is, and what needs attention."""
    requests.refuse_other_parameters(request)
    return responses.document_response(await status_of(request.app[NODE]))


ROUTES = (
    Route(
        "GET", "/v1/status", status, "How this node is, and what needs attention", answer=NodeStatus
    ),
)
