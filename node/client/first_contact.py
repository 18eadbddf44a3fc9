"""Find out who answers at a URL, before anything confidential is sent there.

A node is whoever signs its card, for a nonce of ours, with the key that the card names. Over https
it also has a certificate that this key has signed, or a publicly valid one for its name.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

import aiohttp

from node.client.causes import cause_of
from node.model.errors import NotAuthenticated, PeerAnswered, PeerUnreachable
from node.model.features import Feature, has_feature
from node.trust.identities import fingerprint, public_of
from node.trust.signatures import NONCE_HEADER, WANTS_BOUND, Asked, check_answer, new_nonce
from node.trust.tls import TlsOptions, pinned, public, unchecked

_PATIENCE_S = 10.0
_CARD_BYTES_MAX = 1_000_000
_OK = 200


@dataclass(frozen=True)
class Contact:
    """A node that was found at a URL, and how its certificate can be checked."""

    name: str
    identity: str
    tls: TlsOptions
    certified: bool
    """True if public authorities certify the name in the URL."""


async def find(url: str) -> Contact:
    """Return the node at a URL of which nothing is known.

    :raises PeerUnreachable: there is no answer, or it comes by way of somebody else.
    :raises PeerAnswered: the answer is not the card of a node.
    """
    if not url.startswith("https:"):
        return await _request_contact(url, {}, certified=False)
    try:
        return await _request_contact(url, public(), certified=True)
    except aiohttp.ClientSSLError:
        claimed = await _fetch_contact(url, unchecked())
    return await verify(url, claimed.identity)


async def verify(url: str, identity: str) -> Contact:
    """Return the node at a URL if it has this key.

    :raises PeerUnreachable: there is no answer, or nobody who answers has shown this key.
    :raises PeerAnswered: the answer is not the card of this node.
    """
    if not url.startswith("https:"):
        return _require_identity(await _request_contact(url, {}, certified=False), url, identity)
    try:
        return _require_identity(
            await _request_contact(url, pinned(identity), certified=False), url, identity
        )
    except aiohttp.ClientSSLError as error:
        cause = cause_of(error)
    try:
        return _require_identity(
            await _request_contact(url, public(), certified=True), url, identity
        )
    except aiohttp.ClientConnectorCertificateError as error:
        msg = (
            f"whoever answers at {url} is not the node with the key {fingerprint(identity)}: its "
            f"certificate is not signed with this key ({cause}), and not publicly valid "
            f"({cause_of(error)}); ask the owner for the identity ('parley node show'), and if it "
            "has changed, give the new one with --server-identity"
        )
        raise PeerUnreachable(msg) from error
    except aiohttp.ClientSSLError as error:
        raise _tls_error(url, error) from error


def _require_identity(contact: Contact, url: str, identity: str) -> Contact:
    if contact.identity != identity:
        msg = (
            f"the node at {url} has the key {contact.identity}, not {identity}; if its owner "
            "confirms that it has changed, give the new one with --server-identity"
        )
        raise PeerAnswered(msg)
    return contact


async def _fetch_contact(url: str, tls: TlsOptions, *, certified: bool = False) -> Contact:
    try:
        return await _request_contact(url, tls, certified=certified)
    except aiohttp.ClientSSLError as error:
        raise _tls_error(url, error) from error


def _tls_error(url: str, error: aiohttp.ClientSSLError) -> PeerUnreachable:
    return PeerUnreachable(f"{url} cannot be reached: {cause_of(error)}")


async def _request_contact(url: str, tls: TlsOptions, *, certified: bool) -> Contact:
    """Fetch the card of the node at a URL.

    :raises aiohttp.ClientSSLError: the other side is not trusted.
    """
    nonce = new_nonce(secrets.token_bytes)
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
            session.get(
                f"{url}/v1/nodes/self",
                headers={NONCE_HEADER: nonce, "Accept-Encoding": "identity", **WANTS_BOUND},
                allow_redirects=False,
                **tls,
            ) as response,
        ):
            body = await _read(response, url)
            status, headers = response.status, response.headers.copy()
    except aiohttp.ClientSSLError:
        raise
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        cause = "no answer in time" if isinstance(error, TimeoutError) else cause_of(error)
        msg = f"no node answers at {url}: {cause}"
        raise PeerUnreachable(msg) from error
    name, identity, binds = _identity_in_card(status, body, url)
    asked = Asked.of("GET", f"{url}/v1/nodes/self")
    try:
        check_answer(identity, nonce, status, headers, body, asked=asked, binds=binds)
    except NotAuthenticated as error:
        msg = f"{url} gave an answer that cannot be trusted: {error.detail}"
        raise PeerAnswered(msg) from error
    return Contact(name, identity, tls, certified)


async def _read(response: aiohttp.ClientResponse, url: str) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _CARD_BYTES_MAX:
            msg = f"{url} answered with more than any card; name a node with --server"
            raise PeerAnswered(msg)
    return bytes(body)


def _identity_in_card(status: int, body: bytes, url: str) -> tuple[str, str, bool]:
    """Return name and identity of a node, and whether its version binds answers to requests."""
    try:
        card = json.loads(body) if status == _OK else {}
        name, identity = str(card["name"]), str(card["identity"])
        public_of(identity)
        attributes = card.get("attributes", {})
        binds = isinstance(attributes, dict) and has_feature(attributes, Feature.BOUND_ANSWERS)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{url} does not answer like a node; name a node with --server"
        raise PeerAnswered(msg) from error
    return name, identity, binds
