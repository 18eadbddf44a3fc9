"""Wrap every request: authentication, the body size limit, and problem documents."""

from __future__ import annotations

import ipaddress

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from node.api import responses
from node.api.routing import BODY, NODE, SENDER, Access, Route
from node.model.errors import (
    MalformedRequest,
    MethodNotAllowed,
    NotAuthenticated,
    NotFound,
    ParleyError,
    TooLarge,
)
from node.trust.tokens import digest

BODY_MAX = 1_000_000
PEER_BODY_MAX = 8_000_000
OWN_FAULT = "an internal error occurred; see the log of the node"

log = structlog.get_logger()


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error with a problem document, never with a traceback."""
    try:
        return await handler(request)
    except ParleyError as error:
        return responses.problem(error, request.path)
    except web.HTTPException as error:
        if error.status < web.HTTPBadRequest.status_code:
            raise
        return responses.problem(_of_http(error), request.path)
    except (ConnectionResetError, TimeoutError):
        raise
    except Exception:
        log.exception("request failed", method=request.method, path=request.path)
        fault = ParleyError(OWN_FAULT)
        return responses.problem(fault, request.path)


def _of_http(error: web.HTTPException) -> ParleyError:
    if isinstance(error, web.HTTPNotFound):
        return NotFound("there is nothing at this path; see /v1/openapi.json")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return MethodNotAllowed(f"{error.method} is not allowed here; allowed: {allowed}")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return TooLarge("the request body is larger than this node accepts")
    return MalformedRequest(error.reason)


def guarded(route: Route) -> Handler:
    """Wrap the route's handler in its access rule and its body limit."""

    async def handle(request: web.Request) -> web.StreamResponse:
        request.app[NODE].served[route.access] += 1
        await _read_body(request, PEER_BODY_MAX if route.access is Access.PEER else BODY_MAX)
        match route.access:
            case Access.PEER:
                request[SENDER] = _signed(request)
            case Access.READ if not _from_loopback(request):
                await _with_token(request)
            case Access.WRITE:
                await _with_token(request)
            case Access.READ | Access.OPEN:
                pass
        return await route.handler(request)

    return handle


async def _read_body(request: web.Request, bytes_max: int) -> None:
    if request.headers.get("Content-Encoding", "identity") != "identity":
        msg = "compressed request bodies are not supported; send it uncompressed"
        raise MalformedRequest(msg)
    if (request.content_length or 0) > bytes_max:
        msg = f"the body is larger than {bytes_max} bytes"
        raise TooLarge(msg)
    body = bytearray()
    async for chunk in request.content.iter_chunked(65_536):
        body += chunk
        if len(body) > bytes_max:
            msg = f"the body is larger than {bytes_max} bytes"
            raise TooLarge(msg)
    request[BODY] = bytes(body)


def _signed(request: web.Request) -> str:
    node = request.app[NODE]
    return node.verifier.verify(
        method=request.method,
        target=request.raw_path,
        headers=request.headers,
        body=request[BODY],
        now=node.clock.now(),
    )


def _from_loopback(request: web.Request) -> bool:
    """Return whether the caller is on this host, and not a web page from another host."""
    try:
        local = ipaddress.ip_address(request.remote or "").is_loopback
    except ValueError:
        return False
    host = request.url.host or ""
    if host == "localhost":
        return local
    try:
        return local and ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name that resolves to this host may be an attacker's (DNS rebinding): require a token.
        return False


async def _with_token(request: web.Request) -> None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        msg = (
            "this needs a token; send 'Authorization: Bearer …' with the token in the "
            "file 'token' of the node's state directory"
        )
        raise NotAuthenticated(msg)
    if not await request.app[NODE].knows_token(digest(token.strip())):
        msg = "the token is not valid for this node"
        raise NotAuthenticated(msg)
