"""The printable form of a public key, by which nodes know each other.

An *identity* is ``ed25519:`` and the 32 bytes of the public key in base64url without padding, 51
characters in all. It is the whole key, so pinning a peer means comparing two strings. Other
spellings of the same bytes are refused, so each key has one identity.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_PREFIX = "ed25519:"
_IDENTITY = re.compile(r"ed25519:[A-Za-z0-9_-]{43}", re.ASCII)
_FINGERPRINT_GROUPS = 5
_GROUP = 4


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
