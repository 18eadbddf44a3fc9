"""Routes of the limits that the owner of this host has set."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, Route
from node.model.errors import Conflict, NotFound
from node.model.nodekinds import NodeKind
from node.model.wire.host_limits import GrantedLimits, LimitTrial, LimitTrialRequest, ShownLimits


async def show(request: web.Request) -> web.StreamResponse:
    """The limits in force, what other nodes have used, and whether the file can be read."""
    requests.refuse_other_parameters(request)
    node = request.app[NODE]
    others = {
        known.name: known.identity
        for known in node.directory.all
        if not known.is_self and known.kind is NodeKind.PARLEY
    }
    shown = await node.limits.for_people()
    given = tuple(await node.limits.granted_to(others))
    return responses.document_response(shown.model_copy(update={"given": given}))


async def trial(request: web.Request) -> web.StreamResponse:
    """Return what would become of a task that another node or a user asked for here."""
    document = requests.document(request, LimitTrialRequest)
    return responses.document_response(await request.app[NODE].limit_trials.run(document))


async def granted_limits(request: web.Request) -> web.StreamResponse:
    """Return what the limits of another node's host allow this node, as that node says."""
    requests.refuse_other_parameters(request)
    node = request.app[NODE]
    name = request.match_info["name"]
    known = node.directory.find(name)
    if known is None:
        msg = f"no node {name} is known here; see parley node list"
        raise NotFound(msg)
    if known.is_self:
        msg = "the limits of this host do not bind its own tasks; see parley limits show"
        raise Conflict(msg)
    return responses.document_response(await node.peer(known.identity).limits())


ROUTES = (
    Route(
        "POST",
        "/v1/limits/trials",
        trial,
        "Try a task against the limits, as if a node or a user asked for it; nothing is stored",
        LimitTrialRequest,
        LimitTrial,
    ),
    Route(
        "GET",
        "/v1/nodes/{name}/limits",
        granted_limits,
        "Ask another node what its limits allow this one, and what is left",
        answer=GrantedLimits,
    ),
    Route(
        "GET",
        "/v1/limits",
        show,
        "Show what other nodes may have of this host, and whether its file could be read last",
        answer=ShownLimits,
    ),
)
