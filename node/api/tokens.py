"""Routes of the tokens of users."""

from __future__ import annotations

from aiohttp import web

from node.api import requests, responses
from node.api.routing import CURSOR, LIMIT, NODE, PREFIX, PRINCIPAL, THING, Route
from node.model.principals import Role
from node.model.wire.tokens import Caller, NewToken, Token, TokenRequest


async def add(request: web.Request) -> web.StreamResponse:
    """Answer 201 with a new token; its secret is shown this once."""
    document = requests.document(request, TokenRequest)
    made = await request.app[NODE].tokens.add(document, request[PRINCIPAL])
    request[THING] = str(made.id)
    return responses.document_response(made, 201, {"Location": "/v1/tokens"})


async def list_(request: web.Request) -> web.StreamResponse:
    """A page of all tokens, the newest first, but for their secrets."""
    requests.refuse_other_parameters(request, "prefix", "limit", "cursor")
    prefix, limit = requests.word(request, "prefix"), requests.limit(request)
    listed = await request.app[NODE].tokens.page(prefix, requests.cursor(request), limit)
    following = requests.next_cursor(listed, limit, lambda token: (token.created_at, token.id))
    return responses.list_response(listed, following)


async def self_(request: web.Request) -> web.StreamResponse:
    """Return who asks, so that pages and programs offer them only what they may do."""
    user = request[PRINCIPAL]
    return responses.document_response(Caller(label=user.label, role=user.role or Role.READ))


async def revoke(request: web.Request) -> web.StreamResponse:
    """The token, which is valid no longer; idempotent."""
    token = requests.identifier(request)
    return responses.document_response(await request.app[NODE].tokens.revoke(token))


ROUTES = (
    Route(
        "POST",
        "/v1/tokens",
        add,
        "Make a token for a user; its secret is shown this once",
        TokenRequest,
        NewToken,
        status=201,
    ),
    Route(
        "GET",
        "/v1/tokens",
        list_,
        "List tokens, newest first",
        answer=Token,
        listed=True,
        query=(PREFIX, LIMIT, CURSOR),
    ),
    Route("GET", "/v1/tokens/self", self_, "Tell who asks, and their role", answer=Caller),
    Route("DELETE", "/v1/tokens/{id}", revoke, "Revoke a token at once", answer=Token),
)
