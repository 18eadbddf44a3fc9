"""Signed requests from Anna to Bert, and answers of stand-ins for nodes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from multidict import CIMultiDict

from node.model.errors import NotAuthenticated
from node.model.times import SECOND
from node.runtime.clock import SystemClock
from node.trust.keys import NodeKey
from node.trust.signatures import NONCE_HEADER, Verifier, new_nonce, sign
from node.trust.signer import Signer

PRIVATE = Ed25519PrivateKey.generate()
ANNA, BERT, CARL = NodeKey(PRIVATE), NodeKey.generate(), NodeKey.generate()
NOW_S = 1_798_761_600  # 2027-01-01
NOW = NOW_S * SECOND
TARGET = "/v1/participant/exchanges/7?wait=5"
BODY = b'{"runs": []}'


@dataclass(frozen=True)
class Request:
    """A request as the receiver sees it."""

    method: str = "POST"
    target: str = TARGET
    body: bytes = BODY
    headers: Mapping[str, str] = field(default_factory=dict)


def request(
    *,
    key: NodeKey = ANNA,
    method: str = "POST",
    target: str = TARGET,
    body: bytes = BODY,
    created: int = NOW_S,
    to: NodeKey = BERT,
) -> Request:
    """Return a request from Anna to Bert, signed as the client signs it."""
    nonce = new_nonce(secrets.token_bytes)
    url = "http://b.example:8080" + target
    headers = sign(key, method, url, body, created=created, nonce=nonce, to=to.identity)
    return Request(method, target, body, CIMultiDict(headers))


def bert(
    started: int = NOW - 3600 * SECOND, known: Callable[[str], bool] | None = None
) -> Verifier:
    """Return Bert's verifier, which knows Anna only."""
    knows = known or {ANNA.identity}.__contains__
    return Verifier(BERT.identity, lambda: started, lambda key, _: key if knows(key) else None)


def verify(verifier: Verifier, received: Request, now: int = NOW) -> str:
    """Return who signed the request."""
    head = verifier.check_head(
        method=received.method, target=received.target, headers=received.headers, now=now
    )
    return verifier.check_body(head, received.body, now)


def reason(verifier: Verifier, received: Request, now: int = NOW) -> str:
    """Return why the request is refused."""
    with pytest.raises(NotAuthenticated) as refusal:
        verify(verifier, received, now)
    return refusal.value.detail


def with_header(received: Request, name: str, value: str | None) -> Request:
    """Return the request with one header changed or removed."""
    headers = CIMultiDict(received.headers)
    headers.popall(name, None)
    if value is not None:
        headers[name] = value
    return replace(received, headers=headers)


def edited(received: Request, name: str, old: str, new: str) -> Request:
    """Return the request with a piece of one header replaced."""
    value = received.headers[name]
    assert old in value
    return with_header(received, name, value.replace(old, new, 1))


def answer_nonce(received: web.Request) -> str:
    """Return the nonce for which the answer to a request is to be signed."""
    found = re.search(r'nonce="([^"]+)"', received.headers.get("Signature-Input", ""))
    return found[1] if found else received.headers[NONCE_HEADER]


def signing_with(key: NodeKey) -> Middleware:
    """Return the middleware of a stand-in for a node, which signs its answers with this key."""

    @web.middleware
    async def signed(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer = await handler(request)
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        signer = Signer(key, SystemClock().now)
        answer.headers.update(signer.answer(answer.status, answer.body, answer_nonce(request)))
        return answer

    return signed
