"""The route that previews a task."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, Route
from node.model.wire.plans import Plan, PlanRequest


async def plan(request: web.Request) -> web.StreamResponse:
    """POST: 200 with the plan, even if the task would be refused; nothing is booked or stored."""
    node, plan_request = request.app[NODE], requests.document(request, PlanRequest)
    await node.archives.checked_all(plan_request.archives)
    await node.admission.check_followed_task(plan_request)
    return responses.one(await node.preview(plan_request))


ROUTES = (
    Route(
        "POST",
        "/v1/plans",
        plan,
        "Preview a task; nothing is booked or stored",
        # It needs a token, because it makes other nodes work.
        PlanRequest,
        Plan,
    ),
)
