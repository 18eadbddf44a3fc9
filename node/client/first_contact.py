"""Find out who answers at a URL, before anything confidential is sent there.

A node is whoever signs its card, for a nonce of ours, with the key that the card names. Over https
it also has a certificate that this key has signed, or a publicly valid one for its name.
"""

from __future__ import annotations

import json
import secrets
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

from node.client.answers import Answer
from node.client.exchanges import Exchange, NoAnswerError, Request, Server, UntrustedError
from node.model.errors import NotAuthenticated, PeerAnswered, PeerUnreachable
from node.model.features import Feature, has_feature
from node.trust.identities import fingerprint, public_of
from node.trust.signatures import NONCE_HEADER, WANTS_BOUND, Asked, check_answer, new_nonce
from node.trust.tls import TlsOptions, pinned_options, public, unchecked_options

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


def find(url: str) -> Contact:
    """Return the node at a URL of which nothing is known.

    :raises PeerUnreachable: there is no answer, or it comes by way of somebody else.
    :raises PeerAnswered: the answer is not the card of a node.
    """
    if not url.startswith("https:"):
        return _request_contact(url, {}, certified=False)
    try:
        return _request_contact(url, public(), certified=True)
    except UntrustedError:
        pass
    try:
        claimed = _request_contact(url, unchecked_options(), certified=False)
    except UntrustedError as error:
        raise _tls_error(url, error) from error
    return verify(url, claimed.identity)


def verify(url: str, identity: str) -> Contact:
    """Return the node at a URL if it has this key.

    :raises PeerUnreachable: there is no answer, or nobody who answers has shown this key.
    :raises PeerAnswered: the answer is not the card of this node.
    """
    if not url.startswith("https:"):
        return _require_identity(_request_contact(url, {}, certified=False), url, identity)
    try:
        return _require_identity(
            _request_contact(url, pinned_options(identity), certified=False), url, identity
        )
    except UntrustedError as error:
        cause = error.cause
    try:
        return _require_identity(_request_contact(url, public(), certified=True), url, identity)
    except UntrustedError as error:
        if not error.certificate:
            raise _tls_error(url, error) from error
        msg = (
            f"whoever answers at {url} is not the node with the key {fingerprint(identity)}: its "
            f"certificate is not signed with this key ({cause}), and not publicly valid "
            f"({error.cause}); ask the owner for the identity ('parley node show'), and if it "
            "has changed, give the new one with --server-identity"
        )
        raise PeerUnreachable(msg) from error


def _require_identity(contact: Contact, url: str, identity: str) -> Contact:
    if contact.identity != identity:
        msg = (
            f"the node at {url} has the key {contact.identity}, not {identity}; if its owner "
            "confirms that it has changed, give the new one with --server-identity"
        )
        raise PeerAnswered(msg)
    return contact


def _tls_error(url: str, error: UntrustedError) -> PeerUnreachable:
    return PeerUnreachable(f"{url} cannot be reached: {error.cause}")


def _request_contact(url: str, tls: TlsOptions, *, certified: bool) -> Contact:
    """Fetch the card of the node at a URL.

    :raises UntrustedError: the other side is not trusted.
    """
    nonce = new_nonce(secrets.token_bytes)
    request = Request(
        "GET",
        f"{urlsplit(url).path}/v1/nodes/self",
        {NONCE_HEADER: nonce, **WANTS_BOUND},
        patience_s=_PATIENCE_S,
        answer_bytes_max=_CARD_BYTES_MAX,
    )
    try:
        with closing(Server(url, tls)) as server:
            answer = Exchange(server, request).answer()
    except UntrustedError:
        raise
    except NoAnswerError as error:
        late = isinstance(error.__cause__, TimeoutError)
        msg = f"no node answers at {url}: {'no answer in time' if late else error.cause}"
        raise PeerUnreachable(msg) from error
    name, identity, binds = _identity_in_card(answer, url)
    asked = Asked.of("GET", f"{url}/v1/nodes/self")
    try:
        check_answer(
            identity, nonce, answer.status, answer.headers, answer.raw, asked=asked, binds=binds
        )
    except NotAuthenticated as error:
        msg = f"{url} gave an answer that cannot be trusted: {error.detail}"
        raise PeerAnswered(msg) from error
    return Contact(name, identity, tls, certified)


def _identity_in_card(answer: Answer, url: str) -> tuple[str, str, bool]:
    """Return name and identity of a node, and whether its version binds answers to requests."""
    try:
        card = json.loads(answer.raw) if answer.status == _OK else {}
        name, identity = str(card["name"]), str(card["identity"])
        public_of(identity)
        attributes = card.get("attributes", {})
        binds = isinstance(attributes, dict) and has_feature(attributes, Feature.BOUND_ANSWERS)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{url} does not answer like a node; name a node with --server"
        raise PeerAnswered(msg) from error
    return name, identity, binds
