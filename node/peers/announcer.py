"""Announcements of moves: this node tells where it is, and follows other nodes to where they are.

Every confirmation (``node/tasks/confirmation.py``) carries the sender's announcement, which its key
has signed. A node that hears a later one than it knows, with another URL, looks there: if the key
answers, over TLS with a certificate of that key, it follows, and sends everything to that URL from
then on.

A backup may be restored while the host that it was made on still runs. Then two hosts have one key,
and the announcement of the restored one is the later: its database has a newer generation. Others
answer the old host with it. That is a proof, because nobody else has the key, and the old host
ends: two nodes of one key would book and cancel each other's runs.

That is for a host to which the owner has brought the node. A clone of its machine, or of its disk,
is nobody's decision: it announces nothing, and ends, as long as the original answers
(``rivals.py``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from node.client.peers import Peers
from node.model.announcement import Announcement, announcement_of, next_announcement
from node.model.errors import (
    CopyOfNode,
    HostError,
    MovedAway,
    NotAllowed,
    ParleyError,
    PeerAnswered,
)
from node.model.naming import find_clash
from node.model.times import to_the_second
from node.model.wire.participants import ConfirmationAnswer
from node.peers.directory import Directory
from node.peers.rivals import SILENT, OwnProcess, ServingProcess
from node.store import nodes, notices
from node.store.core import Core
from node.store.nodes import KnownNode
from node.trust.statements import InvalidStatementError, StatementKind, read_statement

_STARTING_S = 3.0
"""A node announces itself before it begins anything, and its API answers a little later."""

if TYPE_CHECKING:
    import aiohttp

log = structlog.get_logger()


@dataclass(frozen=True)
class Heard:
    """The answer to an announcement: a later one, or why this node does not follow.

    ``successor`` is by another host, ``overtaking`` by a copy that had the same data and another
    URL.
    """

    successor: str | None = None
    overtaking: str | None = None
    not_followed: str | None = None


class MoveRules(Protocol):
    """Judges where a node is asked that says it has moved."""

    def moved_refusal(self, url: str) -> str | None:
        """Return why nothing is asked there on another node's word; None if it is."""
        ...

    def session_to_moved(self) -> aiohttp.ClientSession:
        """Return a session that connects to nothing but what is good for that word."""
        ...


