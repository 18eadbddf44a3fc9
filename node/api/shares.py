"""The route of the shares of leads in this node's time."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, Route
from node.model.wire.shares import LeadShare


async def list_(request: web.Request) -> web.StreamResponse:
    """The shares of leads, and what each of them had."""
    requests.refuse_other_parameters(request)
    return responses.list_response(await request.app[NODE].lead_shares.all())


ROUTES = (
    Route(
        "GET",
        "/v1/shares",
        list_,
        "List the shares of leads in this node's time, and what each of them had",
        answer=LeadShare,
        listed=True,
    ),
)
