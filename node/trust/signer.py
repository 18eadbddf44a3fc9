"""Sign what one node says: its requests, its answers to those of others, and its statements."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from node.model.times import SECOND
from node.trust.key_files import CurrentKey, FixedKey
from node.trust.keys import NodeKey
from node.trust.lineage import Lineage
from node.trust.signatures import Asked, new_nonce, sign, sign_answer
from node.trust.statements import StatementKind, sign_statement


class Signer:
    """Signs with a node's key of the moment at the instant ``now()`` (µs)."""

    def __init__(self, key: NodeKey | CurrentKey, now: Callable[[], int]) -> None:
        self._key: CurrentKey = FixedKey(key) if isinstance(key, NodeKey) else key
        self._now = now

    @property
    def lineage(self) -> Lineage:
        """The keys that led to the one with which it signs."""
        return self._key.current.lineage

    def nonce(self) -> str:
        """Return a new nonce."""
        return new_nonce(secrets.token_bytes)

    def request(self, method: str, url: str, body: bytes, *, nonce: str, to: str) -> dict[str, str]:
        """Return the headers of a request to the node with the identity ``to``."""
        created = self._now() // SECOND
        return sign(self._key.current, method, url, body, created=created, nonce=nonce, to=to)

    def answer(
        self, status: int, body: bytes, nonce: str, asked: Asked | None = None
    ) -> dict[str, str]:
        """Return the headers of the answer to the request with this nonce, if ``asked`` as one."""
        created = self._now() // SECOND
        key = self._key.current
        return sign_answer(key, status, body, created=created, nonce=nonce, asked=asked)

    def statement(self, kind: StatementKind, claims: Mapping[str, Any]) -> str:
        """Return a statement with these claims, to be kept.

        :raises ValueError: the claims are not JSON.
        """
        return sign_statement(self._key.current, kind, claims)
