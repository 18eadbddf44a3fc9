"""The session-sender of a continuous STAMP stream, with a record of figures per interval.

``stampbg_sender.py '{"reflector": "192.0.2.2", "port": 5000, …}'``, see :func:`measure`. There is
one thread, as in the sender of a short session (:mod:`.stamp_sender`). Packets are summarised as
figures and discarded when their interval is over.
"""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path and in isolated mode: nothing else is importable
    sys.path.append(str(Path(__file__).resolve().parents[4]))

from node.plugins.distribution import both_ways
from node.plugins.tools.programs import stamp_endpoint, stamp_packet, stamp_session

_LATE_NS_MAX = stamp_endpoint.SECOND_NS
_READ_AT_ONCE = 64  # answers read before checking again whether a packet is due


class _Interval:
    """The packets of one interval and their answers."""

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.sent_ns = [0] * count
        self.in_time: dict[int, tuple[int, int]] = {}
        self.reflected: set[int] = set()
        self.seen: set[int] = set()
        self.unsent = 0
        self.unreachable = 0
        self.late = 0
        self.duplicates_forward = 0
        self.duplicates_backward = 0
        self.reordered = 0
        self.ttls: tuple[int, int] | None = None
        self.complaint = ""

    def figures(self) -> dict[str, Any]:
        return {
            "sent": len(self.sent_ns) - self.unsent,
            "unsent": self.unsent,
            "received_back": len(self.in_time),
            "late": self.late,
            "unreachable": self.unreachable,
            "duplicates_forward": self.duplicates_forward,
            "duplicates_backward": self.duplicates_backward,
            "reordered_backward": self.reordered,
            **both_ways(self.in_time),
            "ttls": self.ttls,
            "complaint": self.complaint,
        }


class SenderStream(stamp_session.SendingEnd):
    """One stream: its socket, and the intervals that are not over."""

    def __init__(self, arguments: stamp_endpoint.Arguments) -> None:
        """Open the socket.

        :raises stamp_endpoint.Unusable: a name is unknown, or there is no route to the reflector.
        """
        super().__init__(arguments)
        self._size: int = arguments["packets"]
        self._count: int = arguments["intervals"]
        self._interval_ns: int = arguments["interval_ns"]
        self._timeout_ns: int = arguments["timeout_ns"]
        self._slack_ns: int = arguments["slack_ns"]
        self._intervals: dict[int, _Interval] = {}
        self._next = 0  # the first interval that has no record yet
        self._handled = 0  # packets that were sent or skipped
        self._began_ns = 0
        self._highest = -1

    def run(self, first_ns: int) -> dict[str, Any]:
        """Send all packets, the first at ``first_ns``; record each interval when it is over."""
        stamp_endpoint.wait_until(first_ns)
        # Paced on monotonic time from here on, each packet by its own due time: no drift, no step.
        self._began_ns = time.monotonic_ns()
        for sequence in range(self._count * self._size):
            due_ns = self._began_ns + sequence * self._interval_ns
            self._listen_until(due_ns)
            # After a pause of this process, a burst of old packets would only disturb.
            self._send(sequence, skipped=time.monotonic_ns() - due_ns > _LATE_NS_MAX)
        while self._next < self._count:
            self._listen_until(self._over_ns())
        return {"intervals": self._next}

    def _over_ns(self) -> int:
        """Return when the first interval without a record is complete, in monotonic time."""
        packets_ns = (self._next + 1) * self._size * self._interval_ns
        return self._began_ns + packets_ns + self._timeout_ns + self._slack_ns

    def _listen_until(self, due_ns: int) -> None:
        while (left_ns := due_ns - time.monotonic_ns()) > 0:
            ready, _, _ = select.select([self._socket], [], [], left_ns / stamp_endpoint.SECOND_NS)
            if ready:
                self._read()
        # After a long pause of this process packets may be due that belong to an interval whose
        # time is up: it is over when they are told as not sent, too.
        if (
            self._handled >= (self._next + 1) * self._size
            and time.monotonic_ns() >= self._over_ns()
        ):
            self._record()

    def _record(self) -> None:
        for _ in range(self._size // _READ_AT_ONCE + 1):  # what came during a pause was not lost
            self._read()
        interval = self._intervals.pop(self._next)
        state = self._clock.state()
        stamp_endpoint.record({"interval": self._next, **interval.figures(), "clock": state})
        self._next += 1
        self._look_at_clock()

    def _send(self, sequence: int, *, skipped: bool) -> None:
        number, at = divmod(sequence, self._size)
        if at == 0:
            self._intervals[number] = _Interval(sequence, self._size)
        interval = self._intervals[number]
        sent = stamp_session.SendResult(0, 0, "") if skipped else self._emit(sequence)
        interval.sent_ns[at] = sent.at_ns
        interval.unreachable += sent.unreachable
        interval.complaint = sent.complaint or interval.complaint
        interval.unsent += not sent.at_ns
        self._handled += 1

    def _read(self) -> None:
        for _ in range(_READ_AT_ONCE):
            try:
                received = stamp_endpoint.receive(self._socket)
            except OSError:  # an ICMP error in answer to an earlier packet
                if self._intervals:
                    self._intervals[max(self._intervals)].unreachable += 1
                continue
            if received is None:
                return
            packet, arrived_ns, ttl, _ = received
            answer = stamp_packet.unpack_reflector(packet)
            if answer is not None and answer.session == self._session:
                self._note(answer, arrived_ns, ttl)

    def _note(self, answer: stamp_packet.ReflectorPacket, arrived_ns: int, ttl: int) -> None:
        sequence, number = answer.sender_sequence, answer.sequence
        interval = self._intervals.get(sequence // self._size)
        if interval is None:
            return  # of an interval that is over: it was counted as lost
        sent_ns = interval.sent_ns[sequence - interval.first]
        if not sent_ns or answer.sender_timestamp != stamp_packet.ntp_from_ns(sent_ns):
            return  # not an answer to a packet of this stream
        if number in interval.reflected:
            interval.duplicates_backward += 1
            return
        interval.reordered += number < self._highest  # RFC 4737
        self._highest = max(self._highest, number)
        interval.reflected.add(number)
        if sequence in interval.seen:
            interval.duplicates_forward += 1
            return
        interval.seen.add(sequence)
        there_ns = stamp_packet.ns_from_ntp(answer.received, sent_ns)
        back_ns = stamp_packet.ns_from_ntp(answer.timestamp, sent_ns)
        if arrived_ns - sent_ns > self._timeout_ns:
            interval.late += 1
            return
        interval.in_time[sequence] = (there_ns - sent_ns, arrived_ns - back_ns)
        interval.ttls = interval.ttls or (answer.sender_ttl, ttl)


def measure(arguments: stamp_endpoint.Arguments) -> dict[str, Any]:
    """Run one stream.

    Arguments: ``reflector``, ``source`` (addresses or names), ``port``, ``ip_version`` (4, 6 or
    null), ``device`` (an interface or null), ``packets`` (in an interval), ``intervals``,
    ``interval_ns`` (from packet to packet), ``timeout_ns``, ``slack_ns`` (how much longer to wait
    for late packets), ``length`` (octets of UDP payload), ``session`` (16 bits), ``first_ns`` (the
    instant of the first packet).
    Records: counts, figures and histograms of the packets of one interval, and the clock.
    Result: ``intervals``, the number of records.
    """
    return SenderStream(arguments).run(arguments["first_ns"])


if __name__ == "__main__":
    sys.exit(stamp_endpoint.run(measure, undisturbed=True))
