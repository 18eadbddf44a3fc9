"""Routes for operators: health, readiness, metrics, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from node.api import responses
from node.api.routing import NODE, Route
from node.batching import Batcher
from node.metrics import exposition
from node.model.errors import DatabaseUnavailable, NotReady
from node.model.readiness import Readiness
from node.model.wire.health import Health, Ready
from node.readiness import readiness_of
from node.service import NodeService


def readiness_checks(node: NodeService) -> Batcher[None, Readiness]:
    """Return what checks the readiness of a node for all who ask at a time at once.

    Anybody may ask, so that those who do must not each keep a connection to the database.
    """

    async def check(askers: Sequence[None]) -> list[Readiness]:
        return [await readiness_of(node)] * len(askers)

    return Batcher(check, items_max=1000, weight_max=1000)


READINESS: web.AppKey[Batcher[None, Readiness]] = web.AppKey("readiness")
"""The checks of an application's node."""


async def alive(_request: web.Request) -> web.StreamResponse:
    """GET: 200, because the process answers."""
    return responses.one(Health())


async def ready(request: web.Request) -> web.StreamResponse:
    """GET: 200 if the node can work, or 503 with the reason."""
    node = request.app[NODE]
    if node.stopping:
        msg = "the node is stopping"
        raise DatabaseUnavailable(msg)
    facts = await request.app[READINESS].ask(None)
    if faults := facts.faults:
        raise NotReady("; ".join(faults))
    return responses.one(Ready(warnings=tuple(facts.warnings)))


async def metrics(request: web.Request) -> web.StreamResponse:
    """GET: metrics for Prometheus."""
    body = await exposition(request.app[NODE])
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def description(request: web.Request) -> web.StreamResponse:
    """GET: the OpenAPI document."""
    return web.Response(
        body=orjson.dumps(request.app[NODE].openapi), content_type="application/json"
    )


ROUTES = (
    Route("GET", "/healthz", alive, "Alive", answer=Health),
    Route("GET", "/readyz", ready, "Ready to work", answer=Ready),
    Route(
        "GET",
        "/metrics",
        metrics,
        "Metrics for Prometheus",
        media_type="text/plain",
        without_database=True,
    ),
    Route("GET", "/v1/openapi.json", description, "This description"),
)
