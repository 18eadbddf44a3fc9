"""Announcements of moves: this node tells where it is, and follows other nodes to where they are.

Every confirmation (``node/tasks/confirmation.py``) carries the sender's announcement, which its key
has signed. A node that hears a later one than it knows, with another URL, looks there: if the key
answers, over TLS with a certificate of that key, it follows, and sends everything to that URL from
then on.

A backup may be restored while the host that it was made on still runs. Then two hosts have one key,
and the announcement of the restored one is the later: its database has a newer generation. Others
answer the old host with it. That is a proof, because nobody else has the key, and the old host
ends: two nodes of one key would book and cancel each other's runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from node.client.peers import Peers
from node.core import Core
from node.model.announcement import Announcement, announcement_of, next_announcement
from node.model.errors import MovedAway, NotAllowed, ParleyError
from node.model.naming import clash
from node.model.times import to_the_second
from node.model.wire.participants import ConfirmationAnswer
from node.peers.directory import Directory
from node.store import nodes
from node.store.nodes import KnownNode
from node.trust.statements import InvalidStatementError, StatementKind, read_statement

_STARTING_S = 3.0
"""A node announces itself before it begins anything, and its API answers a little later."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Heard:
    """The answer to an announcement: a later one, or why this node does not follow."""

    successor: str | None = None
    not_followed: str | None = None


class Announcer:
    """Tells other nodes where this one is, and follows them."""

    def __init__(self, core: Core, directory: Directory, peers: Peers) -> None:
        """Tell nothing yet; ``peers`` fetches the cards of nodes that have moved."""
        self._database = core.database
        self._clock = core.clock
        self._identity = core.identity
        self._signer = core.signer
        self._url = None if core.settings.pull else core.settings.public_url
        self._directory = directory
        self._peers = peers
        self._own: tuple[Announcement, str] | None = None
        self._following: dict[str, asyncio.Task[None]] = {}
        self._obstacles: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._moved_away: MovedAway | None = None
        self.ended = asyncio.Event()
        """Set once another host has this node."""

    def require_here(self) -> None:
        """Return if no other host has this node.

        :raises MovedAway: one has.
        """
        if self._moved_away is not None:
            raise self._moved_away

    async def look(self) -> None:
        """Read whether another host has this node, by what a process of this one has heard."""
        async with self._database.connection() as connection:
            text = await nodes.successor(connection)
        if text is not None and (later := _read(text, self._identity)) is not None:
            self._end(later)

    async def own(self) -> str | None:
        """Return this node's announcement; None where nothing is signed."""
        if self._signer is None:
            return None
        generation = self._database.generation
        if self._own is not None and self._own[0].generation == generation:
            return self._own[1]
        async with self._database.transaction() as connection:
            stored = await nodes.announcement(connection, self._identity)
            before = None if stored is None else _read(stored, self._identity)
            current = next_announcement(before, generation, self._url, self._clock.now())
            if stored is None or current != before:
                stored = self._signer.statement(StatementKind.ANNOUNCEMENT, current.claims)
                await nodes.keep_announcement(connection, self._identity, stored)
        self._own = current, stored
        return stored

    async def hear(self, sender: str, text: str) -> Heard:
        """Take in the announcement of another node, and follow it if it has moved.

        :raises NotAllowed: it is not the announcement of this node.
        """
        announced = _read(text, sender)
        if announced is None:
            msg = "the announcement is not one that the sender has signed"
            raise NotAllowed(msg)
        async with self._database.transaction() as connection:
            stored = await nodes.announcement(connection, sender)
            before = None if stored is None else _read(stored, sender)
            if before is not None and before.order > announced.order:
                return Heard(stored if before.is_by_another(announced) else None)
            if before != announced:
                await nodes.keep_announcement(connection, sender, text)
        return self._followed(self._directory.by_identity(sender), announced.url)

    def _followed(self, known: KnownNode, url: str | None) -> Heard:
        """Begin to follow a node, unless it is where it is known to be, or fetches its work."""
        if url is None or known.url is None or known.url == url:
            self._obstacles.pop(known.identity, None)
            return Heard()
        if known.identity not in self._following:
            following = asyncio.create_task(self._follow(known, url), name=f"follow {known.name}")
            self._following[known.identity] = following
            following.add_done_callback(lambda _: self._following.pop(known.identity, None))
        return Heard(not_followed=self._obstacles.get(known.identity))

    async def _follow(self, known: KnownNode, url: str) -> None:
        try:
            await self._clock.sleep(_STARTING_S)
            obstacle = await self._move(known, url)
        except ParleyError as error:
            obstacle = error.detail
        if obstacle is None:
            self._obstacles.pop(known.identity, None)
            log.info("a node has moved", node=known.name, before=known.url, url=url)
        elif self._obstacles.get(known.identity) != obstacle:
            self._obstacles[known.identity] = obstacle
            log.warning("a node says that it has moved", node=known.name, url=url, error=obstacle)

    async def _move(self, known: KnownNode, url: str) -> str | None:
        """Look whether a node is at this URL, and know it there; return why not.

        :raises ParleyError: it is not reached there.
        """
        if (known.url or "").startswith("https:") and not url.startswith("https:"):
            return f"{url} is not https, by which it is known here; add it again there"
        card = await self._peers.card(url, known.identity)
        if card.identity != known.identity:
            return f"another key answers at {url}: {card.identity}"
        if card.url != url:
            return f"the node at {url} calls itself {card.url or 'a node in pull mode'}"
        believed = card.model_copy(update={"name": known.name})
        if (reason := clash(believed, await self._directory.known())) is not None:
            return reason
        async with self._database.transaction() as connection:
            await nodes.move(connection, believed, self._clock.now())
            await nodes.notify(connection, known.name, "moved")
            await nodes.notify(connection, known.name, "reached")
        await self._directory.refresh()
        return None

    async def learn(self, node: str, answered: ConfirmationAnswer) -> None:
        """Take in the answer of a node (by its name) to this node's announcement.

        :raises MovedAway: another host has this node.
        """
        if answered.not_followed is not None and self._told.get(node) != answered.not_followed:
            log.warning("not reached here", node=node, url=self._url, error=answered.not_followed)
        self._told[node] = answered.not_followed or ""
        if answered.successor is None:
            return
        later = _read(answered.successor, self._identity)
        own = self._own[0] if self._own else None
        if later is None or own is None or later.order < own.order or not own.is_by_another(later):
            log.warning("no announcement of this node, or no later one", node=node)
            return
        async with self._database.connection() as connection:
            await nodes.give_up(connection, own.generation, answered.successor)
        self._end(later)
        self.require_here()

    def _end(self, later: Announcement) -> None:
        if self._moved_away is not None:
            return
        since = to_the_second(later.generation_at)
        where = later.url or "a place from which it fetches its work"
        self._moved_away = MovedAway(
            f"another host goes on as this node: it has this node's key and a database that was "
            f"restored at {since}, and is at {where}. This host begins nothing any more. If "
            "it is the right one, stop the other one, and then here: parley admin reclaim"
        )
        log.error("this node goes on at another host", url=later.url, since=since)
        self.ended.set()

    async def stop(self) -> None:
        """Follow nobody any more."""
        following = list(self._following.values())
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)


def _read(text: str, identity: str) -> Announcement | None:
    """Return the announcement of a node; None if it is none, or of another one."""
    try:
        statement = read_statement(text, StatementKind.ANNOUNCEMENT)
    except InvalidStatementError:
        return None
    return announcement_of(statement.claims) if statement.identity == identity else None
