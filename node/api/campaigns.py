"""Routes of campaigns and their usage."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.conditions import matched_revision
from node.api.routing import CURSOR_BY_NAME, INSTANT, LIMIT, NODE, Query, Route
from node.model.errors import NotFound
from node.model.wire.campaigns import (
    Campaign,
    CampaignDocument,
    CampaignPatch,
    ContestedTime,
    UsageHour,
)
from node.service import NodeService
from node.sharing.campaigns import unknown_campaign
from node.store.campaigns import HourFilter


async def _campaigns(node: NodeService, *, budgeted: bool = False) -> list[Campaign]:
    """Return all campaigns by name, each with its usage, and if ``budgeted`` of its limits."""
    warnings = (await node.pools.warnings()).campaigns
    budgets = await node.budgets() if budgeted else {}
    return [
        campaign.model_copy(
            update={
                "warnings": warnings.get(campaign.name, ()),
                "budgets": budgets.get(campaign.name, ()),
            }
        )
        for campaign in await node.usage.all()
    ]


async def _fetch(node: NodeService, name: str, *, budgeted: bool = False) -> Campaign:
    every = {campaign.name: campaign for campaign in await _campaigns(node, budgeted=budgeted)}
    if name not in every:
        raise NotFound(unknown_campaign(name, every))
    return every[name]


async def create(request: web.Request) -> web.StreamResponse:
    """Answer 201 with the campaign; an identical one again gives the existing one."""
    node = request.app[NODE]
    document = requests.document(request, CampaignDocument)
    await node.campaigns.create(document)
    location = {"Location": f"/v1/campaigns/{document.name}"}
    return responses.document_response(await _fetch(node, document.name), 201, location)


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of campaigns, by name."""
    requests.refuse_other_parameters(request, "limit", "cursor", "budgets")
    every = await _campaigns(request.app[NODE], budgeted=requests.flag(request, "budgets"))
    return responses.list_response(*requests.page_of_names(request, every))


async def show(request: web.Request) -> web.StreamResponse:
    """One campaign."""
    requests.refuse_other_parameters(request, "budgets")
    node, name = request.app[NODE], requests.name(request, "campaign")
    budgeted = requests.flag(request, "budgets")
    await node.campaigns.check_exists(name)
    return responses.document_response(await _fetch(node, name, budgeted=budgeted))


async def edit(request: web.Request) -> web.StreamResponse:
    """The changed campaign."""
    node, name = request.app[NODE], requests.name(request, "campaign")
    await node.campaigns.edit(name, requests.patch(request, CampaignPatch))
    return responses.document_response(await _fetch(node, name))


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove a campaign that was never used."""
    node, name = request.app[NODE], requests.name(request, "campaign")
    await node.campaigns.remove(name, matched_revision(request))
    return web.Response(status=204)


async def usage(request: web.Request) -> web.StreamResponse:
    """The usage of all campaigns, hour by hour."""
    return await _answer_usage(request, None)


async def usage_of(request: web.Request) -> web.StreamResponse:
    """The usage of one campaign, hour by hour."""
    name = requests.name(request, "campaign")
    await request.app[NODE].campaigns.check_exists(name)
    return await _answer_usage(request, name)


async def contested(request: web.Request) -> web.StreamResponse:
    """Return how a campaign stands where others want the same time, level by level."""
    requests.refuse_other_parameters(request)
    node, name = request.app[NODE], requests.name(request, "campaign")
    await node.campaigns.check_exists(name)
    return responses.list_response(await node.contested(name), None)


async def _answer_usage(request: web.Request, name: str | None) -> web.StreamResponse:
    requests.refuse_other_parameters(request, "since", "until", "limit", "cursor")
    usages = request.app[NODE].usage
    default_since, default_until = usages.default_interval()
    since, until = requests.instant(request, "since"), requests.instant(request, "until")
    after = requests.named_cursor(request)
    wanted = HourFilter(
        since=default_since if since is None else since,
        until=default_until if until is None else until,
        campaign=name,
        after_hour=after[0] if after else None,
        after_campaign=after[1] if after else None,
        limit=requests.limit(request),
    )
    hours = await usages.hours(wanted)
    full = len(hours) == wanted.limit
    following = f"{hours[-1].starts_at}_{hours[-1].campaign}" if full else None
    return responses.list_response(hours, following)


_BUDGETS = Query(
    "budgets",
    "true: count what is used of limits and quotas, which takes a while if many runs are booked.",
    {"type": "string", "enum": ["true", "false"]},
)

_HOURS = (
    Query(
        "since",
        "Only hours that begin at or after this instant; default: 24 hours ago.",
        INSTANT,
    ),
    Query(
        "until",
        "Only hours that begin before this instant; default: in 24 hours.",
        INSTANT,
    ),
    LIMIT,
    Query(
        "cursor",
        "The value of next in the previous page.",
        {"type": "string", "pattern": "^[0-9]{1,15}_[a-z][a-z0-9-]{0,62}$"},
    ),
)

ROUTES = (
    Route(
        "POST",
        "/v1/campaigns",
        create,
        "Add a campaign",
        CampaignDocument,
        Campaign,
        status=201,
    ),
    Route(
        "GET",
        "/v1/campaigns",
        list_,
        "List campaigns, by name, with their promised and used shares, and their waiting runs",
        answer=Campaign,
        listed=True,
        query=(_BUDGETS, LIMIT, CURSOR_BY_NAME),
    ),
    Route(
        "GET",
        "/v1/campaigns/{name}",
        show,
        "Show a campaign",
        answer=Campaign,
        query=(_BUDGETS,),
    ),
    Route(
        "PATCH",
        "/v1/campaigns/{name}",
        edit,
        "Edit a campaign",
        CampaignPatch,
        Campaign,
    ),
    Route(
        "DELETE",
        "/v1/campaigns/{name}",
        remove,
        "Remove a campaign that was never used",
        status=204,
    ),
    Route(
        "GET",
        "/v1/campaigns/{name}/usage",
        usage_of,
        "Usage of a campaign, hour by hour",
        answer=UsageHour,
        listed=True,
        query=_HOURS,
    ),
    Route(
        "GET",
        "/v1/campaigns/{name}/why",
        contested,
        "How a campaign stands where others want the same time: what it had, and was due",
        answer=ContestedTime,
        listed=True,
    ),
    Route(
        "GET",
        "/v1/usage",
        usage,
        "Usage of all campaigns, hour by hour",
        answer=UsageHour,
        listed=True,
        query=_HOURS,
    ),
)
