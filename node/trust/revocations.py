"""Revocations: that a key counts no more, for good, said by itself or by a later one. Pure.

A revocation is a statement, so that it can be made beforehand, kept without the key, and told by
anybody. Whoever has a key can end it, a thief as well; nobody can do more with this.

**What wins.** A node that was rekeyed before stays: its old key ends. But a thief can rekey, too,
as long as the key counts, and only the owner has a revocation that was made before. So a revocation
by the key itself also takes back what that key has signed lately: the node ends where its
succession was heard within :data:`DISPUTED`. One by a later key, which follows from the revoked
one, ends the old key alone, and the first revocation of a key that a node hears is the one that
counts there. So an owner who rekeys and then revokes the old key at once is safe from who has that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from node.model import times
from node.trust.lineage import Lineage, read_lineage
from node.trust.signer import Signer
from node.trust.statements import InvalidStatementError, StatementKind, read_statement

DISPUTED = 30 * times.DAY
"""The time in which a revocation by a key takes its successor back."""


class Ruling(StrEnum):
    """The effect of a revocation."""

    NOTHING = "nothing"
    """No known node has or had the key."""
    KEY = "key"
    """The key, which was replaced: the node goes on with a later one."""
    NODE = "node"
    """The node, with all that it has here."""


@dataclass(frozen=True)
class Revocation:
    """A revoked key, the lineage that signed it, and the statement."""

    key: str
    signer: Lineage
    text: str

    @property
    def is_by_itself(self) -> bool:
        """True if the revoked key has signed it, not a later one."""
        return self.signer.key == self.key


@dataclass(frozen=True)
class RevokedKey:
    """A key that was revoked here; ``ends_node`` if nothing that follows it counts either."""

    key: str
    ends_node: bool

    def forbids(self, lineage: Lineage) -> bool:
        """Return whether no node with this lineage is believed."""
        return self.key in lineage.keys and (self.ends_node or lineage.key == self.key)


def sign_revocation(signer: Signer, key: str) -> str:
    """Return the statement that a key of this node is revoked."""
    return signer.statement(StatementKind.REVOCATION, {"key": key})


def read_revocation(text: str) -> Revocation:
    """Return the revocation in a text.

    :raises InvalidStatementError: it is none, or of a key that its signer has no say about.
    """
    statement = read_statement(text, StatementKind.REVOCATION)
    key, lineage = statement.claims.get("key"), statement.lineage
    if not isinstance(key, str) or key not in lineage.keys:
        msg = f"the key {lineage.key} has no say about the key {key}"
        raise InvalidStatementError(msg)
    return Revocation(key, read_lineage(str(lineage)), text)


def ruling(revocation: Revocation, known: Lineage | None, followed_at: int, now: int) -> Ruling:
    """Return what a revocation ends of a node with this lineage.

    ``followed_at`` is when the successor of the revoked key was heard here, if it has one (µs).
    """
    if known is None or revocation.key not in known.keys:
        return Ruling.NOTHING
    if known.key == revocation.key:
        return Ruling.NODE
    by_what_followed = not revocation.is_by_itself and revocation.signer.key in known.keys
    return Ruling.KEY if by_what_followed or now >= followed_at + DISPUTED else Ruling.NODE
