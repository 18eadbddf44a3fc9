"""Wrap every request: authentication, the limits of its body, and problem documents.

The outermost middlewares answer errors, so that none leaves this process as a traceback, and record
requests in the audit. :func:`guarded_handler` wraps the handler of a route. What it can tell by the
head of a request comes first, and so costs neither a body nor memory: where the request comes from,
who sends it (the signature of a node, a token, or a program of this host), whether the role permits
it, and whether the sender has asked too often. Then the body is read, within the bounds of the
route. Of a node's request it is checked against the signed digest, and its work is counted. The
answer to a node is signed for the nonce of its request. Nothing here knows what a handler does.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from node.api import local_access, requests, responses
from node.api.bodies import BODIES
from node.api.conditions import CONDITIONAL
from node.api.media import require_acceptable, require_readable
from node.api.routing import (
    ALLOWANCE,
    ANSWER_NONCE,
    BODY,
    NODE,
    PRINCIPAL,
    PROBLEM,
    SENDER,
    Route,
)
from node.model.errors import (
    ChangedSince,
    DatabaseUnavailable,
    MalformedRequest,
    MethodNotAllowed,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    ParleyError,
    PreconditionFailed,
    TooFast,
    TooLarge,
    TooManyRequests,
    fault_of,
)
from node.model.loopback import is_loopback
from node.model.permissions import Access, require_access, require_own
from node.model.principals import HOST, STRANGER, Principal, PrincipalKind
from node.runtime import tracing
from node.store import alerts, tasks
from node.trust.lineage import HEADER as LINEAGE
from node.trust.signatures import Asked, SignedHead, wants_bound_answer

BODY_MAX = 1_000_000
PEER_BODY_MAX = 8_000_000
_BODY_MAX = {Access.OPEN: 65_536, Access.PEER: PEER_BODY_MAX}
"""By access, the maximum bytes of a body where it is not ``BODY_MAX``."""

_DATABASE_PATIENCE_S = 2.0
"""Time in which the database has to tell whose token it is, where it may also be away."""

log = structlog.get_logger()


@web.middleware
async def time_answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Time each answer, but for long polls and streams, whose time is the caller's wish."""
    core = request.app[NODE].core
    began = core.clock.monotonic()
    answer = await handler(request)
    if isinstance(answer, web.Response) and "wait" not in request.query:
        resource = request.match_info.route.resource
        route = "" if resource is None else resource.canonical
        took = core.clock.monotonic() - began
        core.instruments.request(request.method, route, answer.status, took)
    return answer


@web.middleware
async def sign_answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Sign the answer to a node's request, for the nonce of that request."""
    answer = await handler(request)
    nonce = request.get(ANSWER_NONCE)
    if nonce is not None and isinstance(answer, web.Response):
        body = answer.body if isinstance(answer.body, bytes) else b""
        asked = (
            Asked(request.method, request.raw_path) if wants_bound_answer(request.headers) else None
        )
        signer = request.app[NODE].peers.signer
        answer.headers.update(signer.answer(answer.status, body, nonce, asked))
    return answer


@web.middleware
async def trace_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let a request belong to the trace that its header names, or to one of its own.

    A span is recorded for changes, and for what belongs to the trace of others.
    """
    trace = tracing.trace_of(request.headers.get(tracing.HEADER))
    if trace is None and request.method in {"GET", "HEAD", "OPTIONS"}:
        with tracing.within(tracing.new_trace()):
            return await handler(request)
    resource = request.match_info.route.resource
    route = "" if resource is None else resource.canonical
    with tracing.span(f"{request.method} {route}", tracing.SpanKind.SERVER, trace) as noted:
        answer = await handler(request)
        noted["http.response.status_code"] = str(answer.status)
        return answer


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error with a problem document, never with a traceback."""
    try:
        return await handler(request)
    except ParleyError as error:
        problem = _error_for_tagged_change(error) if "If-Match" in request.headers else error
    except web.HTTPException as error:
        if error.status < web.HTTPBadRequest.status_code:
            raise
        problem = _error_from_http(error)
    except (ConnectionResetError, TimeoutError):
        raise
    except Exception as error:
        explained = fault_of(error)
        if explained is None:
            log.exception("request failed", method=request.method, path=request.path)
        problem = explained or ParleyError(responses.OWN_FAULT)
    answer = _problem_response(request, problem)
    if not request.content.is_eof():
        answer.force_close()  # the rest of the body is not awaited
    return answer


def _error_for_tagged_change(error: ParleyError) -> ParleyError:
    """Return the error for a request that names by a tag what it changes."""
    return PreconditionFailed(error.detail) if isinstance(error, ChangedSince) else error


def _problem_response(request: web.Request, problem: ParleyError) -> web.Response:
    """Return the problem document, and note for the audit what it is and whose token was sent."""
    request[PROBLEM] = problem.code
    if isinstance(problem, NotAuthenticated) and problem.claimed is not None:
        request[PRINCIPAL] = problem.claimed
    return responses.problem_response(problem, request.path)


