"""Routes of the owner's secrets; no answer has a value."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import CURSOR_BY_NAME, LIMIT, NODE, Route
from node.model.wire.secrets import Secret, SecretDocument


async def add(request: web.Request) -> web.StreamResponse:
    """Answer 201 with the secret, without its value."""
    requests.refuse_other_parameters(request)
    added = await request.app[NODE].secrets.add(requests.document(request, SecretDocument))
    return responses.document_response(added, 201, {"Location": f"/v1/secrets/{added.name}"})


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of secrets by name, without their values."""
    requests.refuse_other_parameters(request, "limit", "cursor")
    every = await request.app[NODE].secrets.all()
    return responses.list_response(*requests.page_of_names(request, every))


async def remove(request: web.Request) -> web.StreamResponse:
    """Remove a secret; what names it cannot use it any more."""
    await request.app[NODE].secrets.remove(requests.name(request, "secret"))
    return web.Response(status=204)


ROUTES = (
    Route(
        "POST",
        "/v1/secrets",
        add,
        "Add a secret that specs of tests name, or replace it",
        SecretDocument,
        Secret,
        status=201,
    ),
    Route(
        "GET",
        "/v1/secrets",
        list_,
        "List secrets, without their values",
        answer=Secret,
        listed=True,
        query=(LIMIT, CURSOR_BY_NAME),
    ),
    Route("DELETE", "/v1/secrets/{name}", remove, "Remove a secret", status=204),
)
