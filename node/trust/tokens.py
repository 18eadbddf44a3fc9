"""Bearer tokens of users: opaque, random, stored as their SHA-256 only.

A token has 256 random bits. A fast hash is enough for it: slow, salted hashes protect passwords,
which can be guessed; nobody guesses 256 bits, however fast the hash, and no two users have the same
ones. A fast hash also lets a token be looked up by its digest.
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
"""What every token begins with, so that people and scanners for leaked secrets recognise one."""

_BYTES = 32


def new_token(random_bytes: Callable[[int], bytes]) -> str:
    """A token: the prefix and 43 letters, digits, ``-`` or ``_``.

    ``random_bytes`` takes a number of bytes and must be fit for secrets (``secrets.token_bytes``).
    """
    text = base64.urlsafe_b64encode(random_bytes(_BYTES)).decode("ascii")
    return PREFIX + text.rstrip("=")


def digest(token: str) -> str:
    """What is stored of a token: its SHA-256 as 64 hex digits. Takes any text a client may send."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def matches(token: str, stored: str) -> bool:
    """Whether ``stored`` is the digest of ``token``, in a time that does not depend on either."""
    return hmac.compare_digest(digest(token).encode("ascii"), stored.encode("utf-8"))


def write_token(path: Path, token: str) -> None:
    """Store a token for its user, mode 0600, in one step, in the place of an older one.

    :raises node.model.errors.HostError: the folder does not take it.
    """
    replace_private(path, token.encode("ascii") + b"\n")
