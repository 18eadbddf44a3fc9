"""The session-sender of STAMP (RFC 8762), in its own process, started ahead of its instant.

``stamp_sender.py '{"reflector": "192.0.2.2", "port": 5000, "source": "192.0.2.1", …}'``, see
:func:`measure`. There is one thread: it sleeps in ``select`` until the next packet is due and
reads answers meanwhile; reading late does no harm, because the kernel timestamps their arrival.
"""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.tools.programs import stamp_endpoint, stamp_packet, stamp_session

_LINGER_NS = 100_000_000  # for duplicates, once all packets are back
_TOO_LATE = {
    "error": "this host was too busy: the packets left so late that the run ended before the time"
    " to wait for their answers did"
}
_READ_AT_ONCE = 64  # answers read before checking again whether a packet is due


class Sender(stamp_session.SendingEnd):
    """One session: its packets, when they were sent, and the answers."""

    def __init__(self, arguments: stamp_endpoint.Arguments) -> None:
        """Open the socket.

        :raises stamp_endpoint.Unusable: a name is unknown, or there is no route to the reflector.
        """
        super().__init__(arguments)
        self._count: int = arguments["count"]
        self._interval_ns: int = arguments["interval_ns"]
        self._timeout_ns: int = arguments["timeout_ns"]
        self._sent_ns: list[int] = []
        self._outstanding = set(range(self._count))
        self._answers: list[tuple[int, ...]] = []
        self._unsent = 0
        self._unreachable = 0
        self._complaint = ""

    def run(self, first_ns: int, deadline_ns: int) -> dict[str, Any]:
        """Send all packets, the first at ``first_ns``, wait for the answers, return the result.

        It ends at ``deadline_ns`` in any case. If answers were still to be awaited then, the
        process had got no processor time when its packets were due: nothing is said to be lost.
        """
        stamp_endpoint.wait_until(first_ns)
        # Paced on monotonic time from here on, each packet by its own due time: no drift, no step.
        began_ns = time.monotonic_ns()
        last_ns = began_ns + deadline_ns - time.time_ns()
        for sequence in range(self._count):
            self._listen_until(min(began_ns + sequence * self._interval_ns, last_ns))
            if time.monotonic_ns() >= last_ns:
                return dict(_TOO_LATE)
            self._send(sequence)
        awaited_ns = time.monotonic_ns() + self._timeout_ns
        self._listen_until(min(awaited_ns, last_ns), until_complete=True)
        if not self._outstanding:
            self._listen_until(
                min(time.monotonic_ns() + min(_LINGER_NS, self._timeout_ns), last_ns)
            )
        elif awaited_ns > last_ns:
            return dict(_TOO_LATE)
        return self._result()

    def _listen_until(self, due_ns: int, *, until_complete: bool = False) -> None:
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            if until_complete and not self._outstanding:
                return
            ready, _, _ = select.select([self._socket], [], [], left_ns / stamp_endpoint.SECOND_NS)
            if ready:
                self._read()

    def _send(self, sequence: int) -> None:
        sent = self._emit(sequence)
        self._sent_ns.append(sent.at_ns)
        self._unreachable += sent.unreachable
        self._complaint = sent.complaint or self._complaint
        if not sent.at_ns:
            self._unsent += 1
            self._outstanding.discard(sequence)

    def _read(self) -> None:
        for _ in range(_READ_AT_ONCE):
            try:
                received = stamp_endpoint.receive(self._socket)
            except ConnectionRefusedError:
                self._unreachable += 1
                continue
            if received is None:
                return
            packet, arrived_ns, ttl, _ = received
            self._note(stamp_packet.unpack_reflector(packet), arrived_ns, ttl)

    def _note(self, answer: stamp_packet.ReflectorPacket | None, arrived_ns: int, ttl: int) -> None:
        if answer is None or answer.session != self._session:
            return
        if answer.sender_sequence >= len(self._sent_ns):
            return
        sent_ns = self._sent_ns[answer.sender_sequence]
        if answer.sender_timestamp != stamp_packet.ntp_from_ns(sent_ns):
            return  # not an answer to a packet of this session
        self._outstanding.discard(answer.sender_sequence)
        there_ns = stamp_packet.ns_from_ntp(answer.received, sent_ns)
        back_ns = stamp_packet.ns_from_ntp(answer.timestamp, sent_ns)
        self._answers.append(
            (
                answer.sender_sequence,
                there_ns - sent_ns,
                back_ns - there_ns,
                arrived_ns - back_ns,
                answer.sequence,
                answer.sender_ttl,
                ttl,
            )
        )

    def _result(self) -> dict[str, Any]:
        if self._unsent == self._count:
            return {"error": f"no packet could be sent: {self._complaint or 'port unreachable'}"}
        return {
            "sent": self._count - self._unsent,
            "unsent": self._unsent,
            "unreachable": self._unreachable,
            "answers": self._answers,
            "clock": self._clock.state(),
        }


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run one session.

    Arguments: ``reflector``, ``source`` (addresses or names), ``port``, ``ip_version`` (4, 6 or
    null), ``device`` (the interface to bind to, or null), ``count``, ``interval_ns``,
    ``timeout_ns``, ``length`` (octets of UDP payload), ``session`` (16 bits), ``first_ns`` (the
    instant of the first packet), ``deadline_ns`` (the instant to stop in any case).
    Result: counts, the clock, and ``answers`` in the order of their arrival: sequence number,
    nanoseconds there, in the reflector, and back, the reflector's sequence number, TTL there, back.
    """
    return Sender(arguments).run(arguments["first_ns"], arguments["deadline_ns"])


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
