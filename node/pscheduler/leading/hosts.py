"""The hosts that run pScheduler, as nodes of another kind (``node/peers/foreign.py``)."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

import aiohttp

from node.client.pscheduler import PschedulerHost, PschedulerHosts
from node.model.errors import NotFound
from node.model.naming import host_of
from node.model.nodekinds import place_of, pscheduler_url
from node.model.wire.participants import CommitRequest, PartMessage, RunEnd
from node.peers.foreign import ForeignDescription
from node.pscheduler.leading.bookings import BookingServices, ForeignBookings
from node.pscheduler.leading.participant import PschedulerParticipant
from node.service import NodeService
from node.store.nodes import KnownNode

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]+", re.ASCII)


def pscheduler_hosts(session: aiohttp.ClientSession) -> Callable[[NodeService], PschedulerNodes]:
    """Return what makes the way to hosts that run pScheduler for a node."""
    return lambda node: PschedulerNodes(node, PschedulerHosts(session))


class PschedulerNodes:
    """The hosts that run pScheduler and take part in tasks that a node leads."""

    def __init__(self, node: NodeService, hosts: PschedulerHosts) -> None:
        """``node`` is still being put together; nothing of it is used before it runs."""
        self._node = node
        self._hosts = hosts
        services = BookingServices(
            host_of=self._host_of,
            lose=self._lose,
            receive=self._receive,
            decided=self._decision,
            commit=self._commit,
        )
        self.bookings = ForeignBookings(node.core, services)

    def peer(self, known: KnownNode) -> PschedulerParticipant:
        """Return the client of a host."""
        host = self._hosts.client_at(known.url or pscheduler_url(known.identity), known.name)
        return PschedulerParticipant(
            self._node.core, known.identity, known.name, host, self.bookings
        )

    async def describe(self, url: str) -> ForeignDescription:
        """Return the name of a host, and the level of its API."""
        described = await self._hosts.client_at(url).describe()
        name = node_name(described.name) or node_name(host_of(url) or "") or "pscheduler"
        return ForeignDescription(name, {"pscheduler_api": described.level})

    async def look(self, known: KnownNode) -> None:
        """Check that a host answers like pScheduler."""
        await self._host_of(known.identity).look()

    async def clock(self, known: KnownNode) -> int:
        """Return what the clock of a host says (µs)."""
        host = self._host_of(known.identity)
        await host.look()
        return (await host.clock()).now

    async def run(self) -> None:
        """Watch over bookings until cancelled."""
        await self.bookings.run()

    def _host_of(self, identity: str) -> PschedulerHost:
        try:
            known = self._node.directory.by_identity(identity)
        except NotFound:
            return self._hosts.client_at(pscheduler_url(identity), place_of(identity))
        return self._hosts.client_at(known.url or pscheduler_url(identity), known.name)

    async def _lose(self, identity: str, end: RunEnd) -> None:
        await self._node.termination.apply_run_end(identity, end)

    async def _receive(self, identity: str, part: PartMessage) -> None:
        await self._node.collector.receive(identity, part)

    async def _decision(self, exchange: UUID) -> CommitRequest | str | None:
        try:
            answered = await self._node.time_line.decision(exchange)
        except NotFound:
            return None
        return answered.commit if answered.commit is not None else answered.state

    async def _commit(self, identity: str, exchange: UUID, commit: CommitRequest) -> None:
        known = self._node.directory.by_identity(identity)
        await self.peer(known).commit(exchange, commit)


def node_name(word: str) -> str | None:
    """Return a host's own name as a node's name here; None if nothing of it can be one."""
    name = _NOT_IN_NAMES.sub("-", word.lower()).strip(".-")[:63].strip(".-")
    return name if _NAME.fullmatch(name) else None
