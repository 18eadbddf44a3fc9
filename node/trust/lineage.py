"""The lineage of a node: its identity, which stays, and the keys that have succeeded one another.

An identity is the first key of a node, and its name for ever: tasks, runs, parts, limits, and
directories name nodes by it. The key may be replaced (``parley node rekey``). A *succession* is the
sentence "after key A comes key B", signed by A, so that nobody else can say it, and by B, so that
no key is taken over that its holder does not offer. The chain of them, from the identity to the key
of today, is the lineage. It travels with whatever that key signs: in the header
:data:`HEADER` of requests and answers, and in the header of statements. So who knows any
key of the chain can follow, also after years, and offline; and nothing that names a node changes.

As text a lineage is the identity and the successions, separated by spaces; a succession is
``INSTANT.KEY.SIGNATURE.SIGNATURE``: seconds, and base64url as in an identity.

A replaced key counts for :data:`OVERLAP` after the instant that its successor names, or after that
one was heard of, if that is earlier, for what is under way. The first succession of a key that a
node has heard is the one that counts there; another one is refused: two of them mean that two hold
the key.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from node.model import times
from node.trust.identities import identity_of, public_of, verify

HEADER = "Parley-Lineage"
OVERLAP = times.DAY
"""The time in which a replaced key still counts."""
FIRST_INSTANT = 1_000_000_000 * times.SECOND
"""No succession is dated earlier: its instant has ten digits."""
SUCCESSIONS_MAX = 12
"""Every request carries them all."""

_PREFIX = "ed25519:"
_SUCCESSION = re.compile(
    r"([1-9][0-9]{9})\.([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{86})\.([A-Za-z0-9_-]{86})", re.ASCII
)


class InvalidLineageError(Exception):
    """A text is not a lineage whose signatures are valid; says why."""


@dataclass(frozen=True)
class Succession:
    """A key that came after another one, at an instant (µs), with both signatures."""

    at: int
    key: str
    by_former: bytes
    by_latter: bytes

    def __str__(self) -> str:
        """Return ``INSTANT.KEY.SIGNATURE.SIGNATURE``, as a lineage has it."""
        signatures = f"{_encode(self.by_former)}.{_encode(self.by_latter)}"
        return f"{self.at // times.SECOND}.{self.key.removeprefix(_PREFIX)}.{signatures}"


@dataclass(frozen=True)
class Lineage:
    """An identity, and the successions that lead to its key of today."""

    identity: str
    successions: tuple[Succession, ...] = ()

    def __str__(self) -> str:
        """Return the lineage as text: the identity and its successions, separated by spaces."""
        return " ".join((self.identity, *map(str, self.successions)))

    @property
    def key(self) -> str:
        """The key of today."""
        return self.successions[-1].key if self.successions else self.identity

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key in turn."""
        return (self.identity, *(each.key for each in self.successions))

    def replaced_at(self, key: str) -> int | None:
        """Return when a key of it was replaced; None for that of today."""
        place = self.keys.index(key)
        return self.successions[place].at if place < len(self.successions) else None

    def counts(self, key: str, now: int, heard_at: Sequence[int] = ()) -> bool:
        """Return whether what this key signs now is said by the node.

        ``heard_at`` is when each succession was heard here: a clock that was ahead may have dated
        one, and its key was replaced all the same.
        """
        if key not in self.keys:
            return False
        place = self.keys.index(key)
        replaced_at = (each.at for each in self.successions[place : place + 1])
        return all(now < at + OVERLAP for at in (*replaced_at, *heard_at[place : place + 1]))

    def continues(self, other: Lineage) -> bool:
        """Return whether it is the other one, or a later state of it."""
        return self.keys[: len(other.keys)] == other.keys


def succession_text(former: str, latter: str, at: int) -> bytes:
    """Return the bytes that both keys of a succession sign; ``at`` is its instant (µs)."""
    return f"parley-succession {former} {latter} {at // times.SECOND}".encode("ascii")


def lineage_of(identity: str, text: str | None) -> Lineage:
    """Return the lineage of a known node, as it is stored; None for one with its first key."""
    return Lineage(identity) if text is None else read_lineage(text)


@lru_cache(maxsize=1024)
def read_lineage(text: str) -> Lineage:
    """Return the lineage in a text, whose signatures are all valid.

    :raises InvalidLineageError: it is none. No other exception is raised, whatever the text is.
    """
    identity, *others = text.split(" ")
    try:
        public_of(identity)
    except ValueError as error:
        raise InvalidLineageError(f"it begins with what is {error}") from None
    if len(others) > SUCCESSIONS_MAX:
        raise InvalidLineageError(f"it has more than {SUCCESSIONS_MAX} successions")
    lineage = Lineage(identity)
    for other in others:
        succession = _parse_succession(other)
        signed = succession_text(lineage.key, succession.key, succession.at)
        if succession.key in lineage.keys:
            raise InvalidLineageError("a key comes after itself in it")
        if not verify(lineage.key, succession.by_former, signed):
            raise InvalidLineageError(f"the key {lineage.key} has not signed what follows it")
        if not verify(succession.key, succession.by_latter, signed):
            raise InvalidLineageError(f"the key {succession.key} has not signed that it follows")
        lineage = Lineage(identity, (*lineage.successions, succession))
    return lineage


def _parse_succession(text: str) -> Succession:
    shape = _SUCCESSION.fullmatch(text)
    if shape is None:
        raise InvalidLineageError("it has something else than successions of keys")
    at, key, by_former, by_latter = shape.groups()
    signatures = _decode(by_former), _decode(by_latter)
    succession = Succession(int(at) * times.SECOND, identity_of(_decode(key)), *signatures)
    if str(succession) != text:  # unused bits of the last character: another spelling
        raise InvalidLineageError("it is not in base64url as it should be")
    return succession


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
