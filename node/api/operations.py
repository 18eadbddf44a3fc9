"""Routes for operators: health, readiness, metrics, and the OpenAPI document."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from node.api import responses
from node.api.conditions import tag_of
from node.api.media import takes_gzip
from node.api.routing import NODE, Route
from node.model.errors import DatabaseUnavailable, NotReady
from node.model.readiness import Readiness
from node.model.wire.status import Health, Ready
from node.operation.metrics import exposition
from node.operation.readiness import readiness_of
from node.runtime.batching import Batcher
from node.service import NodeService


def readiness_checks(node: NodeService) -> Batcher[None, Readiness]:
    """Return a batcher that checks the readiness of a node once for all who ask meanwhile.

    Anybody may ask, so that those who do must not each keep a connection to the database.
    """

    async def check(askers: Sequence[None]) -> list[Readiness]:
        return [await readiness_of(node)] * len(askers)

    return Batcher(check, items_max=1000, weight_max=1000)


READINESS: web.AppKey[Batcher[None, Readiness]] = web.AppKey("readiness")
"""The checks of an application's node."""


async def alive(_request: web.Request) -> web.StreamResponse:
    """Answer 200, because the process answers."""
    return responses.document_response(Health())


async def ready(request: web.Request) -> web.StreamResponse:
    """Answer 200 if the node can work, or 503 with the reason."""
    node = request.app[NODE]
    if node.stopping:
        msg = "the node is stopping"
        raise DatabaseUnavailable(msg)
    facts = await request.app[READINESS].ask(None)
    if faults := facts.faults:
        raise NotReady("; ".join(faults))
    return responses.document_response(Ready(warnings=tuple(facts.warnings)))


async def metrics(request: web.Request) -> web.StreamResponse:
    """Metrics for Prometheus."""
    body = await exposition(request.app[NODE])
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


@dataclass(frozen=True)
class _EncodedDescription:
    """The OpenAPI document as it is sent: half a megabyte, for which anybody may ask."""

    document: object
    body: bytes
    packed: bytes
    tag: str


class DescriptionCache:
    """Keeps the OpenAPI document, serialised and compressed once for all callers."""

    def __init__(self) -> None:
        self._kept: _EncodedDescription | None = None

    def encoded_description(self, document: object) -> _EncodedDescription:
        """Return a document serialised and compressed; from memory, if it is the same as before."""
        if self._kept is None or self._kept.document is not document:
            body = orjson.dumps(document)
            packed = gzip.compress(body, mtime=0)
            self._kept = _EncodedDescription(document, body, packed, tag_of(body))
        return self._kept


DESCRIBED: web.AppKey[DescriptionCache] = web.AppKey("described")


async def description(request: web.Request) -> web.StreamResponse:
    """The OpenAPI document."""
    kept = request.app[DESCRIBED].encoded_description(request.app[NODE].openapi)
    packed = takes_gzip(request)
    answer = web.Response(
        body=kept.packed if packed else kept.body,
        content_type="application/json",
        headers={"Vary": "Accept-Encoding", "Cache-Control": "no-cache"},
    )
    if packed:
        answer.headers["Content-Encoding"] = "gzip"
    answer.etag = kept.tag
    return answer


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