class Announcer:
    """Tells other nodes where this one is, and follows them."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        peers: Peers,
        moves: MoveRules,
    ) -> None:
        """Tell nothing yet; ``peers`` fetches the cards of nodes that have moved.

        ``moves`` judges where they are asked for.
        """
        self._moves = moves
        self._database = core.database
        self._clock = core.clock
        self._identity = core.identity
        self._signer = core.signer
        self._url = None if core.settings.pull else core.settings.public_url
        self._directory = directory
        self._peers = peers
        self._own: tuple[Announcement, str] | None = None
        self._own_key: str | None = None
        self._silent_since: int | None = None
        self._following: dict[str, asyncio.Task[None]] = {}
        self._obstacles: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._moved_away: HostError | None = None
        self.ended = asyncio.Event()
        """Set once another host has this node, or its key is revoked."""

    def require_here(self) -> None:
        """Return if no other host has this node, and its key is not revoked.

        :raises MovedAway: another host has it.
        :raises HostError: its key is revoked.
        """
        if self._moved_away is not None:
            raise self._moved_away

    async def look(self) -> None:
        """Read whether another host has this node, by what a process of this one has heard."""
        async with self._database.connection() as connection:
            text, copy_of = await nodes.successor(connection)
            revoked = await nodes.revoked_keys(connection)
        if self._signer and any(each.forbids(self._signer.lineage) for each in revoked):
            self._end_revoked()
        if text is not None and (later := _announcement_in(text, self._identity)) is not None:
            self._end(later)
        if copy_of:
            self._end_as_copy(copy_of)
        self._database.copy_of = copy_of

    async def note_original(self, of: str | None) -> None:
        """Note where the node goes on of which this is a copy; None: it goes on here.

        :raises CopyOfNode: this is a copy.
        """
        async with self._database.transaction() as connection:
            known = await nodes.keep_copy(connection, of)
        self._database.copy_of = known
        if known is not None:
            self._end_as_copy(known)
        self.require_here()

    async def previous_url(self) -> str | None:
        """Return where this node was, by what it announced last; None if nobody could reach it."""
        before = await self._announced_last()
        return None if before is None else before.url

    async def place_before(self) -> str | None:
        """Return where this node was by its last announcement, if it is elsewhere now.

        None if the owner has brought it here, which makes a newer generation.
        """
        before = await self._announced_last()
        if before is None or before.generation != self._database.generation:
            return None
        return None if before.url == self._url else before.url

    async def _announced_last(self) -> Announcement | None:
        async with self._database.transaction() as connection:
            stored = await nodes.lock_announcement(connection, self._identity)
        return None if stored is None else _announcement_in(stored, self._identity)

    async def goes_on_at(self, url: str) -> bool | None:
        """Return whether a node with this key calls itself by a URL; None if it may.

        This process, reached by an earlier name, does not.
        """
        return await self._peers.is_at(url, self._identity)

    async def may_live_where_it_was(self) -> bool:
        """Return whether a process with this node's key may be where the node was before this one.

        It calls itself by that URL; this process, reached by an earlier name, does not. One that is
        only slow is there, until it has been asked for as long as it would take to be heard of.
        """
        async with self._database.connection() as connection:
            former = await nodes.former_url(connection)
        if former is None or former == self._url:
            return False
        is_there = await self.goes_on_at(former)
        if is_there is not None:
            self._silent_since = None
            return is_there
        now = self._clock.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        return now - self._silent_since < SILENT

    async def answers_at(self, url: str) -> bool | None:
        """Return whether a process with this node's key answers at a URL; None if it may."""
        return await self._peers.lives_at(url, self._identity)

    async def own(self, *, serves: bool = True) -> str | None:
        """Return this node's announcement; None where nothing is signed, or it may be a copy.

        Only the process that ``serves`` the node announces another place: it looks at the one
        before. A lead apart repeats what was announced last.
        """
        if self._signer is None or self._database.copy_of is not None:
            return None
        generation = self._database.generation
        key = self._signer.lineage.key
        if self._own is not None and self._own_key == key:
            last, text = self._own
            if (last.generation, last.url) == (generation, self._url):
                return text
        async with self._database.transaction() as connection:
            stored = await nodes.lock_announcement(connection, self._identity)
            before = None if stored is None else _announcement_in(stored, self._identity)
            current = next_announcement(before, generation, self._url, self._clock.now())
            if before is not None and before.url not in {None, current.url}:
                if not serves:
                    return stored
                await nodes.keep_former_url(connection, before.url)
            if stored is None or current != before or self._own_key != key:
                stored = self._signer.statement(StatementKind.ANNOUNCEMENT, current.claims)
                await nodes.keep_announcement(connection, self._identity, stored)
        self._own, self._own_key = (current, stored), key
        return stored

    async def hear(self, sender: str, text: str) -> Heard:
        """Take in the announcement of another node, and follow it if it has moved.

        :raises NotAllowed: it is not the announcement of this node.
        """
        announced = _announcement_in(text, sender)
        if announced is None or not self._is_by_key_that_counts(text, sender):
            msg = "the announcement is not one that the sender has signed"
            raise NotAllowed(msg)
        async with self._database.transaction() as connection:
            stored = await nodes.lock_announcement(connection, sender)
            before = None if stored is None else _announcement_in(stored, sender)
            if before is not None and before.order > announced.order:
                if before.is_by_another(announced):
                    return Heard(successor=stored)
                return Heard(overtaking=stored if before.url != announced.url else None)
            if before != announced:
                await nodes.keep_announcement(connection, sender, text)
        return self._begin_following(self._directory.by_identity(sender), announced.url)

    def _begin_following(self, known: KnownNode, url: str | None) -> Heard:
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
            obstacle = cause = await self._try_move(known, url)
        except ParleyError as error:
            obstacle, cause = f"no node with its key is reached at {url}", error.detail
        if obstacle is None:
            self._obstacles.pop(known.identity, None)
            log.info("a node has moved", node=known.name, before=known.url, url=url)
        elif self._obstacles.get(known.identity) != obstacle:
            self._obstacles[known.identity] = obstacle
            log.warning("a node says that it has moved", node=known.name, url=url, error=cause)

    async def _try_move(self, known: KnownNode, url: str) -> str | None:
        """Look whether a node is at this URL, and know it there; return why not.

        :raises ParleyError: it is not reached there; the sender is not told why, since that may be
            about the network of this host.
        """
        if (known.url or "").startswith("https:") and not url.startswith("https:"):
            return f"{url} is not https, by which it is known here; add it again there"
        if (refusal := self._moves.moved_refusal(url)) is not None:
            return refusal
        async with self._moves.session_to_moved() as session:
            card = await self._peers.with_session(session).card(url, known.identity)
        if card.identity != known.identity:
            raise PeerAnswered(f"another key answers at {url}: {card.identity}")
        if card.url != url:
            return f"the node at {url} calls itself {card.url or 'a node in pull mode'}"
        believed = card.model_copy(update={"name": known.name})
        if (reason := find_clash(believed, await self._directory.known())) is not None:
            return reason
        async with self._database.transaction() as connection:
            await nodes.keep_new_address(connection, believed, self._clock.now())
            await notices.notify(connection, "node", known.name, "moved")
            await notices.notify(connection, "node", known.name, "reached")
        await self._directory.refresh()
        return None

    async def learn(self, node: str, answered: ConfirmationAnswer) -> None:
        """Take in the answer of a node (by its name) to this node's announcement.

        A copy of this node that has ended, or will, may have said that the node is where the copy
        was. Then this one says anew where it is.

        :raises MovedAway: another host has this node.
        """
        if answered.not_followed is not None and self._told.get(node) != answered.not_followed:
            log.warning("not reached here", node=node, url=self._url, error=answered.not_followed)
        self._told[node] = answered.not_followed or ""
        if answered.successor is None:
            return
        later = _announcement_in(answered.successor, self._identity)
        if later and not self._is_by_key_that_counts(answered.successor, self._identity):
            later = None
        own = self._own[0] if self._own else None
        if later is None or own is None or later.order < own.order:
            log.warning("no announcement of this node, or no later one", node=node)
            return
        if not own.is_by_another(later):
            async with self._database.transaction() as connection:
                await nodes.keep_announcement(connection, self._identity, answered.successor)
            self._own = None  # the next one is later than what is stored
            return
        async with self._database.connection() as connection:
            await nodes.note_moved_away(connection, own.generation, answered.successor)
        self._end(later)
        self.require_here()

    def _is_by_key_that_counts(self, text: str, identity: str) -> bool:
        """Return whether the key of an announcement is none that was replaced long ago."""
        return self._key_counts(read_statement(text, StatementKind.ANNOUNCEMENT).key, identity)

    def _key_counts(self, key: str, identity: str) -> bool:
        lineage = self._directory.lineage(identity)
        if self._directory.is_revoked(key):
            return False
        return lineage is None or self._directory.counts(identity, key, self._clock.now())

    def process_statement(self, process: OwnProcess) -> str | None:
        """Return what this process tells of itself now; None where nothing is signed."""
        if self._signer is None:
            return None
        told = self._serving_process(process)
        return self._signer.statement(StatementKind.PROCESS, told.claims)

    def _serving_process(self, process: OwnProcess) -> ServingProcess:
        database = self._database
        generation = database.generation if database.copy_of is None else None
        return process.told(self._clock, generation)

    def read_process(self, text: str, identity: str) -> ServingProcess | None:
        """Return the process of a node; None if no key of it that counts has signed that."""
        try:
            statement = read_statement(text, StatementKind.PROCESS)
            if statement.identity != identity or not self._key_counts(statement.key, identity):
                return None
            return ServingProcess.of(statement.claims)
        except (InvalidStatementError, ValueError):
            return None

    async def meet(self, own: OwnProcess, text: str, node: str) -> None:
        """Take in what a node (by its name) answers as the statement of a rival of this process.

        :raises CopyOfNode: the rival is the node, and this process serves a copy.
        """
        rival = self.read_process(text, self._identity)
        if rival is None:
            log.warning("no statement of another process of this node", node=node)
        elif self._serving_process(own).is_copy_beside(rival):
            await self.note_original(f"a place that {node} reaches")

    def _end_revoked(self) -> None:
        if self._moved_away is None:
            self._moved_away = HostError(
                "the key of this node was revoked, and no other node speaks with it any more. To "
                "measure again, begin another node: with an empty state directory and database, "
                "which the others add anew"
            )
            log.error("the key of this node was revoked")
            self.ended.set()

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

    def _end_as_copy(self, of: str) -> None:
        if self._moved_away is not None:
            return
        self._moved_away = CopyOfNode(
            f"this is a copy of a node that goes on at {of}: a process there has the same key, and "
            "the data here were on another host, or in an earlier state. It begins nothing. Remove "
            "it; or, if the node is to be here, stop the other one, then here: parley admin "
            "take-over"
        )
        log.error("this is a copy of a node that goes on", url=of)
        self.ended.set()

    async def stop(self) -> None:
        """Follow nobody any more."""
        following = list(self._following.values())
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)


def _announcement_in(text: str, identity: str) -> Announcement | None:
    """Return the announcement of a node; None if it is none, or of another one."""
    try:
        statement = read_statement(text, StatementKind.ANNOUNCEMENT)
    except InvalidStatementError:
        return None
    return announcement_of(statement.claims) if statement.identity == identity else None
