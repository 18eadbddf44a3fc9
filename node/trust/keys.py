"""The node's Ed25519 key, and the printable form by which nodes know each other.

An *identity* is ``ed25519:`` and the 32 bytes of the public key in base64url without padding, 51
characters in all. It is the whole key, so pinning a peer means comparing two strings. Other
spellings of the same bytes are refused, so each key has one identity.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from node.model.errors import HostError
from node.trust.private_files import create_private, read_private

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.x509 import Certificate, CertificateBuilder

_PREFIX = "ed25519:"
_IDENTITY = re.compile(r"ed25519:[A-Za-z0-9_-]{43}", re.ASCII)
_FINGERPRINT_GROUPS = 5
_GROUP = 4


class NodeKey:
    """The private key of this node; its ``repr`` shows only the identity."""

    __slots__ = ("_private", "identity", "public")

    public: Final[bytes]
    """The 32 bytes of the public key."""
    identity: Final[str]
    """The public key in its printable form."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        """Wrap a key that was read or generated."""
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.identity = identity_of(self.public)

    def __repr__(self) -> str:
        """Return the identity, never the private part."""
        return f"NodeKey({self.identity})"

    @classmethod
    def generate(cls) -> NodeKey:
        """Return a new key, without storing it."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> NodeKey:
        """Return the key in the PEM file ``path``; generate and store one if there is no file.

        Two services that start at the same time get the same key.

        :raises HostError: the file is damaged, open to others, or cannot be read or written.
        """
        pem = read_private(path)
        if pem is None:
            # Another service may start at the same time: the key that was stored first counts.
            create_private(path, _pem_of(Ed25519PrivateKey.generate()))
            pem = read_private(path)
        try:
            private = load_pem_private_key(pem or b"", password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise HostError(_damaged(path)) from error
        if not isinstance(private, Ed25519PrivateKey):
            raise HostError(_damaged(path))
        return cls(private)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of ``data``: 64 bytes."""
        return self._private.sign(data)

    def certify(self, builder: CertificateBuilder) -> Certificate:
        """Return the certificate that a builder describes, signed with this key."""
        return builder.sign(self._private, None)


def identity_of(public: bytes) -> str:
    """Return the printable form of the 32 bytes of a public key."""
    return _PREFIX + base64.urlsafe_b64encode(public).decode("ascii").rstrip("=")


def public_of(identity: str) -> bytes:
    """Return the 32 bytes of an identity.

    :raises ValueError: it is not an identity, or is not in its one accepted spelling.
    """
    if _IDENTITY.fullmatch(identity):
        public = base64.urlsafe_b64decode(identity.removeprefix(_PREFIX) + "=")
        # The last character has two unused bits, so each key has four spellings; accept only ours.
        if identity_of(public) == identity:
            return public
    msg = "not a node's identity; an identity is ed25519: and 43 letters, digits, '-' or '_'"
    raise ValueError(msg)


def fingerprint(identity: str) -> str:
    """Return twenty hex digits of the key's SHA-256, in groups, for people to compare.

    Programs must not compare it: pinning uses the whole identity.
    """
    digits = hashlib.sha256(public_of(identity)).hexdigest()
    groups = (digits[n * _GROUP : (n + 1) * _GROUP] for n in range(_FINGERPRINT_GROUPS))
    return "-".join(groups)


def verify(identity: str, signature: bytes, data: bytes) -> bool:
    """Return whether the holder of this identity signed ``data``; false for invalid identities."""
    try:
        _public_key(identity).verify(signature, data)
    except (ValueError, InvalidSignature):
        return False
    return True


@lru_cache(maxsize=1024)
def _public_key(identity: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public_of(identity))


def _pem_of(private: Ed25519PrivateKey) -> bytes:
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _damaged(path: Path) -> str:
    return (
        f"{path} does not contain an Ed25519 key in PEM form. Restore it from a backup; or "
        "remove it, and the node generates a new key, which the owners of all its peers then have "
        "to add"
    )
