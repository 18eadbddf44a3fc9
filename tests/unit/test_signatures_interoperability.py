"""Our profile of RFC 9421 and a library, each verifying the other's signatures."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from http_message_signatures import (
    HTTPMessageSigner,
    HTTPMessageVerifier,
    HTTPSignatureKeyResolver,
    InvalidSignature,
)
from http_message_signatures.algorithms import ED25519
from hypothesis import settings

from node.trust.identities import public_of
from node.trust.signatures import COMPONENTS, new_nonce, sign
from tests.support.signing import (
    ANNA,
    BERT,
    BODY,
    NOW_S,
    PRIVATE,
    TARGET,
    Request,
    bert,
    reason,
    verify,
)

patient = settings(deadline=None)


class Keys(HTTPSignatureKeyResolver):
    """Resolves identities, which are the keys themselves."""

    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        """Return the public key of an identity."""
        return Ed25519PublicKey.from_public_bytes(public_of(key_id))

    def resolve_private_key(self, key_id: str) -> Ed25519PrivateKey:
        """Return Anna's key; the library signs for nobody else."""
        assert key_id == ANNA.identity
        return PRIVATE


@dataclass
class Message:
    """Return a request in the form of the library."""

    method: str
    url: str
    headers: dict[str, str]


@pytest.mark.parametrize("target", ["/", TARGET, "/a%20b/c?d=%C3%A9&e", "/x?"])
@pytest.mark.parametrize("body", [b"", BODY])
def test_the_library_verifies_what_we_sign(target: str, body: bytes) -> None:
    """Another implementation of RFC 9421 accepts our signatures, and refuses altered ones."""
    url = "http://b.example:8080" + target
    created = int(datetime.now(UTC).timestamp())  # the library reads the clock itself
    nonce = new_nonce(secrets.token_bytes)
    headers = sign(ANNA, "POST", url, body, created=created, nonce=nonce, to=BERT.identity)
    library = HTTPMessageVerifier(signature_algorithm=ED25519, key_resolver=Keys())
    required = re.findall(r'"([^"]+)"', COMPONENTS)
    message = Message("POST", url, headers)
    (result,) = library.verify(message, body=body, require_components=required)
    assert result.nonce == nonce
    assert result.parameters["keyid"] == ANNA.identity
    with pytest.raises(InvalidSignature):
        library.verify(replace(message, method="PUT"), body=body)
    with pytest.raises(InvalidSignature):
        library.verify(message, body=body + b"x")


@pytest.mark.parametrize("target", ["/", TARGET, "/a%20b/c?d=%C3%A9&e", "/x?"])
@pytest.mark.parametrize("body", [b"", BODY])
def test_we_verify_what_the_library_signs(target: str, body: bytes) -> None:
    """A signature in our profile made by the library is accepted in any order of parameters."""
    headers = {"Parley-To": BERT.identity}
    message = Message("POST", "http://b.example:8080" + target, headers)
    HTTPMessageSigner(signature_algorithm=ED25519, key_resolver=Keys()).sign(
        message,
        key_id=ANNA.identity,
        created=datetime.fromtimestamp(NOW_S, UTC) - timedelta(seconds=1),
        nonce=new_nonce(secrets.token_bytes),
        label="parley",
        body=body,
        covered_component_ids=re.findall(r'"([^"]+)"', COMPONENTS),
    )
    assert verify(bert(), Request("POST", target, body, headers)) == ANNA.identity
    altered = Request("PUT", target, body, headers)
    assert "wrong signature" in reason(bert(), altered)
