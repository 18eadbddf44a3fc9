"""Around every request: who asks, how much is read, and errors as problem documents."""

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
OWN_FAULT = "the node met an error of its own; its log has the details"

log = structlog.get_logger()


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error is answered with a problem document; none reaches the caller as a trace."""
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
        return NotFound("there is nothing at this path; /v1/openapi.json lists what there is")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return MethodNotAllowed(f"{error.method} is not possible here; possible: {allowed}")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return TooLarge("the body is larger than this node reads")
    return MalformedRequest(error.reason)


def guarded(route: Route) -> Handler:
    """The route's handler behind its access rule and its body limit."""

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
        msg = "compressed bodies are not read; send it as it is"
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
    """Whether the caller is on this host, and a page from elsewhere has not made it ask."""
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
        # A name that resolves to this host may be a stranger's (DNS rebinding): a token decides.
        return False


async def _with_token(request: web.Request) -> None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        msg = (
            "this needs a token: send 'Authorization: Bearer …'; the node's owner finds it in the "
            "file 'token' of its state directory"
        )
        raise NotAuthenticated(msg)
    if not await request.app[NODE].knows_token(digest(token.strip())):
        msg = "the token is not one of this node's"
        raise NotAuthenticated(msg)
