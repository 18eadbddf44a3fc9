"""Plans: what would happen if a task were posted."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, Access, Route
from node.model.wire.plans import Plan, PlanRequest


async def plan(request: web.Request) -> web.StreamResponse:
    """POST: the answer is 200 also where the task would be refused; nothing is booked or kept."""
    node, asked = request.app[NODE], requests.document(request, PlanRequest)
    await node.archives.checked_all(asked.archives)
    return responses.one(await node.preview(asked))


ROUTES = (
    Route(
        "POST",
        "/v1/plans",
        plan,
        "What would happen if this task were posted; nothing is booked or kept",
        # Whoever asks makes other nodes work for it.
        Access.WRITE,
        PlanRequest,
        Plan,
    ),
)