@web.middleware
async def refuse_plain_http(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what another host sends over plain HTTP, unless the owner allows it."""
    settings = request.app[NODE].settings
    if not (request.secure or settings.plain_http or _is_from_here(request)):
        msg = (
            "this node serves plain HTTP to its own host only, because others could read or change "
            "it on the way; use https, with the same host and port"
        )
        if "Authorization" in request.headers:
            msg += ", and revoke the token that was sent, which others may have read"
        raise NotAllowed(msg)
    return await handler(request)


def _is_from_here(request: web.Request) -> bool:
    """Return whether a request comes from this host: over loopback, or to its own address."""
    if request.transport is None or is_loopback(request.remote or ""):
        return True
    local = request.transport.get_extra_info("sockname")
    return bool(local) and local[0] == request.remote


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Tell browsers that the media type is what it says, and users how many requests they have."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    allowance = request.get(ALLOWANCE)
    if allowance is not None and "RateLimit" not in response.headers:
        response.headers["RateLimit-Policy"] = f'"requests";q={allowance.most};w=60'
        left, seconds = allowance.left, allowance.wait_s or 60
        response.headers["RateLimit"] = f'"requests";r={left};t={seconds}'


def _error_from_http(error: web.HTTPException) -> ParleyError:
    if isinstance(error, web.HTTPNotFound):
        return NotFound("there is nothing at this path; see /v1/openapi.json")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = sorted(error.allowed_methods)
        msg = f"{error.method} is not allowed here; allowed: {', '.join(allowed)}"
        return MethodNotAllowed(msg, allowed)
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return TooLarge("the request body is larger than this node accepts")
    return MalformedRequest(error.reason)


def guarded_handler(route: Route) -> Handler:
    """Return the route's handler inside its access rule and the limit of its body."""

    async def handle(request: web.Request) -> web.StreamResponse:
        _refuse_other_sites(request)
        _refuse_nul(request)
        if route.access is Access.PEER or route.method != "GET" or route.tells_time:
            request.app[NODE].clock_steps.require_begun()
        signed = None
        match route.access:
            case Access.PEER:
                _refuse_nodes_beside_service(request)
                signed = await _signed_head(request)
            case Access.OPEN:
                request[PRINCIPAL] = STRANGER
                _count_request(request)
            case access:
                request[PRINCIPAL] = await _user(request, access, route)
                _count_request(request)
        if signed is None:
            require_acceptable(request, route)
            _refuse_ignored_condition(request, route)
        bytes_max = route.body_max or _BODY_MAX.get(route.access, BODY_MAX)
        async with request.app[BODIES].received_body(request, bytes_max) as body:
            request[BODY] = body
            require_readable(request, route, body)
            if signed is not None:
                node = request.app[NODE]
                sender = node.verifier.check_body(signed, body, node.clock.now())
                node.leases.note_contact(sender)
                request[SENDER] = sender
                request[PRINCIPAL] = _peer_principal(request, sender)
                _count_work(request, route, body)
            answer = await route.handler(request)
        if "wait" in request.query and request[PRINCIPAL].kind is PrincipalKind.TOKEN:
            await _user(request, route.access, route)  # it may have been revoked in the meantime
        return answer

    return handle


def _refuse_nodes_beside_service(request: web.Request) -> None:
    """Refuse another node where that service is another process.

    Only one process knows which signatures have been used, and what waits for nodes in pull mode.
    """
    node = request.app[NODE]
    if node.beside:
        msg = (
            "this process answers people and programs; other nodes talk to the node's own service, "
            f"at {node.settings.public_url}"
        )
        raise NotAllowed(msg)


def _count_request(request: web.Request) -> None:
    """Count a request of a user or a stranger, for which there is a limit.

    :raises TooFast: they sent too many.
    """
    rates, principal = request.app[NODE].request_rates, request[PRINCIPAL]
    if principal is STRANGER:
        who, allowance = request.remote, rates.spend_of_stranger(request.remote or "")
    else:
        who, allowance = principal.label, rates.spend(principal)
    request[ALLOWANCE] = allowance
    if allowance is not None and allowance.wait_s:
        msg = (
            f"{who} has sent more than {allowance.most} requests within a "
            f"minute; ask again in {allowance.wait_s} s"
        )
        raise TooFast(msg, allowance.wait_s)


def _count_work(request: web.Request, route: Route, body: bytes) -> None:
    """Count the work for what another node asks or tells, unless it is this node itself.

    :raises TooManyRequests: it has asked for too much, or told it at too great a length.
    """
    node, sender = request.app[NODE], request[SENDER]
    if sender == node.card.identity:
        return
    rates = node.request_rates
    if not route.cost and (wait_s := rates.spend_for_message(sender, len(body))):
        msg = f"{request[PRINCIPAL].name} sends long messages too fast; send it in {wait_s} s"
        raise TooManyRequests(msg, wait_s)
    if route.cost and (wait_s := rates.spend_of_peer(sender, route.cost, len(body))):
        msg = (
            f"{request[PRINCIPAL].name} asks for more work than this host does for another node "
            f"(PARLEY_PEER_WORK); ask again in {wait_s} s"
        )
        raise TooManyRequests(msg, wait_s)


def _refuse_ignored_condition(request: web.Request, route: Route) -> None:
    """Refuse a change with If-Match where nothing has a revision: no change may ignore it."""
    if (
        "If-Match" in request.headers
        and route.method != "GET"
        and route.operation not in CONDITIONAL
    ):
        msg = "nothing has a revision here, so that If-Match cannot hold; leave it out"
        raise PreconditionFailed(msg)


def _refuse_other_sites(request: web.Request) -> None:
    """Refuse what a browser sends for another site's page, which cannot read the answer anyway."""
    if request.headers.get("Sec-Fetch-Site", "none") in {"cross-site", "same-site"}:
        msg = "a page of another site asks; only this node's own page may"
        raise NotAllowed(msg)


def _refuse_nul(request: web.Request) -> None:
    """Refuse a path with a NUL, which no name has and Postgres cannot store."""
    if any("\x00" in word for word in request.match_info.values()):
        msg = "there is nothing at this path: it has a NUL character"
        raise NotFound(msg)


async def _signed_head(request: web.Request) -> SignedHead:
    node = request.app[NODE]
    if (lineage := request.headers.get(LINEAGE)) is not None:
        await node.successions.hear(lineage)
    head = node.verifier.check_head(
        method=request.method,
        target=request.raw_path,
        headers=request.headers,
        now=node.clock.now(),
    )
    request[ANSWER_NONCE] = head.nonce
    request[PRINCIPAL] = _peer_principal(request, head.identity)
    return head


def _peer_principal(request: web.Request, identity: str) -> Principal:
    name = request.app[NODE].directory.by_identity(identity).name
    return Principal(PrincipalKind.NODE, name, key=identity)


def _may_read_locally(request: web.Request) -> bool:
    """Return whether the caller is on this host, where the owner lets that suffice to read."""
    return request.app[NODE].settings.read_local and local_access.is_local(
        request.remote, request.version, request.raw_path, request.headers
    )


async def _principal(request: web.Request, token: str, route: Route) -> Principal | None:
    tokens = request.app[NODE].tokens
    if not route.without_database:
        return await tokens.principal(token)
    try:
        async with asyncio.timeout(_DATABASE_PATIENCE_S):
            return await tokens.principal(token)
    except (DatabaseUnavailable, TimeoutError) as error:
        if (principal := tokens.find_remembered(token)) is None:
            msg = "the database, which knows whose token this is, does not answer"
            raise DatabaseUnavailable(msg) from error
        return principal


def _token(request: web.Request) -> str:
    """Return the token that the caller sends; an empty text without one.

    To the lists without JavaScript browsers send it as a password.
    """
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    if scheme.lower() == "basic" and request.path.startswith(responses.WITHOUT_JAVASCRIPT):
        with contextlib.suppress(ValueError):
            return base64.b64decode(given, validate=True).decode().partition(":")[2]
    return ""


async def _user(request: web.Request, access: Access, route: Route) -> Principal:
    """Return the user who sends a request, or any program on this host where that may read.

    :raises NotAuthenticated: they send no valid token.
    :raises NotAllowed: the role of their token does not permit it.
    """
    given = _token(request)
    principal = await _principal(request, given, route) if given else None
    if principal is None and access.reads and _may_read_locally(request):
        return HOST
    if principal is None and given:
        msg = "the token is not valid for this node"
        raise NotAuthenticated(msg)
    if principal is None:
        msg = (
            "this needs a token; send 'Authorization: Bearer …' with the token in the "
            "file 'token' of the node's state directory, or with one that the owner gave you"
        )
        raise NotAuthenticated(msg)
    request[PRINCIPAL] = principal
    require_access(principal, access, f"{request.method} {request.path}")
    if access.is_narrow and principal.only is not None and "id" in request.match_info:
        await require_own_subject(request, principal)
    return principal


_REQUESTERS = {
    "tasks": ("task", tasks.requester),
    "runs": ("run", tasks.requester_of_run),
    "alerts": ("alert", alerts.requester),
}
"""By list of the API whose items are users' own: the noun of one, and who requested its task."""


async def require_own_subject(request: web.Request, principal: Principal) -> None:
    """Check that what a path names is a task that the caller requested, or of one.

    :raises NotAllowed: it is not.
    """
    subject, node = requests.identifier(request), request.app[NODE]
    noun, ask = _REQUESTERS[request.path.split("/")[2]]
    async with node.database.connection() as connection:
        requester = await ask(connection, subject)
    require_own(principal, requester, f"{noun} {subject}")
