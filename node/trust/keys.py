"""The node's Ed25519 key, and the printable form by which nodes know each other.

An *identity* is ``ed25519:`` and the 32 bytes of the public key in base64url without padding, 51
characters in all. It is the whole key, so to pin a peer is to compare two strings, and it is the
only spelling of that key: other spellings of the same bytes are refused.
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

_PREFIX = "ed25519:"
_IDENTITY = re.compile(r"ed25519:[A-Za-z0-9_-]{43}", re.ASCII)
_FINGERPRINT_GROUPS = 5
_GROUP = 4


class NodeKey:
    """The private key of this node. Its text form names the node and tells nothing secret."""

    __slots__ = ("_private", "identity", "public")

    public: Final[bytes]
    """The 32 bytes of the public key."""
    identity: Final[str]
    """The public key in its printable form."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        """Hold a key that was read or made."""
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.identity = identity_of(self.public)

    def __repr__(self) -> str:
        """The identity; the private part never shows."""
        return f"NodeKey({self.identity})"

    @classmethod
    def generate(cls) -> NodeKey:
        """A new key that is stored nowhere."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> NodeKey:
        """The key in the PEM file ``path``; where there is none, a new one is stored there.

        Two services that start at the same time end up with the same key.

        :raises HostError: the file is damaged, open to others or cannot be read or written.
        """
        pem = read_private(path)
        if pem is None:
            # Another service may be starting, too: whoever is first, what is stored counts.
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
        """The signature of ``data``: 64 bytes."""
        return self._private.sign(data)


def identity_of(public: bytes) -> str:
    """The printable form of the 32 bytes of a public key."""
    return _PREFIX + base64.urlsafe_b64encode(public).decode("ascii").rstrip("=")


def public_of(identity: str) -> bytes:
    """The 32 bytes behind an identity; :class:`ValueError` if it is none, or spelt otherwise."""
    if _IDENTITY.fullmatch(identity):
        public = base64.urlsafe_b64decode(identity.removeprefix(_PREFIX) + "=")
        # The last character has two bits to spare: four spellings of each key, one of them ours.
        if identity_of(public) == identity:
            return public
    msg = "not a node's identity; it looks like ed25519: and 43 letters, digits, '-' or '_'"
    raise ValueError(msg)


def fingerprint(identity: str) -> str:
    """Twenty hex digits of the key's SHA-256, in groups, for people to compare and talk about.

    Never compared by programs: pinning uses the whole identity.
    """
    digits = hashlib.sha256(public_of(identity)).hexdigest()
    groups = (digits[n * _GROUP : (n + 1) * _GROUP] for n in range(_FINGERPRINT_GROUPS))
    return "-".join(groups)


def verify(identity: str, signature: bytes, data: bytes) -> bool:
    """Whether the holder of this identity signed ``data``; no for anything that is not one."""
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
        f"{path} holds no Ed25519 key in PEM form. Restore it from a backup; or remove it, and the "
        "node makes a new key, which the owners of all its peers then have to admit"
    )
