"""``tcp`` and ``udp``: results as JSON, one per line or per datagram.

There are no acknowledgements: what the kernel has taken counts as delivered. Where no result may be
lost, use an archiver with acknowledgements (``http``).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from node.model.wire.fields import Document, Host
from node.plugins.contracts import (
    ArchivingHost,
    DeliveryItem,
    DeliveryOutcome,
)
from node.plugins.fields import ArchiverTimeout, IpVersion
from node.plugins.transport.batches import OwnArchiver, deliver_possible, timeout_field
from node.plugins.transport.senders import (
    DatagramSender,
    SocketDestination,
    StreamSender,
)

_DATAGRAM_MAX = 65_507
"""Maximum bytes that IPv4 carries in one datagram of UDP."""


class SocketSpec(Document):
    """The address to send to."""

    host: Host = Field(description="Name or address.")
    port: int = Field(ge=1, le=65_535, strict=True, description="The port it listens on.")
    ip_version: IpVersion | None = Field(None, description="4 or 6; by default either.")
    bind: Host | None = Field(None, description="The address of this host to send from.")
    timeout: ArchiverTimeout = timeout_field("a batch", 10)


class TcpDestination(SocketDestination):
    """The connection on which JSON lines are sent."""

    def __init__(self, spec: SocketSpec, host: ArchivingHost, where: str) -> None:
        sender = StreamSender(
            spec.host, spec.port, spec.timeout, ip_version=spec.ip_version, bind=spec.bind
        )
        super().__init__(sender, where)

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Send the batch; without acknowledgements, an error counts for all of it."""
        return await self.send([item.body + b"\n" for item in batch])


class UdpDestination(SocketDestination):
    """The address to which datagrams are sent."""

    def __init__(self, spec: SocketSpec, host: ArchivingHost, where: str) -> None:
        sender = DatagramSender(
            (spec.host, spec.port), spec.timeout, ip_version=spec.ip_version, bind=spec.bind
        )
        super().__init__(sender, where)

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Send each document that fits into a datagram, and refuse the others."""
        return await deliver_possible([item.body for item in batch], _excess, self.send)


class TcpArchiver(OwnArchiver):
    """Sends JSON lines over a connection that stays open."""

    name = "tcp"
    title = "Send JSON lines over TCP"
    ordered = True
    spec_model: type[Document] = SocketSpec
    attempts = 2
    destination = TcpDestination


class UdpArchiver(OwnArchiver):
    """Sends a datagram for each result."""

    name = "udp"
    title = "Send JSON in datagrams (UDP)"
    spec_model: type[Document] = SocketSpec
    items = 100  # they fit into a receiver's buffer
    attempts = 2
    destination = UdpDestination


def _excess(document: bytes) -> str | None:
    if len(document) <= _DATAGRAM_MAX:
        return None
    return (
        f"{len(document)} bytes do not fit into a datagram of {_DATAGRAM_MAX}; "
        "shorten it by a transform"
    )


TCP = TcpArchiver()
UDP = UdpArchiver()
