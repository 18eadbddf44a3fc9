"""Campaigns: add, list, show, edit, remove, and what they were charged for."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import CURSOR, INSTANT, LIMIT, NODE, Access, Query, Route
from node.model.errors import NotFound
from node.model.wire.campaigns import Campaign, CampaignDocument, CampaignPatch, UsageHour
from node.service import NodeService
from node.sharing.campaigns import no_such
from node.store.campaigns import HourFilter


async def _all(node: NodeService) -> list[Campaign]:
    """By name, each with its account and what is to be told of it."""
    told = (await node.pools.warnings()).campaigns
    return [
        campaign.model_copy(update={"warnings": told.get(campaign.name, ())})
        for campaign in await node.usage.all()
    ]


async def _fetch(node: NodeService, name: str) -> Campaign:
    every = {campaign.name: campaign for campaign in await _all(node)}
    if name not in every:
        raise NotFound(no_such(name, every))
    return every[name]


async def create(request: web.Request) -> web.StreamResponse:
    """POST: 201 with the campaign; the very same again gives the one made before."""
    node = request.app[NODE]
    document = requests.document(request, CampaignDocument)
    await node.campaigns.create(document)
    location = {"Location": f"/v1/campaigns/{document.name}"}
    return responses.one(await _fetch(node, document.name), 201, location)


async def list_(request: web.Request) -> web.StreamResponse:
    """GET: a page of campaigns, by name."""
    requests.only(request, "limit", "cursor")
    every = await _all(request.app[NODE])
    return responses.many(*requests.page_of_names(request, every))


async def show(request: web.Request) -> web.StreamResponse:
    """GET: one campaign."""
    requests.only(request)
    node, name = request.app[NODE], requests.name(request, "campaign")
    await node.campaigns.find(name)
    return responses.one(await _fetch(node, name))


async def edit(request: web.Request) -> web.StreamResponse:
    """PATCH: the campaign with the changes."""
    node, name = request.app[NODE], requests.name(request, "campaign")
    await node.campaigns.edit(name, requests.document(request, CampaignPatch))
    return responses.one(await _fetch(node, name))


async def remove(request: web.Request) -> web.StreamResponse:
    """DELETE: away with a campaign that nothing hangs on."""
    await request.app[NODE].campaigns.remove(requests.name(request, "campaign"))
    return web.Response(status=204)


async def usage(request: web.Request) -> web.StreamResponse:
    """GET: what all campaigns were charged, hour by hour."""
    return await _hours(request, None)


async def usage_of(request: web.Request) -> web.StreamResponse:
    """GET: what one campaign was charged, hour by hour."""
    name = requests.name(request, "campaign")
    await request.app[NODE].campaigns.find(name)
    return await _hours(request, name)


async def _hours(request: web.Request, name: str | None) -> web.StreamResponse:
    requests.only(request, "since", "until", "limit", "cursor")
    accounts = request.app[NODE].usage
    since, until = accounts.day_around()
    given = requests.instant(request, "since"), requests.instant(request, "until")
    after = requests.named_cursor(request)
    wanted = HourFilter(
        since=since if given[0] is None else given[0],
        until=until if given[1] is None else given[1],
        campaign=name,
        after_hour=after[0] if after else None,
        after_campaign=after[1] if after else None,
        limit=requests.limit(request),
    )
    hours = await accounts.hours(wanted)
    full = len(hours) == wanted.limit
    following = f"{hours[-1].starts_at}_{hours[-1].campaign}" if full else None
    return responses.many(hours, following)


_HOURS = (
    Query(
        "since",
        "Hours that begin then or later; the last 24 unless said.",
        INSTANT,
    ),
    Query(
        "until",
        "Hours that begin before; the next 24 unless said.",
        INSTANT,
    ),
    LIMIT,
    CURSOR,
)

ROUTES = (
    Route(
        "POST",
        "/v1/campaigns",
        create,
        "Add a campaign",
        Access.WRITE,
        CampaignDocument,
        Campaign,
        status=201,
    ),
    Route(
        "GET",
        "/v1/campaigns",
        list_,
        "List campaigns, by name: what they are promised, have had, and wait for",
        answer=Campaign,
        listed=True,
        query=(LIMIT, CURSOR),
    ),
    Route("GET", "/v1/campaigns/{name}", show, "Show a campaign", answer=Campaign),
    Route(
        "PATCH",
        "/v1/campaigns/{name}",
        edit,
        "Edit a campaign",
        Access.WRITE,
        CampaignPatch,
        Campaign,
    ),
    Route(
        "DELETE",
        "/v1/campaigns/{name}",
        remove,
        "Remove a campaign that was never used",
        Access.WRITE,
        status=204,
    ),
    Route(
        "GET",
        "/v1/campaigns/{name}/usage",
        usage_of,
        "What a campaign was charged, hour by hour",
        answer=UsageHour,
        listed=True,
        query=_HOURS,
    ),
    Route(
        "GET",
        "/v1/usage",
        usage,
        "What all campaigns were charged, hour by hour",
        answer=UsageHour,
        listed=True,
        query=_HOURS,
    ),
)
