"""Adds other nodes to the directory, with their keys pinned."""

from __future__ import annotations

import aiohttp

from node.client.peers import Peers
from node.model.errors import (
    Conflict,
    FieldFault,
    InvalidDocument,
    NotAuthenticated,
    PeerFailed,
)
from node.model.naming import find_clash, host_of
from node.model.nodekinds import pscheduler_identity, pscheduler_url
from node.model.wire.nodes import NodeAddition
from node.peers.directory import Directory
from node.peers.foreign import ForeignNodes
from node.store import nodes, notices
from node.store.core import Core
from node.store.nodes import ForeignNode, KnownNode
from node.trust.identities import fingerprint
from node.trust.lineage import Lineage


class PeerRegistrar:
    """Adds known nodes; ``node/tasks/node_removal.py`` removes them."""

    def __init__(
        self, core: Core, directory: Directory, peers: Peers, foreign: ForeignNodes | None
    ) -> None:
        """``peers`` fetches the card of a node that is added, ``foreign`` asks those without."""
        self._foreign = foreign
        self._database = core.database
        self._clock = core.clock
        self._directory = directory
        self._peers = peers
        self._own = core.identity

    async def add(
        self,
        addition: NodeAddition,
        name: str | None = None,
        session: aiohttp.ClientSession | None = None,
    ) -> KnownNode:
        """Fetch a node's card and pin its key; without a URL, pin the key and wait for its polls.

        With a ``name``, a card with another one is refused. The card is fetched by ``session``, if
        the owner has not chosen the URL.

        :raises PeerError: the URL does not answer.
        :raises Conflict: the key or the name is not the expected one, or a word of the card is
            taken.
        :raises InvalidDocument: it is this node itself.
        """
        if addition.url is None:
            return await self._add_fetching(addition.identity or "")
        if (identity := pscheduler_identity(addition.url)) is not None:
            return await self._add_foreign(identity)
        peers = self._peers if session is None else self._peers.with_session(session)
        card, lineage = await peers.card_and_lineage(addition.url, addition.identity)
        if addition.identity not in (None, card.identity, lineage.key):
            msg = f"the node at {addition.url} has the key {card.identity}, not the one expected"
            raise Conflict(msg)
        if name not in (None, card.name):
            raise Conflict(f"the node at {addition.url} calls itself {card.name}, not {name}")
        if card.identity == self._own:
            fault = FieldFault("/url", "is this node itself")
            raise InvalidDocument([fault])
        if (reason := find_clash(card, await self._directory.known())) is not None:
            raise Conflict(reason)
        self._require_unrevoked(lineage)
        async with self._database.transaction() as connection:
            now = self._clock.now()
            await nodes.keep(connection, card, now)
            if lineage.successions:
                heard_at = [min(each.at, now) for each in lineage.successions]
                await nodes.keep_lineage(connection, card.identity, None, str(lineage), heard_at)
            await notices.notify(connection, "node", card.name, "added")
        await self._directory.refresh()
        return self._directory.by_identity(card.identity)

    def _require_unrevoked(self, lineage: Lineage) -> None:
        try:
            self._directory.require_unrevoked(lineage)
        except NotAuthenticated as error:
            raise Conflict(error.detail) from None

    async def _add_foreign(self, identity: str) -> KnownNode:
        """Make a host of pScheduler known: it has no key, and its certificate proves nothing.

        :raises PeerError: it does not answer like pScheduler.
        :raises Conflict: a word of it is taken.
        """
        if self._foreign is None:
            raise PeerFailed("this program does not speak with hosts that run pScheduler")
        url = pscheduler_url(identity)
        described = await self._foreign.describe(url)
        host = host_of(url) or ""
        new = ForeignNode(identity, described.name, url, host, described.attributes)
        if (reason := find_clash(new, await self._directory.known())) is not None:
            raise Conflict(reason)
        async with self._database.transaction() as connection:
            await nodes.keep(connection, new, self._clock.now())
            await notices.notify(connection, "node", new.name, "added")
        await self._directory.refresh()
        return self._directory.by_identity(identity)

    async def _add_fetching(self, identity: str) -> KnownNode:
        if identity == self._own:
            fault = FieldFault("/identity", "is this node itself")
            raise InvalidDocument([fault])
        await self._directory.refresh()
        self._require_unrevoked(Lineage(identity))
        name = f"unseen-{fingerprint(identity)}"
        async with self._database.transaction() as connection:
            await nodes.pin(connection, identity, name, self._clock.now())
            await notices.notify(connection, "node", name, "added")
        await self._directory.refresh()
        return self._directory.by_identity(identity)
