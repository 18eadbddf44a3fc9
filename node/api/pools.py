"""Routes of pools and policy sets."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.conditions import matched_revision
from node.api.routing import CURSOR_BY_NAME, LIMIT, NODE, Route
from node.model import policysets
from node.model.wire.policy_plans import PolicyPlan, PolicyPlanRequest
from node.model.wire.pools import (
    ExpectedMisses,
    Outside,
    PolicySet,
    PolicySetAlias,
    Pool,
    PoolDocument,
    PoolPatch,
)
from node.service import NodeService
from node.sharing.pools import Warnings, document_of
from node.store.pools import StoredPool


def _pool_document(node: NodeService, pool: StoredPool, warnings: Warnings) -> Pool:
    members = node.pools.membership(pool.match)
    others = tuple(Outside(node=name, reason=why) for name, why in members.others.items())
    return Pool(
        **document_of(pool),
        lead=node.card.name,
        revision=pool.revision,
        created_at=pool.created_at,
        changed_at=pool.changed_at,
        nodes=members.nodes,
        others=others,
        warnings=warnings.pools.get(pool.name, ()),
        expected_misses=tuple(
            ExpectedMisses(campaign=it.campaign, runs=it.runs, first_at=it.first_at)
            for it in warnings.misses.get(pool.name, ())
        ),
    )


async def _fetch_pool(node: NodeService, name: str) -> Pool:
    return _pool_document(node, await node.pools.find(name), await node.pools.warnings())


async def create(request: web.Request) -> web.StreamResponse:
    """Answer 201 with the pool; an identical one again gives the existing one."""
    node = request.app[NODE]
    document = requests.document(request, PoolDocument)
    await node.pools.create(document)
    pool = await _fetch_pool(node, document.name)
    return responses.document_response(pool, 201, {"Location": f"/v1/pools/{document.name}"})


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of pools, by name."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request, "limit", "cursor")
    warnings = await node.pools.warnings()
    every = [_pool_document(node, pool, warnings) for pool in await node.pools.all()]
    return responses.list_response(*requests.page_of_names(request, every))


async def show(request: web.Request) -> web.StreamResponse:
    """One pool."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request)
    return responses.document_response(await _fetch_pool(node, requests.name(request, "pool")))


async def edit(request: web.Request) -> web.StreamResponse:
    """The changed pool; changes take effect at once."""
    node, name = request.app[NODE], requests.name(request, "pool")
    await node.pools.edit(name, requests.patch(request, PoolPatch))
    return responses.document_response(await _fetch_pool(node, name))


async def plan_policy(request: web.Request) -> web.StreamResponse:
    """POST: 200 with what other policies would change in the hours to come; nothing is changed."""
    node, name = request.app[NODE], requests.name(request, "pool")
    wanted = requests.document(request, PolicyPlanRequest)
    pool = await node.pools.check_policy(name, wanted.policy)
    return responses.document_response(await node.preview_policies(pool, wanted))


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove a pool; its nodes stay."""
    node, name = request.app[NODE], requests.name(request, "pool")
    await node.pools.remove(name, matched_revision(request))
    return web.Response(status=204)


async def list_policy_sets(request: web.Request) -> web.StreamResponse:
    """The policy sets, the recommended one first."""
    requests.refuse_other_parameters(request)
    return responses.list_response(
        [
            PolicySet(
                name=name,
                good_for=kind.good_for,
                recommended=name == policysets.DEFAULT,
                options=dict(policysets.options_of(name)),
                aliases=tuple(
                    PolicySetAlias(name=alias, options=dict(recipe.options))
                    for alias, recipe in policysets.ALIASES.items()
                    if recipe.set == name
                ),
            )
            for name, kind in policysets.SETS.items()
        ]
    )


ROUTES = (
    Route(
        "GET",
        "/v1/policysets",
        list_policy_sets,
        "List the policy sets that a pool can have, and what each is good for",
        answer=PolicySet,
        listed=True,
    ),
    Route("POST", "/v1/pools", create, "Add a pool", PoolDocument, Pool, status=201),
    Route(
        "GET",
        "/v1/pools",
        list_,
        "List pools, by name, with their nodes, and why the others do not belong to them",
        answer=Pool,
        listed=True,
        query=(LIMIT, CURSOR_BY_NAME),
    ),
    Route("GET", "/v1/pools/{name}", show, "Show a pool", answer=Pool),
    Route("PATCH", "/v1/pools/{name}", edit, "Edit a pool", PoolPatch, Pool),
    Route(
        "POST",
        "/v1/pools/{name}/policy-plan",
        plan_policy,
        "Show what other policies would change in a pool; nothing is changed or booked",
        PolicyPlanRequest,
        PolicyPlan,
    ),
    Route("DELETE", "/v1/pools/{name}", remove, "Remove a pool", status=204),
)
