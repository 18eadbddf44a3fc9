"""``tcp`` and ``udp``: results as JSON, one a line or one a datagram.

Nobody acknowledges them: what the kernel has taken counts as delivered. Where a result must not be
lost, use one that is answered (``http``).
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
from node.plugins.fields import ArchiverTimeout, duration_field
from node.plugins.transport.senders import (
    DatagramSender,
    SocketDestination,
    StreamSender,
    send_bytes,
)
from node.plugins.transport.unrestricted import UnrestrictedArchiver

_DATAGRAM_MAX = 65_507
"""Most bytes that IPv4 carries in one datagram of UDP."""


class SocketSpec(Document):
    """Whom to send to."""

    host: Host = Field(description="Name or address.")
    port: int = Field(ge=1, le=65_535, strict=True, description="Where it listens.")
    timeout: ArchiverTimeout = duration_field(
        10 * times.SECOND, "How long a batch may take; PT1S to PT2M."
    )


class _SocketArchiver(UnrestrictedArchiver):
    """What both have in common."""

    spec_model: type[Document] = SocketSpec

    def label(self, spec: SocketSpec) -> str:
        """Host and port."""
        return _label(spec)


class TcpArchiver(_SocketArchiver):
    """JSON lines over a connection that stays open."""

    name = "tcp"
    title = "Send JSON lines over TCP"
    ordered = True

    def batches(self, spec: SocketSpec) -> Batches:
        """A thousand at a time."""
        return Batches(1000, 8_000_000, 2 * spec.timeout)

    def open(self, spec: SocketSpec, host: ArchivingHost) -> TcpDestination:  # noqa: ARG002 - the contract's
        """Connects when it is first used."""
        return TcpDestination(spec)


class TcpDestination(SocketDestination):
    """One connection."""

    def __init__(self, spec: SocketSpec) -> None:
        """Nothing is connected yet."""
        super().__init__(StreamSender(spec.host, spec.port, spec.timeout), _label(spec))

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """All or, as far as anybody knows, nothing."""
        outcome = await send_bytes(self.sender, [one.body + b"\n" for one in batch])
        return [outcome] * len(batch)


class UdpArchiver(_SocketArchiver):
    """A datagram for each result."""

    name = "udp"
    title = "Send JSON in datagrams (UDP)"
    ordered = False

    def batches(self, spec: SocketSpec) -> Batches:
        """A hundred at a time, which a receiver's buffer holds."""
        return Batches(100, 8_000_000, 2 * spec.timeout)

    def open(self, spec: SocketSpec, host: ArchivingHost) -> UdpDestination:  # noqa: ARG002 - the contract's
        """Looks the name up when it is first used."""
        return UdpDestination(spec)


class UdpDestination(SocketDestination):
    """One address."""

    def __init__(self, spec: SocketSpec) -> None:
        """Nothing is opened yet."""
        super().__init__(DatagramSender((spec.host, spec.port), spec.timeout), _label(spec))

    async def deliver(self, batch: Sequence[DeliveryItem]) -> list[DeliveryOutcome]:
        """Each that fits into a datagram."""
        fitting = [one.body for one in batch if len(one.body) <= _DATAGRAM_MAX]
        outcome = await send_bytes(self.sender, fitting)
        return [outcome if len(one.body) <= _DATAGRAM_MAX else _too_long(one) for one in batch]


def _too_long(one: DeliveryItem) -> DeliveryOutcome:
    said = (
        f"{len(one.body)} bytes do not fit into a datagram of {_DATAGRAM_MAX}; "
        "deliver less of it by a transform"
    )
    return DeliveryOutcome(DeliveryStatus.REFUSED, said)


def _label(spec: SocketSpec) -> str:
    return f"{spec.host} port {spec.port}"


TCP = TcpArchiver()
UDP = UdpArchiver()
