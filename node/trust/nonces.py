"""Detect signed requests that are received a second time.

Each signer has a set of nonces per generation. A new generation begins when the current one is as
old as a signature can stay valid; the previous one is then dropped as a whole. So a nonce is kept
for one to two lifetimes, each step costs the same regardless of their number, and a signer that
floods the node fills only its own set.

Dropping a generation leaves one number per signer: the newest creation time in it. Signatures not
newer than that are refused from then on. With a steady clock they are stale anyway; the number
matters when this host's clock is set back, and old requests look fresh again.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class _Seen:
    """The nonces of one signer in one generation; ``newest`` is the latest creation time, in s."""

    nonces: set[str] = field(default_factory=set)
    newest: int = 0


class NonceMemory:
    """Nonces of the last one to two lifetimes; ``life`` is a lifetime in microseconds."""

    def __init__(self, life: int, per_signer_max: int) -> None:
        """Begin empty; keep at most ``per_signer_max`` nonces per signer and generation."""
        self._life = life
        self._per_signer_max = per_signer_max
        self._current: dict[str, _Seen] = {}
        self._previous: dict[str, _Seen] = {}
        self._turned = 0
        self._forgotten: dict[str, int] = {}

    def objection(self, signer: str, nonce: str, created: int, now: int) -> str | None:
        """Remember the nonce and return ``None``, or return the reason to refuse the request.

        ``created`` is in seconds as signed, ``now`` in microseconds. Call it only after the
        signature has been verified: otherwise anybody could use up a signer's nonces.
        """
        self._turn(now)
        if created <= self._forgotten.get(signer, 0):
            return "is not newer than requests that this node has forgotten; sign it again"
        seen = self._current.setdefault(signer, _Seen())
        before = self._previous.get(signer, _Seen())
        if nonce in seen.nonces or nonce in before.nonces:
            return "has been received before: its nonce was used; sign it again with a new one"
        if len(seen.nonces) >= self._per_signer_max:
            return f"is one of more than {self._per_signer_max} in a short time; send fewer"
        seen.nonces.add(nonce)
        seen.newest = max(seen.newest, created)
        return None

    def _turn(self, now: int) -> None:
        """Begin a new generation if the current one is old enough; two after a long pause."""
        self._turned = min(self._turned, now)  # if the clock was set back, start a lifetime anew
        lives = (now - self._turned) // self._life
        for _ in range(min(lives, 2)):
            for signer, seen in self._previous.items():
                self._forgotten[signer] = max(seen.newest, self._forgotten.get(signer, 0))
            self._previous, self._current = self._current, {}
            self._turned = now
