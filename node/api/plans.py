"""The route that previews a task."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, PRINCIPAL, Route
from node.api.tasks import fetch, require_may_post, user_of
from node.model.errors import FieldFault, InvalidDocument
from node.model.permissions import require_own
from node.model.taskstate import OPEN
from node.model.wire.plans import Plan, PlanRequest


async def plan(request: web.Request) -> web.StreamResponse:
    """POST: 200 with the plan, even if the task would be refused; nothing is booked or stored."""
    node, plan_request = request.app[NODE], requests.document(request, PlanRequest)
    await require_may_post(node, request[PRINCIPAL], plan_request)
    await _require_replaceable(request, plan_request)
    await node.archives.checked_all(plan_request.archives)
    await node.admission.check_followed_task(plan_request)
    plan = await node.preview(plan_request, user_of(request, plan_request.campaign))
    if request[PRINCIPAL].only is not None:  # the runs that would give way may be of others
        nameless = [each.model_copy(update={"run": None, "task": None}) for each in plan.displaced]
        plan = plan.model_copy(update={"displaced": tuple(nameless)})
    return responses.one(plan)


async def _require_replaceable(request: web.Request, plan_request: PlanRequest) -> None:
    """Return if the task that is to be replaced is one that the user could edit.

    :raises NotFound: it is unknown here.
    :raises NotAllowed: it is of another user, and the user may change their own only.
    :raises InvalidDocument: it is led elsewhere, is over, or is replaced by seats of a pool.
    """
    if plan_request.instead_of is None:
        return
    replaced = await fetch(request.app[NODE], plan_request.instead_of)
    require_own(request[PRINCIPAL], replaced.requester, f"task {replaced.id}")
    reason = None
    if not replaced.led_here:
        reason = f"is led by {replaced.lead}, which alone edits it"
    elif replaced.state not in OPEN:
        reason = f"is {replaced.state}; leave it out"
    elif plan_request.seats is not None or replaced.pool is not None:
        reason = "is for tasks with named nodes only, not for seats of a pool; leave it out"
    if reason is not None:
        raise InvalidDocument([FieldFault("/instead_of", reason)])


ROUTES = (
    Route(
        "POST",
        "/v1/plans",
        plan,
        "Preview a task; nothing is booked or stored",
        # Those who only read may not ask: it makes other nodes work, and readers on this host need
        # no token where the owner lets them.
        PlanRequest,
        Plan,
    ),
)
