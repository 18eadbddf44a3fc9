"""Bearer tokens of users: opaque, random, stored only as their SHA-256.

A token has 256 random bits. A fast hash is enough: slow, salted hashes protect passwords, which
can be guessed, but 256 bits cannot be guessed, and no two users have the same. A fast hash also
allows looking up a token by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TYPE_CHECKING

from node.trust.private_files import replace_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PREFIX = "parley_"
"""The prefix of every token, by which people and secret scanners recognise one."""

_BYTES = 32


def new_token(random_bytes: Callable[[int], bytes]) -> str:
    """Return a token: the prefix and 43 letters, digits, ``-`` or ``_``.

    ``random_bytes`` takes a number of bytes and must be cryptographically secure
    (``secrets.token_bytes``).
    """
    text = base64.urlsafe_b64encode(random_bytes(_BYTES)).decode("ascii")
    return PREFIX + text.rstrip("=")


def digest(token: str) -> str:
    """Return the stored form of a token: its SHA-256 as 64 hex digits. Accepts any text."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def matches(token: str, stored: str) -> bool:
    """Return whether ``stored`` is the digest of ``token``, in constant time."""
    return hmac.compare_digest(digest(token).encode("ascii"), stored.encode("utf-8"))


def write_token(path: Path, token: str) -> None:
    """Store a token for its user with mode 0600, and replace an older one in one step.

    :raises node.model.errors.HostError: it cannot be written.
    """
    replace_private(path, token.encode("ascii") + b"\n")
