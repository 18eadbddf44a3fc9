"""Both ends of a STAMP session of any length: sending packets, and answering them."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from typing import NamedTuple

from node.plugins.tools.programs import stamp_endpoint, stamp_packet


class SendResult(NamedTuple):
    """The outcome of sending one packet; if ``at_ns`` is 0, it could not be sent.

    ``unreachable`` counts ICMP errors about earlier packets, which were reported meanwhile;
    ``complaint`` is any other error message of the system.
    """

    at_ns: int
    unreachable: int
    complaint: str


class End:
    """One end: the clock whose state its packets carry, and the session they belong to."""

    def __init__(self, arguments: stamp_endpoint.Arguments) -> None:
        """Read the state of the kernel's clock."""
        self._session: int = arguments["session"]
        self._look_at_clock()

    def _look_at_clock(self) -> None:
        self._clock = stamp_endpoint.KernelClock()
        self._error = self._clock.error_estimate()


class SendingEnd(End):
    """The session-sender's socket."""

    def __init__(self, arguments: stamp_endpoint.Arguments) -> None:
        """Open the socket.

        :raises stamp_endpoint.Unusable: a name is unknown, or there is no route to the reflector.
        """
        super().__init__(arguments)
        extra = arguments["length"] - stamp_packet.LENGTH
        self._tail = stamp_packet.padding(arguments["length"], os.urandom(extra))
        self._socket = stamp_endpoint.connected_socket(arguments)

    def _emit(self, sequence: int) -> SendResult:
        unreachable, complaint = 0, ""
        for _ in range(2):
            now_ns = time.time_ns()
            timestamp = stamp_packet.ntp_from_ns(now_ns)
            packet = stamp_packet.SenderPacket(sequence, timestamp, self._error, self._session)
            try:
                self._socket.send(stamp_packet.pack_sender(packet) + self._tail)
            except ConnectionRefusedError:
                # The error answers an earlier packet; this one has not been sent yet.
                unreachable += 1
            except OSError as fault:  # no route at the moment
                complaint = fault.strerror or str(fault)
            else:
                return SendResult(now_ns, unreachable, complaint)
        return SendResult(0, unreachable, complaint)


class ReflectingEnd(End, ABC):
    """The session-reflector's socket, and the number of packets it has answered."""

    def __init__(self, arguments: stamp_endpoint.Arguments, *, shared: bool = False) -> None:
        """Open the socket; ``shared``: another one of this account may use the same port.

        :raises stamp_endpoint.Unusable: a name is unknown, or the port cannot be used.
        """
        senders = stamp_endpoint.addresses(arguments["sender"], None, 0)
        self._senders = {address[0] for _, address in senders}
        super().__init__(arguments)
        self._socket = stamp_endpoint.bound_socket(arguments, shared=shared)
        self._answered = 0
        self._strays = 0

    @abstractmethod
    def _belongs(self, test: stamp_packet.SenderPacket) -> bool:
        """Return whether a packet is one of the expected ones."""

    def _answer(
        self, packet: bytes, arrived_ns: int, ttl: int, sender: stamp_endpoint.SocketAddress
    ) -> tuple[int, bool] | None:
        """Send a packet back; return its number and whether it was sent, or None for a stray."""
        test = stamp_packet.unpack_sender(packet)
        known = sender[0].removeprefix("::ffff:") in self._senders
        if not known or test is None or not self._belongs(test):
            self._strays += 1
            return None
        tail = stamp_packet.reflected_tail(packet)
        answer = stamp_packet.ReflectorPacket(
            sequence=self._answered,
            error=self._error,
            session=test.session,
            received=stamp_packet.ntp_from_ns(arrived_ns),
            sender_sequence=test.sequence,
            sender_timestamp=test.timestamp,
            sender_error=test.error,
            must_be_zero=0,
            sender_ttl=ttl,
            timestamp=stamp_packet.ntp_from_ns(time.time_ns()),  # last, just before sending
        )
        sent = True
        try:
            self._socket.sendto(stamp_packet.pack_reflector(answer) + tail, sender)
        except OSError:
            sent = False
        self._answered += 1
        return test.sequence, sent
