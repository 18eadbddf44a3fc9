"""``tcp`` and ``udp``: results as JSON, one per line or per datagram.

There are no acknowledgements: what the kernel has taken counts as delivered. Where no result may be
lost, use an archiver with acknowledgements (``http``).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from node.model import times
from node.model.wire.fields import Document, Host
from node.plugins.contracts import (
    ArchivingHost,
    Batches,
    DeliveryItem,
    DeliveryOutcome,
    DeliveryStatus,
)
from node.plugins.fields import ArchiverTimeout, IpVersion, duration_field
from node.plugins.transport.senders import (
    DatagramSender,
    SocketDestination,
    StreamSender,
    send_bytes,
)
from node.plugins.transport.unrestricted import UnrestrictedArchiver

_DATAGRAM_MAX = 65_507
"""Maximum bytes that IPv4 carries in one datagram of UDP."""


class SocketSpec(Document):
    """The address to send to."""

    host: Host = Field(description="Name or address.")
    port: int = Field(ge=1, le=65_535, strict=True, description="The port it listens on.")
    ip_version: IpVersion | None = Field(None, description="4 or 6; by default either.")
    bind: Host | None = Field(None, description="The address of this host to send from.")
    timeout: ArchiverTimeout = duration_field(
        10 * times.SECOND, "The timeout of a batch; PT1S to PT2M."
    )


class _SocketArchiver(UnrestrictedArchiver):
    """The common parts of both archivers."""

    spec_model: type[Document] = SocketSpec

    def label(self, spec: SocketSpec) -> str:
        """Return host and port."""
        return _label(spec)


class TcpArchiver(_SocketArchiver):
    """Sends JSON lines over a connection that stays open."""

    name = "tcp"
    title = "Send JSON lines over TCP"
    ordered = True

    def batches(self, spec: SocketSpec) -> Batches:
        """Return a thousand documents."""
        return Batches(1000, 8_000_000, 2 * spec.timeout)

    def open(self, spec: SocketSpec, host: ArchivingHost) -> TcpDestination:
        """Return the destination; it connects on first use."""
        return TcpDestination(spec)


class TcpDestination(SocketDestination):
    """The connection on which JSON lines are sent."""

    def __init__(self, spec: SocketSpec) -> None:
        """Prepare the sender; nothing is connected yet."""
        sender = StreamSender(
            spec.host, spec.port, spec.timeout, ip_version=spec.ip_version, bind=spec.bind
        )
        super().__init__(sender, _label(spec))

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Send the batch; without acknowledgements, an error counts for all of it."""
        outcome = await send_bytes(self.sender, [item.body + b"\n" for item in batch])
        return [outcome] * len(batch)


class UdpArchiver(_SocketArchiver):
    """Sends a datagram for each result."""

    name = "udp"
    title = "Send JSON in datagrams (UDP)"
    ordered = False

    def batches(self, spec: SocketSpec) -> Batches:
        """Return a hundred documents, which fit into a receiver's buffer."""
        return Batches(100, 8_000_000, 2 * spec.timeout)

    def open(self, spec: SocketSpec, host: ArchivingHost) -> UdpDestination:
        """Return the destination; it resolves the name on first use."""
        return UdpDestination(spec)


class UdpDestination(SocketDestination):
    """The address to which datagrams are sent."""

    def __init__(self, spec: SocketSpec) -> None:
        """Prepare the sender; nothing is opened yet."""
        sender = DatagramSender(
            (spec.host, spec.port), spec.timeout, ip_version=spec.ip_version, bind=spec.bind
        )
        super().__init__(sender, _label(spec))

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Send each document that fits into a datagram, and refuse the others."""
        fitting = [item.body for item in batch if len(item.body) <= _DATAGRAM_MAX]
        outcome = await send_bytes(self.sender, fitting)
        return [
            outcome if len(item.body) <= _DATAGRAM_MAX else _too_long_outcome(item)
            for item in batch
        ]


def _too_long_outcome(item: DeliveryItem) -> DeliveryOutcome:
    reason = (
        f"{len(item.body)} bytes do not fit into a datagram of {_DATAGRAM_MAX}; "
        "shorten it by a transform"
    )
    return DeliveryOutcome(DeliveryStatus.REFUSED, reason)


def _label(spec: SocketSpec) -> str:
    return f"{spec.host} port {spec.port}"


TCP = TcpArchiver()
UDP = UdpArchiver()
