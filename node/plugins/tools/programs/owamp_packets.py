"""The packets of a session of OWAMP on the wire: a socket whose times are the kernel's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from node.plugins.tools.programs import owamp_messages as messages
from node.plugins.tools.programs import stamp_endpoint, stamp_packet

_READ_AT_ONCE = 64  # packets read before checking again whether one is due

Arrival = tuple[messages.Packet, int, int, stamp_endpoint.SocketAddress]
"""A packet, when it arrived (ns), its TTL, and where it came from."""


def now_ns() -> int:
    """Return the instant by the wall clock, which is what packets tell."""
    return time.time_ns()


class PacketSocket:
    """One end of one or two sessions."""

    def __init__(self, family: int, device: str | None, address: str, port: int) -> None:
        """Bind to an address and a port, and to an interface if there is a ``device``.

        :raises stamp_endpoint.Unusable: the port is taken, or the interface cannot be used.
        """
        self._clock = stamp_endpoint.KernelClock()
        self._socket = stamp_endpoint.open_socket(family, device)
        try:
            stamp_endpoint.bind(self._socket, (address, port), fixed_port=True)
        except stamp_endpoint.Unusable:
            self._socket.close()
            raise

    @property
    def port(self) -> int:
        """The port."""
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def error(self) -> int:
        """The error estimate of this host's clock, as it was when the socket was opened."""
        return self._clock.error_estimate()

    @property
    def clock(self) -> stamp_endpoint.KernelClock:
        """This host's clock, watched since the socket was opened."""
        return self._clock

    def fileno(self) -> int:
        """Return its number, for waiting."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def send(self, number: int, to: tuple[str, int], tail: bytes) -> int:
        """Send a packet with padding; return when (ns).

        :raises OSError: it cannot be sent.
        """
        sent_ns = time.time_ns()
        packet = messages.Packet(number, stamp_packet.ntp_from_ns(sent_ns), self.error)
        self._socket.sendto(messages.pack_packet(packet) + tail, to)
        return sent_ns

    def read(self) -> Iterator[Arrival]:
        """Yield some of the packets that have arrived; what is none of OWAMP is left out."""
        for _ in range(_READ_AT_ONCE):
            try:
                received = stamp_endpoint.receive(self._socket)
            except OSError:  # an ICMP error in answer to an earlier packet
                continue
            if received is None:
                return
            octets, arrived_ns, ttl, sender = received
            with contextlib.suppress(messages.Malformed):
                yield messages.unpack_packet(octets), arrived_ns, ttl, sender
