"""The route that previews a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, PRINCIPAL, THING, Route
from node.api.tasks import fetch, require_may_post, user_of
from node.model.errors import FieldFault, InvalidDocument, ParleyError
from node.model.host_limits.rules import User
from node.model.permissions import require_own
from node.model.taskstate import OPEN
from node.model.wire.plans import PLANS_MAX, ListedPlan, Plan, PlanRequest
from node.model.wire.problems import problem_of


async def plan(request: web.Request) -> web.StreamResponse:
    """Answer 200 with the plan, even if the task would be refused; nothing is booked or stored.

    For a list of tasks, the plan or the problem of each, as if they were created together.
    """
    if requests.is_list(request):
        return await _plan_several(request)
    plan_request = requests.document(request, PlanRequest)
    await _require_allowed(request, plan_request)
    user = user_of(request, plan_request.campaign)
    return responses.document_response(
        _plan_for_user(request, await request.app[NODE].preview.plan(plan_request, user))
    )


async def _plan_several(request: web.Request) -> web.StreamResponse:
    items = requests.document_list(request, PLANS_MAX)
    request[THING] = f"{len(items)} tasks"
    plans = await plan_documents(request, items)
    return responses.list_response([_listed_plan(request, each) for each in plans])


async def plan_documents(request: web.Request, items: Sequence[Any]) -> list[Plan | BaseException]:
    """Return the plan of each document for this user, as if they were created together.

    Instead of a plan it is why there is none.
    """
    answers: dict[int, Plan | BaseException] = {}
    asked: dict[int, tuple[PlanRequest, User | None]] = {}
    for place, item in enumerate(items):
        try:
            each = requests.item(item, PlanRequest)
            await _require_allowed(request, each)
            if each.seats is not None:
                raise InvalidDocument([FieldFault("/seats", _ALONE)])
            asked[place] = each, user_of(request, each.campaign)
        except ParleyError as error:
            answers[place] = error
    plans = await request.app[NODE].preview.plan_together(list(asked.values()))
    answers |= zip(asked, plans, strict=True)
    return [answers[place] for place in range(len(items))]


_ALONE = "is not for a list, whose tasks name their nodes; send it alone"


def _listed_plan(request: web.Request, answer: Plan | BaseException) -> ListedPlan:
    if isinstance(answer, BaseException):
        return ListedPlan(problem=problem_of(responses.error_of(answer)))
    return ListedPlan(plan=_plan_for_user(request, answer))


def _plan_for_user(request: web.Request, plan: Plan) -> Plan:
    """Return a plan without what its user may not see of the runs that would give way."""
    if request[PRINCIPAL].only is None:
        return plan
    nameless = [each.model_copy(update={"run": None, "task": None}) for each in plan.displaced]
    return plan.model_copy(update={"displaced": tuple(nameless)})


async def _require_allowed(request: web.Request, plan_request: PlanRequest) -> None:
    node = request.app[NODE]
    await require_may_post(node, request[PRINCIPAL], plan_request)
    await _require_replaceable(request, plan_request)
    await node.archives.checked_choices(plan_request.archives)
    await node.admission.check_followed_task(plan_request)


async def _require_replaceable(request: web.Request, plan_request: PlanRequest) -> None:
    """Check that the task that is to be replaced is one that the user could edit.

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
        "Preview a task, or those of a list together; nothing is booked or stored",
        # Those who only read may not ask: it makes other nodes work, and readers on this host need
        # no token where the owner lets them.
        PlanRequest,
        Plan,
        several=(PlanRequest, ListedPlan),
    ),
)
