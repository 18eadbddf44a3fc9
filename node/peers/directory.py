"""The directory of known nodes, cached in memory and read again when it changes.

A request signed with a key that is not in it is refused. A node named in a task must be in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.model.errors import NotFound
from node.model.naming import NodeIndex
from node.model.nodekinds import NodeKind
from node.store import nodes
from node.store.database import Database
from node.store.nodes import KnownNode


class Directory:
    """The known nodes by identity, name, and address; one of them is this node."""

    def __init__(self, database: Database) -> None:
        """Empty until :meth:`refresh`."""
        self._database = database
        self._nodes: dict[str, KnownNode] = {}
        self._index: NodeIndex[KnownNode] = NodeIndex(())

    async def refresh(self) -> None:
        """Read the table."""
        async with self._database.connection() as connection:
            self.fill(await nodes.listed(connection))

    async def known(self) -> Sequence[KnownNode]:
        """Read the table and return all nodes."""
        await self.refresh()
        return self.all

    def fill(self, known: Sequence[KnownNode]) -> None:
        """Replace the cached nodes."""
        self._nodes = {node.identity: node for node in known}
        self._index = NodeIndex(known)

    @property
    def self(self) -> KnownNode:
        """This node."""
        return next(node for node in self._nodes.values() if node.is_self)

    @property
    def all(self) -> list[KnownNode]:
        """Every known node, including this one."""
        return list(self._nodes.values())

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

    def by_identity(self, identity: str) -> KnownNode:
        """Return the node with this key.

        :raises NotFound: it is not known here.
        """
        try:
            return self._nodes[identity]
        except KeyError:
            msg = f"no node with the key {identity} is known here"
            raise NotFound(msg) from None

    def find(self, word: str) -> KnownNode | None:
        """Return the node with this name, or else the only one with this address or URL host.

        None if there is none.
        """
        return self._index.find(word)

    def find_or_key(self, word: str) -> KnownNode | None:
        """Return the node that a word stands for, as :meth:`find` does, or that has it as key."""
        return self.find(word) or self._nodes.get(word)

    def sharing(self, word: str) -> list[KnownNode]:
        """Return the nodes that share an address or a host, which so stands for none of them."""
        return self._index.sharing(word)
