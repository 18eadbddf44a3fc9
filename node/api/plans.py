"""The route that previews a task."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, PRINCIPAL, Route
from node.api.tasks import require_may_post, user_of
from node.model.wire.plans import Plan, PlanRequest


async def plan(request: web.Request) -> web.StreamResponse:
    """POST: 200 with the plan, even if the task would be refused; nothing is booked or stored."""
    node, plan_request = request.app[NODE], requests.document(request, PlanRequest)
    await require_may_post(node, request[PRINCIPAL], plan_request)
    await node.archives.checked_all(plan_request.archives)
    await node.admission.check_followed_task(plan_request)
    plan = await node.preview(plan_request, user_of(request, plan_request.campaign))
    if request[PRINCIPAL].only is not None:  # the runs that would give way may be of others
        nameless = [each.model_copy(update={"run": None, "task": None}) for each in plan.displaced]
        plan = plan.model_copy(update={"displaced": tuple(nameless)})
    return responses.one(plan)


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
