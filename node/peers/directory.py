"""The directory of known nodes, cached in memory and read again when it changes.

A request signed with a key that is not in it is refused. A node named in a task must be in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.model.errors import NotAuthenticated, NotFound
from node.model.naming import NodeIndex
from node.model.nodekinds import NodeKind
from node.model.times import to_the_second
from node.store import nodes
from node.store.database import Database
from node.store.nodes import KnownNode
from node.trust.identities import fingerprint
from node.trust.lineage import Lineage, lineage_of
from node.trust.revocations import RevokedKey


class Directory:
    """The known nodes by identity, name, and address; one of them is this node."""

    def __init__(self, database: Database) -> None:
        """Empty until :meth:`refresh`."""
        self._database = database
        self._nodes: dict[str, KnownNode] = {}
        self._all: tuple[KnownNode, ...] = ()
        self._self: KnownNode | None = None
        self._lineages: dict[str, Lineage] = {}
        self._owners: dict[str, str] = {}
        self._revoked: dict[str, RevokedKey] = {}
        self._index: NodeIndex[KnownNode] = NodeIndex(())

    async def refresh(self) -> None:
        """Read the table."""
        async with self._database.connection() as connection:
            known, revoked = await nodes.find_all(connection), await nodes.revoked_keys(connection)
        self._revoked = {each.key: each for each in revoked}
        self.fill(known)

    async def known(self) -> Sequence[KnownNode]:
        """Read the table and return all nodes."""
        await self.refresh()
        return self.all

    def fill(self, known: Sequence[KnownNode]) -> None:
        """Replace the cached nodes, unless they are the same."""
        if self._all == tuple(known):
            return
        self._all = tuple(known)
        self._self = next((node for node in known if node.is_self), None)
        self._nodes = {node.identity: node for node in known}
        self._lineages = {
            node.identity: lineage_of(node.identity, node.lineage)
            for node in known
            if node.kind is NodeKind.PARLEY
        }
        self._owners = {
            key: identity for identity, lineage in self._lineages.items() for key in lineage.keys
        }
        self._index = NodeIndex(known)

    @property
    def self(self) -> KnownNode:
        """This node."""
        if self._self is None:
            msg = "the directory has not been read yet"
            raise LookupError(msg)
        return self._self

    @property
    def all(self) -> Sequence[KnownNode]:
        """Every known node, including this one; the same object until one of them changes."""
        return self._all

    @property
    def nodes_of_parley(self) -> list[KnownNode]:
        """Every known node that has a key, including this one: those that can belong to pools."""
        return [node for node in self._nodes.values() if node.kind is NodeKind.PARLEY]

    async def known_of_parley(self) -> Sequence[KnownNode]:
        """Read the table and return the nodes that have keys."""
        await self.refresh()
        return self.nodes_of_parley

    def knows(self, identity: str) -> bool:
        """Return whether this key is pinned."""
        return identity in self._nodes

    def lineage(self, identity: str) -> Lineage | None:
        """Return the keys of a node, as far as they are known; None if the node is not."""
        return self._lineages.get(identity)

    def counts(self, identity: str, key: str, now: int) -> bool:
        """Return whether a key signs for a node: that of today, or one just replaced."""
        node, lineage = self._nodes.get(identity), self._lineages.get(identity)
        heard_at = (node and node.followed_at) or ()
        return (lineage or Lineage(identity)).counts(key, now, heard_at)

    def owner(self, key: str) -> str | None:
        """Return the identity of the node that has or had this key; None if no known one has."""
        return self._owners.get(key)

    def signer(self, key: str, now: int) -> str | None:
        """Return the identity of the node for which this key signs; None if it is unknown.

        :raises NotAuthenticated: the key is revoked, or was replaced, and its time is over.
        """
        if key in self._revoked:
            raise NotAuthenticated(_revoked_message(key))
        identity = self._owners.get(key)
        if identity is None:
            return None
        lineage = self._lineages[identity]
        if self.counts(identity, key, now):
            return identity
        at = to_the_second(lineage.replaced_at(key) or 0)
        msg = (
            f"the key {fingerprint(key)} of {self._nodes[identity].name} was replaced at {at}, and "
            f"does not count any more; its key is {fingerprint(lineage.key)}"
        )
        raise NotAuthenticated(msg)

    def is_revoked(self, key: str) -> bool:
        """Return whether a key was revoked."""
        return key in self._revoked

    def require_unrevoked(self, lineage: Lineage) -> None:
        """Return if no revocation ends what this lineage leads to.

        :raises NotAuthenticated: one does.
        """
        for key in lineage.keys:
            if key in self._revoked and self._revoked[key].forbids(lineage):
                raise NotAuthenticated(_revoked_message(key))

    def by_identity(self, identity: str) -> KnownNode:
        """Return the node with this key.

        :raises NotFound: it is not known here.
        """
        try:
            return self._nodes[identity]
        except KeyError:
            msg = f"no node with the key {identity} is known here"
            raise NotFound(msg) from None

    def name_of(self, identity: str) -> str:
        """Return the name of the node with this key, or the key if it is not known here."""
        known = self._nodes.get(identity)
        return identity if known is None else known.name

    def find(self, word: str) -> KnownNode | None:
        """Return the node with this name, or else the only one with this address or URL host.

        None if there is none.
        """
        return self._index.find(word)

    def find_or_key(self, word: str) -> KnownNode | None:
        """Return the node that a word stands for, as :meth:`find` does, or that has it as key."""
        return self.find(word) or self._nodes.get(word)

    def nodes_sharing(self, word: str) -> list[KnownNode]:
        """Return the nodes that share an address or a host, which so stands for none of them."""
        return self._index.nodes_sharing(word)


def _revoked_message(key: str) -> str:
    return (
        f"the key {fingerprint(key)} was revoked, for good, with what follows it if that was not "
        "known before; its owner has to begin another node, with another key"
    )
