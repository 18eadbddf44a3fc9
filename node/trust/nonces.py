"""Detect signed requests that are received a second time.

Each signer has a set of nonces per generation. A new generation begins when the current one is as
old as a signature can stay valid; the previous one is then dropped as a whole. So a nonce is kept
for one to two lifetimes, each step costs the same regardless of their number, and a signer that
floods the node fills only its own set.

Dropping a generation leaves one span per signer: the creation times in it, in seconds. Signatures
of such a span are refused from then on. With a steady clock they are stale anyway; the spans matter
when this host's clock is set back, and old requests look fresh again. A clock that was ahead for a
while leaves a span in the future, and what is signed before it is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from node.model.spans import Span, normalise

_SPANS_MAX = 4
"""Number of spans kept per signer. Beyond it the two with the shortest time between become one."""


@dataclass
class _Seen:
    """The nonces of one signer in one generation, and when the first and last was signed, in s."""

    oldest: int
    newest: int
    nonces: set[str] = field(default_factory=set)

    def add(self, nonce: str, created: int) -> None:
        self.nonces.add(nonce)
        self.oldest = min(self.oldest, created)
        self.newest = max(self.newest, created)


class NonceMemory:
    """Nonces of the last one to two lifetimes; ``life`` is a lifetime in microseconds."""

    def __init__(self, life: int, per_signer_max: int) -> None:
        """Begin empty; keep at most ``per_signer_max`` nonces per signer and generation."""
        self._life = life
        self._per_signer_max = per_signer_max
        self._current: dict[str, _Seen] = {}
        self._previous: dict[str, _Seen] = {}
        self._turned = 0
        self._forgotten: dict[str, list[Span]] = {}

    def objection(self, signer: str, nonce: str, created: int, now: int) -> str | None:
        """Remember the nonce and return ``None``, or return the reason to refuse the request.

        ``created`` is in seconds as signed, ``now`` in microseconds. Call it only after the
        signature has been verified: otherwise anybody could use up a signer's nonces.
        """
        self._turn(now)
        if any(start <= created < end for start, end in self._forgotten.get(signer, ())):
            return "is as old as requests that this node has forgotten; sign it again"
        seen = self._current.get(signer, _Seen(created, created))
        before = self._previous.get(signer, _Seen(created, created))
        if nonce in seen.nonces or nonce in before.nonces:
            return "has been received before: its nonce was used; sign it again with a new one"
        if len(seen.nonces) >= self._per_signer_max:
            return f"is one of more than {self._per_signer_max} in a short time; send fewer"
        self._current.setdefault(signer, seen).add(nonce, created)
        return None

    def _turn(self, now: int) -> None:
        """Begin a new generation if the current one is old enough; two after a long pause."""
        if now < self._turned - self._life:
            lives = 2  # the clock was set back: no span shall contain times of before and after
        else:
            self._turned = min(self._turned, now)
            lives = (now - self._turned) // self._life
        for _ in range(min(lives, 2)):
            for signer, seen in self._previous.items():
                spans = [*self._forgotten.get(signer, ()), (seen.oldest, seen.newest + 1)]
                self._forgotten[signer] = merged_spans(spans, _SPANS_MAX)
            self._previous, self._current = self._current, {}
            self._turned = now


def merged_spans(spans: list[Span], spans_max: int) -> list[Span]:
    """Return at most ``spans_max`` spans that cover the given ones; shortest gaps are closed."""
    apart = normalise(spans)
    while len(apart) > spans_max:
        gaps = [later[0] - earlier[1] for earlier, later in pairwise(apart)]
        nearest = gaps.index(min(gaps))
        apart[nearest : nearest + 2] = [(apart[nearest][0], apart[nearest + 1][1])]
    return apart
