"""Health checks of the other nodes: which ones answer with the pinned key and know this node.

The results are shown to people (the page, ``/v1/nodes``, ``/metrics``), and messages to a node that
answers again are sent at once. The check also learns a node's attributes, which decide to which
pools it belongs, and its addresses, unless they clash with another node's name. It decides nothing
else: a node is asked whether it can take part. A node in pull mode is not asked: it is up as long
as it polls. Who is looked at in a round, :mod:`node.model.looks` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from node.client.mailboxes import Mailboxes
from node.client.peers import Peers
from node.model import looks
from node.model.errors import Conflict, NotAllowed, PeerError, RequestError
from node.model.naming import find_clash
from node.model.nodekinds import NodeKind
from node.model.shortfall import Shortfall
from node.model.wire.nodes import NodeCard
from node.peers.directory import Directory
from node.peers.foreign import ForeignNodes
from node.peers.host_states import HostStates
from node.store import nodes, outbox
from node.store.core import Core
from node.store.database import Connection
from node.store.nodes import KnownNode
from node.store.notices import notify

log = structlog.get_logger()


@dataclass(frozen=True)
class _Look:
    """The result of a look at a node: what is wrong, its card, and how much time it has left."""

    fault: str | None
    card: NodeCard | None
    free_time: Shortfall | None = None


class PeerMonitor:
    """Records which of the known nodes answer."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that it asks, and what it tells
        self,
        core: Core,
        directory: Directory,
        peers: Peers,
        mailboxes: Mailboxes,
        fetch_fault: Callable[[str], str | None],
        greet: Callable[[str], Awaitable[tuple[str | None, Shortfall | None]]],
        free_time: Callable[[], Awaitable[Shortfall]],
        host_states: HostStates,
        foreign: ForeignNodes | None,
    ) -> None:
        """``fetch_fault(identity)`` returns why no work can be fetched from a node, or None.

        ``greet(identity)`` returns why a node that answers does not serve this one, or None, and
        how much time it has left, if it tells that; ``free_time()`` returns how much this one has.
        ``host_states`` keeps what it tells of its host. ``foreign`` asks nodes of another kind,
        which have no card.
        """
        self._foreign = foreign
        self._database = core.database
        self._clock = core.clock
        self._directory = directory
        self._peers = peers
        self._mailboxes = mailboxes
        self._fetch_fault = fetch_fault
        self._greet = greet
        self._free_time = free_time
        self._host_states = host_states
        self._looked_at: dict[str, int] = {}
        """By identity, the monotonic time of the last look in a round (µs)."""
        self._known_partners: tuple[frozenset[str], int | None] = frozenset(), None
        """The partners, and the monotonic time at which they were read (µs)."""

    async def run_once(self) -> None:
        """Ask the nodes of a round at once, and store which ones answered, and how full they are.

        A lead knows its own host as it knows others: what other leads have booked there counts.
        """
        await self._directory.refresh()
        own = await self._free_time()
        async with self._database.connection() as connection:
            await nodes.keep_figures(connection, self._directory.self.identity, own)
        others = [it for it in self._directory.all if not it.is_self and not _is_unseen(it)]
        await self._look_at(
            [
                *(it for it in others if it.url is None),
                *await self._in_this_round([it for it in others if it.url is not None]),
            ]
        )

    async def _in_this_round(self, others: Sequence[KnownNode]) -> Sequence[KnownNode]:
        """Return the nodes to ask in this round, and note that they are."""
        partners = frozenset() if looks.fits(others) else await self._partners()
        now = self._clock.monotonic()
        new = now - looks.SELDOM
        self._looked_at = {it.identity: self._looked_at.get(it.identity, new) for it in others}
        chosen = looks.in_this_round(others, lambda it: it.identity, partners, self._looked_at, now)
        self._looked_at |= dict.fromkeys((it.identity for it in chosen), now)
        return chosen

    async def _partners(self) -> frozenset[str]:
        """Return the nodes with which open tasks are shared, as of a minute ago at most."""
        now = self._clock.monotonic()
        known, read_at = self._known_partners
        if read_at is None or now - read_at >= looks.PARTNERS_EVERY:
            async with self._database.connection() as connection:
                known = frozenset(await nodes.partners(connection))
            self._known_partners = known, now
        return known

    async def look_at(self, identity: str) -> None:
        """Ask one node now, and store whether it answered, and knows this one."""
        known = self._directory.by_identity(identity)
        if known.url is not None:
            await self._look_at([known])
            await self._directory.refresh()

    async def _look_at(self, others: Sequence[KnownNode]) -> None:
        looks = await asyncio.gather(*(self._look_and_greet(known) for known in others))
        faults = [look.fault for look in looks]
        now = self._clock.now()
        # Others note at the same time, in another order, which nodes have spoken.
        await self._database.settle(partial(self._keep_looks, others, looks, now))
        for known, fault in zip(others, faults, strict=True):
            if _is_news(known, fault):
                _log_change(known, fault)

    async def _keep_looks(
        self, others: Sequence[KnownNode], looks: Sequence[_Look], now: int, connection: Connection
    ) -> None:
        answered = [
            known.identity for known, look in zip(others, looks, strict=True) if look.fault is None
        ]
        await nodes.note_answered(connection, answered, now)
        await outbox.hasten(connection, answered, now)
        for known, look in zip(others, looks, strict=True):
            if look.fault is not None:
                await nodes.note_unanswered(connection, known.identity, now, look.fault)
            if _is_news(known, look.fault):
                await notify(connection, "node", known.name, "lost" if look.fault else "reached")
            if look.free_time is not None:
                await nodes.keep_figures(connection, known.identity, look.free_time)
            await self._learn(connection, known, look.card)

    async def read_card(self, identity: str) -> None:
        """Read the card of a node now, if it can be reached; this node's own is always current."""
        known = next((each for each in self._directory.all if each.identity == identity), None)
        if known is None or known.is_self or known.url is None:
            return
        if known.kind is not NodeKind.PARLEY:
            return
        _, card = await self._look(known)
        async with self._database.transaction() as connection:
            await self._learn(connection, known, card)
        await self._directory.refresh()

    async def record_poll(self, identity: str, card: NodeCard) -> None:
        """Record that a node in pull mode polls, and at its first poll its name.

        :raises NotAllowed: the node was added with a URL, or the card is of another node.
        :raises Conflict: a word of its card is taken.
        """
        known = self._directory.by_identity(identity)
        if card.identity != identity or known.url is not None:
            msg = (
                f"{known.name} is known here as a node to be reached at {known.url}; if it is to "
                f"fetch its work, its key is added without a URL: parley node add {identity}"
            )
            raise NotAllowed(msg)
        new = _description(card) != _description(known)
        if self._mailboxes.mailbox_of(identity).is_attended and not _is_unseen(known) and not new:
            return
        now = self._clock.now()
        async with self._database.transaction() as connection:
            if _is_unseen(known):
                await self._keep(connection, card)
            await nodes.note_answered(connection, [identity], now)
            await self._learn(connection, known, card)
            await outbox.hasten(connection, [identity], now)
            await notify(connection, "node", card.name, "reached")
        if known.unreachable_since is not None:
            _log_change(known, None)
        await self._directory.refresh()

    async def _keep(self, connection: Connection, card: NodeCard) -> None:
        if (reason := find_clash(card, self._directory.all)) is not None:
            raise Conflict(reason)
        await nodes.keep(connection, card.model_copy(update={"url": None}), self._clock.now())

    async def _learn(self, connection: Connection, known: KnownNode, card: NodeCard | None) -> None:
        """Store a node's attributes, lanes, and address if they have changed.

        A card whose words clash with another node's is not believed: what is known stays.
        """
        if card is None or _description(card) == _description(known):
            return
        believed = card.model_copy(update={"name": known.name, "url": known.url})
        if (reason := find_clash(believed, self._directory.all)) is not None:
            if known.last_error != reason:
                log.warning("a changed card is not believed", node=known.name, reason=reason)
            await nodes.note_doubt(connection, known.identity, reason)
            return
        await nodes.keep_changed_card(connection, known.identity, *_description(card))
        await notify(connection, "node", known.name, "changed")

    async def _look_and_greet(self, known: KnownNode) -> _Look:
        """Return what :meth:`_look` does, and whether a node that answers serves this one.

        Everybody gets the card. A node that has lost its database knows nobody.
        """
        if known.kind is not NodeKind.PARLEY:
            return _Look(await self._fault_of_foreign(known), None)
        fault, card = await self._look(known)
        if known.url is None:
            return _Look(fault, card, self._mailboxes.mailbox_of(known.identity).figures)
        if card is None or fault is not None:
            return _Look(fault, card)
        fault, free_time = await self._greet(known.identity)
        if fault is None:
            await self._host_states.refresh(known)
        return _Look(fault, card, free_time)

    async def _fault_of_foreign(self, known: KnownNode) -> str | None:
        """Return what is wrong with a node of another kind; None if it answers."""
        if self._foreign is None:
            return f"this program does not speak with nodes that run {known.kind}"
        try:
            await self._foreign.look(known)
        except (PeerError, RequestError) as error:
            return error.detail
        return None

    async def _look(self, known: KnownNode) -> tuple[str | None, NodeCard | None]:
        """Return what is wrong with a node (None if nothing is), and its card if it answered."""
        if known.url is None:
            box = self._mailboxes.mailbox_of(known.identity)
            return None if box.is_attended else box.absence_reason(known.name), None
        try:
            card = await self._peers.card(known.url, known.identity)
        except (PeerError, RequestError) as error:
            return error.detail, None
        if card.identity != known.identity:
            return f"another key answers at {known.url}: {card.identity}", None
        return self._fetch_fault(known.identity), card

    async def record_contact(self, identity: str) -> None:
        """Record that a node has sent a request or an answer; messages are due, if it was away."""
        known = self._directory.by_identity(identity)
        if known.unreachable_since is not None:
            await self.record_answer(known)

    async def record_answer(self, known: KnownNode) -> None:
        """Record that a node is there: messages to it are due, and its tasks are planned now."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            await nodes.note_answered(connection, [known.identity], now)
            await outbox.hasten(connection, [known.identity], now)
            await notify(connection, "node", known.name, "reached")
        if known.unreachable_since is not None:
            _log_change(known, None)
        await self._directory.refresh()


def _description(node: KnownNode | NodeCard) -> tuple[dict[str, Any], int, str]:
    return node.attributes, node.lanes, node.address


def _is_news(known: KnownNode, fault: str | None) -> bool:
    """Return whether a node has been lost, or found again, by this look."""
    return (fault is None) is (known.unreachable_since is not None)


def _log_change(known: KnownNode, fault: str | None) -> None:
    if fault is None:
        log.info("a node answers again", node=known.name)
    else:
        log.warning("a node does not answer", node=known.name, error=fault)


def _is_unseen(known: KnownNode) -> bool:
    """Return whether a node in pull mode has not polled yet: only its key is known until then."""
    return known.url is None and known.seen_at is None
