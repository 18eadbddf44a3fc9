"""Routes of the keys of nodes: another key, and revocations."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import NODE, THING, Route
from node.model.wire.keys import (
    Rekeying,
    Revocation,
    RevocationReport,
    RevocationRequest,
    UntoldNode,
)


async def rekey(request: web.Request) -> web.StreamResponse:
    """Replace the key of this node; those who know it follow."""
    node = request.app[NODE]
    requests.refuse_other_parameters(request)
    rekeyed = await node.successions.rekey()
    request[THING] = rekeyed.lineage.key
    await node.renew_certificates()
    return responses.document_response(
        Rekeying(
            identity=rekeyed.lineage.identity,
            key=rekeyed.lineage.key,
            told=rekeyed.told,
            untold=tuple(UntoldNode(name=name, reason=why) for name, why in rekeyed.untold.items()),
        )
    )


async def revoke_own(request: web.Request) -> web.StreamResponse:
    """Revoke a key of this node, or only sign that it is revoked."""
    node = request.app[NODE]
    wanted = requests.document(request, RevocationRequest)
    report = await node.revocations.revoke_own(wanted)
    request[THING] = report.key
    return responses.document_response(report)


async def revoke(request: web.Request) -> web.StreamResponse:
    """End what a revoked key has, here and at the nodes that are known here."""
    node = request.app[NODE]
    wanted = requests.document(request, Revocation)
    if wanted.statement is not None:
        report = await node.revocations.revoke(wanted.statement)
    else:
        report = await node.revocations.revoke_node(str(wanted.node))
    request[THING] = report.key
    return responses.document_response(report)


ROUTES = (
    Route(
        "POST",
        "/v1/nodes/self/rekey",
        rekey,
        "Replace the key of this node, which keeps its identity",
        answer=Rekeying,
    ),
    Route(
        "POST",
        "/v1/nodes/self/revocation",
        revoke_own,
        "Revoke a key of this node",
        RevocationRequest,
        RevocationReport,
    ),
    Route(
        "POST",
        "/v1/revocations",
        revoke,
        "Take in that a key is revoked, or revoke another node here",
        Revocation,
        RevocationReport,
    ),
)
