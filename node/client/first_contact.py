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
from node.trust.keys import fingerprint, public_of
from node.trust.signatures import NONCE_HEADER, check_answer, new_nonce
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
        return await _ask(url, {}, certified=False)
    try:
        return await _ask(url, public(), certified=True)
    except aiohttp.ClientSSLError:
        claimed = await _reached(url, unchecked())
    return await verify(url, claimed.identity)


async def verify(url: str, identity: str) -> Contact:
    """Return the node at a URL if it has this key.

    :raises PeerUnreachable: there is no answer, or nobody who answers has shown this key.
    :raises PeerAnswered: the answer is not the card of this node.
    """
    if not url.startswith("https:"):
        return _same(await _ask(url, {}, certified=False), url, identity)
    try:
        return _same(await _ask(url, pinned(identity), certified=False), url, identity)
    except aiohttp.ClientSSLError as error:
        cause = cause_of(error)
    try:
        return _same(await _ask(url, public(), certified=True), url, identity)
    except aiohttp.ClientConnectorCertificateError as error:
        msg = (
            f"whoever answers at {url} is not the node with the key {fingerprint(identity)}: its "
            f"certificate is not signed with this key ({cause}), and not publicly valid "
            f"({cause_of(error)}); ask the owner for the identity ('parley node show'), and if it "
            "has changed, give the new one with --server-identity"
        )
        raise PeerUnreachable(msg) from error
    except aiohttp.ClientSSLError as error:
        raise _no_tls(url, error) from error


def _same(contact: Contact, url: str, identity: str) -> Contact:
    if contact.identity != identity:
        msg = (
            f"the node at {url} has the key {contact.identity}, not {identity}; if its owner "
            "confirms that it has changed, give the new one with --server-identity"
        )
        raise PeerAnswered(msg)
    return contact


async def _reached(url: str, tls: TlsOptions, *, certified: bool = False) -> Contact:
    try:
        return await _ask(url, tls, certified=certified)
    except aiohttp.ClientSSLError as error:
        raise _no_tls(url, error) from error


def _no_tls(url: str, error: aiohttp.ClientSSLError) -> PeerUnreachable:
    return PeerUnreachable(f"{url} cannot be reached: {cause_of(error)}")


async def _ask(url: str, tls: TlsOptions, *, certified: bool) -> Contact:
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
                headers={NONCE_HEADER: nonce, "Accept-Encoding": "identity"},
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
    name, identity = _card(status, body, url)
    try:
        check_answer(identity, nonce, status, headers, body)
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


def _card(status: int, body: bytes, url: str) -> tuple[str, str]:
    """Return name and identity of the node, of whatever version it is."""
    try:
        card = json.loads(body) if status == _OK else {}
        name, identity = str(card["name"]), str(card["identity"])
        public_of(identity)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{url} does not answer like a node; name a node with --server"
        raise PeerAnswered(msg) from error
    return name, identity
